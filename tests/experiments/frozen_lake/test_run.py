"""Frozen Lake at a tiny size, and its evaluation on the exact predictor."""

import json
from dataclasses import replace

import numpy as np
import pytest
from experiments.smallest import SMALLEST_RUN

from secondguess.experiments.frozen_lake.claims import STRAIGHT_VIEWS, lake_claims
from secondguess.experiments.frozen_lake.evaluation import (
    MANY_LAKE_CELLS,
    HeldOut,
    error_by_lake_cells,
    optimum_gaps,
    sampled_walks,
    threshold_for,
    top1,
    view_metrics,
)
from secondguess.experiments.frozen_lake.exact import ExactPredictor
from secondguess.experiments.frozen_lake.figures import walks_of
from secondguess.experiments.frozen_lake.page import lake_section
from secondguess.experiments.frozen_lake.pairs import LakePairs
from secondguess.experiments.frozen_lake.run import (
    PRESETS,
    STILL_LEARNING,
    LakeConfig,
    fresh_model,
    lake_parts,
    run_frozen_lake,
)
from secondguess.experiments.frozen_lake.walks import HIDDEN, log_probs, parse_texts
from secondguess.experiments.frozen_lake.world import LAKE, NUM_EXPERTS
from secondguess.experiments.needs import NEEDS
from secondguess.experiments.runner import PartResult
from secondguess.report.reading import read_run
from secondguess.theory.records import SelfCheatScores

PREDICTOR = ExactPredictor()
TINY = LakeConfig(
    **SMALLEST_RUN,
    batch_size=8,
    soft_targets=True,
    num_buckets=2,
    track_every=2,
    num_held_out=20,
    num_samples=40,
)


@pytest.fixture(scope="module")
def exact_walks():
    views = np.repeat(np.arange(HIDDEN, NUM_EXPERTS), 400)
    return sampled_walks(PREDICTOR, PREDICTOR, views, np.random.default_rng(0))


def test_the_exact_predictor_gives_the_published_picture(exact_walks):
    hidden = view_metrics(exact_walks[exact_walks.views == HIDDEN])
    assert hidden["accepted_among_always_safe"] >= 0.98
    assert hidden["over_lake_among_accepted"] == hidden["unsafe_among_accepted"] == 0
    assert 0.15 < hidden["unsafe"] < 0.3
    assert hidden["log_confidence_std"] == pytest.approx(0, abs=1e-9)
    visible = view_metrics(exact_walks[exact_walks.views != HIDDEN])
    assert visible["accepted"] == 1
    assert visible["unsafe"] == 0


def test_errors_by_lake_cells_find_the_walks_that_are_off(exact_walks):
    hidden = exact_walks[exact_walks.views == HIDDEN]
    long_way = hidden.visited.sum(axis=1) >= MANY_LAKE_CELLS
    noise = np.where(long_way, np.random.default_rng(0).normal(size=len(long_way)), 0.0)
    scores = SelfCheatScores(hidden.scores.log_marginal + noise, hidden.scores.log_self_conditional)
    *others, last = error_by_lake_cells(replace(hidden, scores=scores))
    assert last["share"] == pytest.approx(long_way.mean())
    assert last["log_confidence_std"] == pytest.approx(noise[long_way].std())
    assert [each["lake_cells"] for each in others] == list(range(MANY_LAKE_CELLS))
    assert all(each["log_confidence_std"] == pytest.approx(0, abs=1e-9) for each in others)
    assert sum(each["share"] for each in [*others, last]) == pytest.approx(1)


def test_unsafe_chances_count_the_cells_of_the_lake(exact_walks):
    hidden = exact_walks[exact_walks.views == HIDDEN]
    chance = hidden.unsafe
    for expert in range(NUM_EXPERTS):
        as_if_seen = type(hidden)(
            np.full(len(hidden.views), expert),
            hidden.actions,
            hidden.is_walk,
            hidden.scores,
            hidden.exact,
        )
        chance = chance - as_if_seen.unsafe / NUM_EXPERTS
    np.testing.assert_allclose(chance, 0, atol=1e-12)


