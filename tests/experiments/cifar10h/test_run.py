"""A whole run on invented images: parts, tuning, tables, claims and figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.one_process import in_this_process
from numpy.typing import NDArray
from torch import Tensor
from typer.testing import CliRunner

from secondguess.classification.pairs import PairData
from secondguess.cli import reproduce
from secondguess.cli.app import app
from secondguess.experiments.cifar10h import data, frozen, protocol, run
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.tables import tables
from secondguess.experiments.cifar10h.task import VARIANTS
from secondguess.report.reading import read_run

TINY = run.Preset(
    backbone="frozen",
    protocol=protocol.ProtocolConfig(
        batch_size=32,
        short_pretraining=2,
        long_pretraining=3,
        finetuning_lengths=(2,),
        num_trials=1,
        num_folds=2,
    ),
    methods=("naive", "ensemble", "cheat"),
    variants=("original", "extra-classes"),
    num_pretraining=60,
    num_copies=1,
    width=8,
)


def invented(number: int, rng: np.random.Generator) -> AnnotatedInputs:
    images = rng.integers(256, size=(number, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(10, size=number)
    counts = 30 * np.eye(10, dtype=int)[labels] + rng.multinomial(20, np.full(10, 0.1), number)
    return AnnotatedInputs(images, PairData.from_counts(counts), labels)


def mean_levels(images: NDArray[np.uint8], **settings: object) -> Tensor:
    return torch.from_numpy(images).float().mean(dim=(2, 3))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    loaded = Cifar10H(invented(80, rng), invented(200, rng))
    monkeypatch.setattr(run.files, "load", lambda folder: loaded)
    monkeypatch.setattr(frozen, "frozen_features", mean_levels)
    monkeypatch.setattr(data, "NUM_FINETUNING", 60)
    monkeypatch.setattr(data, "NUM_VALIDATION", 40)
    monkeypatch.setitem(run.PRESETS, "tiny", TINY)
    return tmp_path


def test_a_run_goes_from_images_to_tables(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"preset": "tiny", "out": tiny / "out", "data_dir": tiny}
    summaries = [run.run_cifar10h(seed=seed, **settings) for seed in (0, 1)]
    assert summaries[0] == summaries[1]
    directories = [summaries[0].parent / f"seed-{seed}" for seed in (0, 1)]
    first = json.loads((directories[0] / "result.json").read_text())
    second = json.loads((directories[1] / "result.json").read_text())
    assert list(first["metrics"]) == [
        f"{variant}/{method}" for variant in TINY.variants for method in TINY.methods
    ]
    assert list(second["metrics"]) == [f"original/{method}" for method in TINY.methods]
    # Tuned once, on the original and with seed 0; the ensemble takes the naive network's.
    recipes = {name: part["recipe"] for name, part in first["metrics"].items()}
    assert recipes["original/ensemble"] == recipes["extra-classes/naive"]
    assert second["metrics"]["original/cheat"]["recipe"] == recipes["extra-classes/cheat"]
    assert {path.name for path in (tiny / "out/cifar10h/tiny/tuning").iterdir()} == {
        "naive",
        "cheat",
    }
    assert first["claims"] == []  # they need all seeds
    assert {path.name for path in (directories[0] / "figures").iterdir()} == {
        "variants.png",
        "reliability-original.png",
        "reliability-extra-classes.png",
    }
    kept = {path.name for path in (directories[0] / "parts/original/cheat").iterdir()}
    assert kept == {"finetuned", "result.json", "arrays.npz"}
    described = read_run(directories[0])
    assert described.problems == ()
    original, extra = described.section.tables
    assert original.rows[0][1].endswith(" (0.076)")  # the paper's ECE-2 of the naive network
    assert extra.title.startswith("Extra classes")

    together = json.loads((summaries[1] / "result.json").read_text())
    assert together["seeds"] == [0, 1]
    one, two = (result["metrics"]["original/cheat"]["rows"] for result in (first, second))
    for row in ("cheat", "cheat-recalibrated"):
        assert together["metrics"]["original"][row]["kl"] == pytest.approx(
            [one[row]["kl"], two[row]["kl"]], abs=1e-6
        )
    assert len(together["metrics"]["extra-classes"]["naive"]["kl"]) == 1
    # Of two methods each: five for two seeds, three for one.
    assert len(together["claims"]) == 2 * (5 + 3)
    assert set(together["minus_naive"]["original"]) == {"cheat", "cheat-recalibrated"}
    described = read_run(summaries[1])
    assert described.problems == ()
    assert described.num_claims == 16
    assert [picture.figure.file for picture in described.pictures] == ["calibration-errors.png"]
    # Main table, deviations of the original, extra variants, floors.
    assert tables(together["metrics"]).count("| Naive NN |") == 4

    # A second call finds everything finished.
    def untouchable(*arguments: object, **settings: object) -> None:
        raise AssertionError("a finished part was computed again")

    monkeypatch.setattr(run, "final_result", untouchable)
    assert run.run_cifar10h(seed=0, **settings) == summaries[0]
    assert "original/naive is finished" in capsys.readouterr().out


def test_images_are_learned_end_to_end_and_the_summary_says_how_fast(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = run.PRESETS["cpu-pixels"]
    recipe = replace(
        protocol.PIXEL_RECIPE,
        pretraining=replace(protocol.PIXEL_RECIPE.pretraining, num_steps=5),
        finetuning=replace(protocol.PIXEL_RECIPE.finetuning, num_steps=1),
    )
    small = replace(
        pixels,
        protocol=replace(pixels.protocol, batch_size=30),
        recipes=dict.fromkeys(pixels.methods, recipe),
        num_pretraining=60,
    )
    monkeypatch.setitem(run.PRESETS, "tiny", small)
    summary = run.run_cifar10h(preset="tiny", out=tiny / "out", data_dir=tiny)
    together = json.loads((summary / "result.json").read_text())
    parts = ["original/naive", "original/cheat", "original/cheat-sngp"]
    assert list(together["learning_curves"]) == parts
    for part in parts:
        (looks,) = together["learning_curves"][part]
        assert [look["step"] for look in looks] == [2, 4, 5]  # an epoch is two batches
        assert all(0 <= look["accuracy"] <= 100 for look in looks)
    # Without folds nothing is recalibrated.
    assert list(together["metrics"]["original"]) == ["naive", "cheat", "cheat-sngp"]


def test_the_command_runs_the_seeds_of_the_preset_and_prints_the_tables(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap = replace(TINY, methods=("naive",), variants=("original",))
    monkeypatch.setitem(run.PRESETS, "quick", cheap)
    monkeypatch.setattr(reproduce, "run_side_by_side", in_this_process)
    arguments = ["reproduce", "cifar10h", "--data-dir", str(tiny), "--out", str(tiny / "out")]
    arguments += ["--seeds", "2"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert (tiny / "out/cifar10h/quick/seed-1/result.json").exists()
    assert "| Naive NN |" in outcome.output
    assert (tiny / "out/cifar10h/quick/seed-all/result.json").exists()
    mistaken = CliRunner().invoke(app, [*arguments, "--methods", "psychic"])
    assert mistaken.exit_code == 2
    assert "'psychic' is no method; expected one of naive" in mistaken.output


@pytest.mark.parametrize("preset", [name for name, size in run.PRESETS.items() if size.recipes])
def test_a_preset_without_a_search_has_a_recipe_for_each_method(preset: str) -> None:
    size = run.PRESETS[preset]
    tuned = {METHODS[name].tuned_as or name for name in size.methods}
    assert tuned <= set(size.recipes or {})


def test_tuning_of_other_settings_is_not_taken_for_ours(tiny: Path) -> None:
    settings = {"preset": "tiny", "out": tiny / "out", "data_dir": tiny, "methods": ["naive"]}
    run.run_cifar10h(variants=["original"], **settings)
    with pytest.raises(ValueError, match=r"'num_copies': 1.*now they are.*'num_copies': 0"):
        run.run_cifar10h(variants=["extra-classes"], num_copies=0, **settings)


def test_two_rivals_alone_have_longer_searches_and_the_folders_of_others_stay_good() -> None:
    cpu = run.PRESETS["cpu"]
    assert set(cpu.longer) == {"evidential", "epinet"}
    for name, longer in cpu.longer.items():
        assert cpu.protocol_of(name) == longer
        assert set(cpu.protocol.finetuning_lengths) < set(longer.finetuning_lengths)
        assert longer.long_pretraining >= 4 * cpu.protocol.long_pretraining
        assert longer.num_trials > cpu.protocol.num_trials
        assert longer.batch_size == cpu.protocol.batch_size
        assert longer.num_folds == cpu.protocol.num_folds
    assert not any(size.longer for name, size in run.PRESETS.items() if name != "cpu")

    tasks = run.Tasks(cpu, Cifar10H(*(invented(1, np.random.default_rng(0)),) * 2), Path())
    for name in set(METHODS) - set(cpu.longer):
        part = run.method_part(tasks, "original", name, tuning=Path(), seed=0)
        # What a finished part is known by: all that its result depends on.
        assert part.config == {
            "batch_size": 256,
            "short_pretraining": 100,
            "long_pretraining": 400,
            "finetuning_lengths": (15, 30, 60, 120),
            "num_trials": 12,
            "num_folds": 5,
            "num_pretraining": 50_000,
            "num_copies": 0,
            "backbone": "frozen",
            "depth": 28,
            "width": 128,
            "variant": "original",
            "method": name,
            "seed": 0,
        }


def test_a_method_is_tuned_and_finished_with_its_own_protocol(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = replace(TINY.protocol, short_pretraining=4, long_pretraining=6)
    size = replace(TINY, methods=("naive", "epinet"), longer={"epinet": longer})
    monkeypatch.setitem(run.PRESETS, "tiny", size)
    directory = run.run_cifar10h(
        preset="tiny", out=tiny / "out", data_dir=tiny, variants=["original"]
    )
    recipes = json.loads((directory / "result.json").read_text())["recipes"]
    assert recipes["naive"]["pretraining"]["num_steps"] in (2, 3)
    assert recipes["epinet"]["pretraining"]["num_steps"] in (4, 6)


def test_unknown_presets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'huge' is no preset; expected one of quick, cpu"):
        run.run_cifar10h(preset="huge", out=tmp_path)


def test_augmented_copies_are_for_training_only(tiny: Path) -> None:
    rng = np.random.default_rng(1)
    loaded = Cifar10H(invented(40, rng), invented(10, rng))
    made = frozen.frozen_task(loaded, VARIANTS["scrambled"], cache_dir=tiny, num_copies=3)
    assert made.data.pretraining.inputs.shape == (40, 4, 3)
    clean = VARIANTS["scrambled"].scramble(torch.from_numpy(loaded.pretraining.inputs)).numpy()
    levels = mean_levels(clean)
    expected = (levels - levels.mean(dim=0)) / levels.std(dim=0)
    (found,) = made.evaluation_inputs(made.data.pretraining, torch.nn.Linear(1, 1))
    torch.testing.assert_close(found, expected)

    # Each row of a batch is one of the row's four, and over time all four.
    batch_at = made.batches(made.data.pretraining, batch_size=40, seed=0)
    copies = made.data.pretraining.inputs
    seen = set()
    for step in range(6):
        same = (batch_at(step).inputs[:, None, None] == copies[None]).all(dim=-1)
        assert same.flatten(1).any(dim=1).all()
        seen |= set(same.any(dim=1).nonzero()[:, 1].tolist())
    assert seen == {0, 1, 2, 3}
