"""The whole experiment at a tiny size: parts, claims, figures, and the model it leaves behind."""

import json
from dataclasses import replace

import numpy as np
import pytest
from experiments.smallest import SMALLEST_RUN

from secondguess.experiments.digits_of_pi.claims import pi_claims
from secondguess.experiments.digits_of_pi.evaluation import Statements
from secondguess.experiments.digits_of_pi.rankings import RIVALS
from secondguess.experiments.digits_of_pi.run import (
    PRESETS,
    PiConfig,
    pi_parts,
    run_digits_of_pi,
)
from secondguess.experiments.needs import NEEDS
from secondguess.experiments.runner import PartResult
from secondguess.experiments.sequence_models import load_model
from secondguess.language.answering import answer
from secondguess.report.reading import read_run
from secondguess.report.words import shade

TINY = PiConfig(**SMALLEST_RUN, batch_size=16, num_offsets=6, num_samples=10)


def run(out, config=TINY):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "tiny", config)
        return run_digits_of_pi(preset="tiny", out=out)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return run(tmp_path_factory.mktemp("out"))


def test_a_run_leaves_results_figures_and_a_model(directory):
    result = json.loads((directory / "result.json").read_text())
    parts = ["training", "exact", "samples", "recalibration", "decoders", "examples"]
    assert list(result["metrics"]) == parts
    assert {claim["holds"] for claim in result["claims"]} <= {True, False}
    assert len(result["metrics"]["decoders"]) == 6
    figures = {path.name for path in (directory / "figures").iterdir()}
    assert figures == {
        "by-digit.png",
        "examples-known.png",
        "examples-unknown.png",
        "examples.html",
        "rankings.png",
        "reliability.png",
    }
    assert "amount of cheating" in (directory / "figures" / "examples.html").read_text()
    [decision] = answer(
        load_model(directory),
        ["Tell me about digit 0 0 1 4 of pi."],
        0.9,
        rng=np.random.default_rng(0),
    )
    assert decision.num_candidates == 1


def test_the_report_has_tables_answers_and_every_figure(directory):
    described = read_run(directory)
    assert described.problems == ()
    assert [picture.figure.file for picture in described.pictures] == [
        "reliability.png",
        "rankings.png",
        "by-digit.png",
    ]
    rankings, decoders, deciles, recalibrated, outliers = described.section.tables
    assert [row[0] for row in recalibrated.rows] == [row[0] for row in deciles.rows]
    assert [row[0] for row in rankings.rows] == ["epistemic confidence", *RIVALS]
    assert (len(decoders.rows), len(deciles.rows), len(outliers.rows)) == (6, 10, 3)
    scored, pairs, *_ = described.section.answers
    assert scored.answers[0].log_probs_after is not None
    assert len(pairs.answers) == 2 * len(scored.answers)


def test_exact_scores_cover_every_sentence(directory):
    arrays = np.load(directory / "arrays.npz")
    assert arrays["exact/log_marginal"].shape == (6, 441)
    assert arrays["samples/columns"].shape == (6, 10)
    statements = Statements.from_arrays(
        {name.split("/")[1]: arrays[name] for name in arrays if name.startswith("exact/")}
    )
    np.testing.assert_allclose(
        statements.weights, np.exp(statements.scores.log_marginal), rtol=1e-4
    )


def test_a_second_run_computes_nothing(directory, capsys):
    run(directory.parents[2])
    said = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("is finished") for line in said) == 6


def test_other_samples_keep_the_training(directory, capsys):
    with pytest.raises(ValueError, match=r"samples holds .*num_samples: 10 there, 20 now"):
        run(directory.parents[2], replace(TINY, num_samples=20))
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in said] == [
        f"{part} is finished" for part in ("training", "exact")
    ]
    settings = {part.name: part.config for part in pi_parts(TINY)}
    others = {
        part.name: part.config for part in pi_parts(replace(TINY, num_samples=20, num_offsets=8))
    }
    assert settings["training"] == others["training"]
    assert all(settings[name] != others[name] for name in settings if name != "training")


def test_weights_and_data_depend_on_the_seed(directory, tmp_path):
    training = pi_parts(replace(TINY, seed=1))[0]
    other = training.compute(tmp_path, {}).arrays["losses"]
    assert not np.array_equal(np.load(directory / "arrays.npz")["training/losses"], other)


def test_presets_are_configurations():
    for config in PRESETS.values():
        assert config.num_samples % 10 == 0
    assert PRESETS["paper"].hidden_size == 512
    with pytest.raises(ValueError, match="'huge' is no preset; expected one of quick, cpu, paper"):
        run_digits_of_pi(preset="huge", out=None)  # pyright: ignore[reportArgumentType]


def test_samples_come_in_tens():
    with pytest.raises(ValueError, match="num_samples is 25; expected a multiple of 10"):
        PiConfig(num_samples=25)


def decided(value: float) -> dict[str, bool]:
    """The claims on a run where every rate that should be small is `value`."""
    overall = {"hallucination_rate": value, "promised_rate": 0.1, "standard_error": 0.01}
    calibration = {
        "known_digits": 250 if value == 0 else 249,
        "overall": overall,
        "decile_confidence": [0.2, 0.9, 1.0],
        "decile_hallucination_rate": [0.8 + value, 0.1, 0.5],
    }
    # Here deciles in which decoders answer are judged as well.
    recalibration = {
        "decile_confidence": [0.2, 0.9, 1.0],
        "decile_hallucination_rate": [0.8, 0.1, value],
    }
    rates = {name: {"0.1": (0.01, 0.001)} for name in RIVALS}
    rates["epistemic confidence"] = {"0.1": (value, 0.001)}
    decoder = {"hallucination_rate": value, "promised_rate": 0.05, "standard_error": 0.01}
    parts = {
        "samples": PartResult(
            metrics=calibration | {"rate_and_standard_error": rates},
            arrays={"offsets": np.arange(1, 3001)},
        ),
        "exact": PartResult(metrics=calibration),
        "recalibration": PartResult(
            metrics={which: {"after": recalibration} for which in ("samples", "exact")}
        ),
        "decoders": PartResult(metrics={"selective 0.05": decoder}),
    }
    return {claim.name: claim.holds for claim in pi_claims(parts)}


def test_claims_hold_and_fail():
    assert all(decided(0.0).values())
    assert not any(decided(0.2).values())


def test_the_quick_preset_is_not_judged_by_deciles():
    needs = NEEDS["digits-of-pi", "quick"]
    unjudged = [name for name in decided(0.0) if needs.preset_for(name)]
    assert len(unjudged) == 4
    assert all("of a decile" in name or "of any decile" in name for name in unjudged)


def test_shades_run_from_white_to_red():
    assert shade(0) == shade(-1) == "#ffffff"
    assert shade(5) == shade(50)
    assert shade(0.1) != shade(2)