def test_top1_takes_the_most_probable_accepted_walk(exact_walks):
    chosen = top1(exact_walks)
    assert set(chosen) == set(range(HIDDEN, NUM_EXPERTS))
    row = chosen[HIDDEN]
    assert row is not None
    candidates = (exact_walks.views == HIDDEN) & exact_walks.accepted
    best = exact_walks.scores.log_marginal[candidates].max()
    assert exact_walks.scores.log_marginal[row] == best
    assert not exact_walks.over_lake[row]


def test_threshold_separates_the_lake_exactly(exact_walks):
    hidden = exact_walks[exact_walks.views == HIDDEN]
    threshold = threshold_for(hidden, max_rate=0.0)
    gaps = hidden.scores.confidence_gap()
    assert gaps[~hidden.over_lake].max() <= threshold < gaps[hidden.over_lake].min()


@pytest.mark.statistical
def test_an_untrained_network_is_far_from_the_optimum():
    """Every gap is tens of nats; chance cannot bring any near 1."""
    pairs = LakePairs()
    held_out = HeldOut.draw(PREDICTOR, 30, np.random.default_rng(0))
    gaps = optimum_gaps(fresh_model(TINY, pairs).network, pairs, held_out)
    assert min(gaps[f"{view}_{y}"] for view in ("hidden", "visible") for y in ("y1", "y2")) > 1


def test_only_a_free_middle_row_makes_crossing_the_best_walk():
    walks, are_walks = parse_texts(
        [
            "c0 r2 right c1 r2 right c2 r2 right c3 r2 right FINISH",
            "c0 r2 down c0 r3 right c1 r3 right c2 r3 right c3 r3 right c4 r3 up FINISH",
            "c0 r2 up c0 r1 up c0 r0 right c1 r0 right c2 r0 right c3 r0 right c4 r0 down c4 r1 "
            "down FINISH",
        ]
    )
    assert are_walks.all()
    straight, below, around = log_probs(PREDICTOR.policies, walks)
    free = [int(view) for view in STRAIGHT_VIEWS]
    blocked = [3, 4, 5]
    assert sorted(free + blocked) == list(range(NUM_EXPERTS))
    assert (straight[free] > around[free] + 0.3).all()
    assert np.isneginf(straight[blocked]).all()
    np.testing.assert_allclose(below[blocked], around[blocked], atol=1e-12)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "tiny", TINY)
        return run_frozen_lake(preset="tiny", out=tmp_path_factory.mktemp("out"))


def test_a_run_leaves_results_and_figures(directory):
    result = json.loads((directory / "result.json").read_text())
    assert set(result["metrics"]) == {"exact", "training", "samples"}
    held = {claim["name"]: claim["holds"] for claim in result["claims"]}
    exact = {name: holds for name, holds in held.items() if name.startswith("exact predictor")}
    assert len(exact) == 3
    assert all(exact.values())
    assert not all(held.values())  # four steps teach nothing
    figures = {path.name for path in (directory / "figures").iterdir()}
    assert figures == {
        "confidence.png",
        "decoders-exact.png",
        "decoders-model.png",
        "experts.png",
        "training.png",
        "walks-exact.png",
        "walks-model.png",
    }


def kept_parts(directory) -> dict[str, PartResult]:
    metrics = json.loads((directory / "result.json").read_text())["metrics"]
    with np.load(directory / "arrays.npz") as arrays:
        return {
            part: PartResult(
                metrics[part],
                {
                    name.removeprefix(f"{part}/"): arrays[name]
                    for name in arrays
                    if name.startswith(f"{part}/")
                },
            )
            for part in metrics
        }


def test_a_network_that_is_still_learning_is_shown_and_not_judged(directory):
    parts = kept_parts(directory)
    needs = NEEDS["frozen-lake", "quick"]
    found = lake_claims(parts, still_learning=True)
    unjudged = [claim.name for claim in found if needs.preset_for(claim.name)]
    assert unjudged == [claim.name for claim in lake_claims(parts)[3:]]  # the first ones are exact
    claims = [claim for claim in found if claim.name not in unjudged]
    assert all(claim.name.startswith("exact predictor") for claim in claims)
    # Among 40 samples the most probable walk of a visible view is not always found.
    assert all(claim.holds for claim in claims if "crosses the lake" not in claim.name)
    assert len(claims) == 8
    section = lake_section(parts, still_learning=True)
    shares, distances = section.tables
    assert "still learning" in shares.columns[3]
    assert "still learning" in distances.title
    assert any("needs the preset cpu" in note for note in section.notes)
    assert "quick" in STILL_LEARNING
    assert "cpu" not in STILL_LEARNING


def test_the_report_has_walks_and_every_figure_it_names(directory):
    described = read_run(directory)
    assert described.problems == ()
    assert "still learning" not in "".join(described.section.notes)
    exact, network = described.section.walks
    assert [len(view.walks) for view in exact.views] == [30, 30, 30]
    marked = [[cell for cell, sign in enumerate(view.signs) if sign == "!"] for view in exact.views]
    assert marked == [[16], [13], []]
    assert [view.tones.count("blue") for view in exact.views] == [8, 8, 9]
    assert [view.signs.count("?") for view in exact.views] == [0, 0, 9]
    accepted = [walk for walk in exact.views[2].walks if walk.gap <= exact.max_gap]
    assert accepted
    assert not any(walk.is_flagged for walk in accepted)
    assert all(walk.cells[0] == 10 for walk in accepted)
    assert all(len(view.walks) <= 30 for view in network.views)


def test_training_is_tracked_against_the_optimum(directory):
    arrays = np.load(directory / "arrays.npz")
    assert arrays["training/tracked_steps"].tolist() == [2, 4]
    assert arrays["training/hidden_y2"].shape == (2,)
    part = PartResult(
        arrays={
            name.removeprefix("exact/"): arrays[name] for name in arrays if name.startswith("exact")
        }
    )
    assert len(walks_of(part).views) == 40 * 10
    assert part.arrays["policies"].shape == (9, 25, 4)


def test_other_samples_keep_the_training():
    exact, training, samples = (part.config for part in lake_parts(TINY))
    more_exact, same_training, more_samples = (
        part.config for part in lake_parts(replace(TINY, num_samples=80))
    )
    assert training == same_training
    assert exact != more_exact
    assert samples != more_samples
    # The exact predictor needs no network.
    assert lake_parts(replace(TINY, hidden_size=32))[0].config == exact


def test_a_killed_training_keeps_its_looks(directory):
    # As if it had been killed after the first look, killed again in the midst of writing another,
    # and had looked again at the same step: what it saw first is no longer true.
    folder = directory / "parts" / "training"
    log = folder / "distance-from-exact.jsonl"
    first, last = filter(None, log.read_text().splitlines())
    outdated = json.loads(first)
    outdated["gaps"] = dict.fromkeys(outdated["gaps"], -1.0)
    log.write_text("\n".join([json.dumps(outdated), first[:9], first, last]) + "\n")
    again = lake_parts(TINY)[1].compute(folder, {})
    kept = np.load(directory / "arrays.npz")
    np.testing.assert_array_equal(again.arrays["hidden_y2"], kept["training/hidden_y2"])


def test_presets_are_configurations():
    assert PRESETS["paper"].num_layers == 12
    for name in ("quick", "cpu"):
        assert PRESETS[name].soft_targets
        assert PRESETS[f"{name}-sampled"] == replace(PRESETS[name], soft_targets=False)
    with pytest.raises(ValueError, match="'huge' is no preset"):
        run_frozen_lake(preset="huge", out=None)  # pyright: ignore[reportArgumentType]


def test_shown_views_have_an_unsafe_cell_where_the_paper_has_it():
    assert (LAKE[6], LAKE[5]) == (16, 13)  # bottom left, middle right
