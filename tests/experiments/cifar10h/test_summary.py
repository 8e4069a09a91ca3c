"""Claims and tables of invented rows, whose verdicts are known."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.experiments.cifar10h.claims import best_pair_model, cifar10h_claims
from secondguess.experiments.cifar10h.evaluation import Difference, FromNaive, crossed_difference
from secondguess.experiments.cifar10h.tables import (
    PAPER_MEANS,
    deviation_table,
    extra_table,
    floor_table,
    main_table,
)
from secondguess.report.sections import Claim

Row = dict[str, list[float]]


def row(ece: float, *, seeds: int = 4) -> Row:
    constant = {
        "second_order_ece": ece,
        "second_order_ece_standard_error": 0.001,
        "second_order_ece_floor": 0.004,
        "relative_ece": ece / 0.1,
        "relative_floor": 0.04,
        "mean_variance": 0.1,
        "grouping_error": 0.1,
        "first_order_ece": 0.02,
        "accuracy": 90.0,
        "kl": 0.3,
    }
    return {key: [value] * seeds for key, value in constant.items()}


RECIPES = {"cheat": {"validation_kl": 0.42}, "cheat-mixture": {"validation_kl": 0.43}}


def claims_of(
    variant: str, rows: dict[str, Row], from_naive: dict[str, FromNaive] | None = None
) -> list[Claim]:
    best = best_pair_model(rows, RECIPES)
    return cifar10h_claims(
        {variant: rows},
        {variant: best} if best else {},
        {variant: from_naive} if from_naive else {},
    )


def about(claims: list[Claim], method: str) -> list[bool]:
    """Verdicts on one method: share of the error, rivals, floor, then what the naive has."""
    found = [claim for claim in claims if f": {method}," in claim.name]
    return [claim.holds for claim in found]


def test_both_pair_models_are_compared_with_the_best_rival() -> None:
    rows = {"naive": row(0.05), "sngp": row(0.012), "cheat": row(0.03)}
    rows["cheat-recalibrated"] = row(0.011)
    rows["cheat-mixture"] = row(0.001)  # better here, but not on the validation images
    claims = claims_of("original", rows)
    assert about(claims, "Cheat NN, as published") == [False, False, False]
    assert about(claims, "Cheat NN, recalibrated, the best pair model") == [True, True, False]
    assert len(claims) == 6
    assert claims[4].value == pytest.approx(0.011)
    assert claims[4].bound == pytest.approx(0.012)


def test_the_papers_own_model_is_judged_once_where_it_is_the_best() -> None:
    claims = claims_of("original", {"naive": row(0.05), "cheat": row(0.004)})
    assert about(claims, "Cheat NN, as published") == [True, True, True]
    assert len(claims) == 3


def test_an_ece_above_its_floor_shows() -> None:
    claims = claims_of("original", {"naive": row(0.05), "cheat": row(0.0041)})
    assert [claim.holds for claim in claims] == [True, True, False]
    assert (claims[2].value, claims[2].bound) == pytest.approx((0.0041, 0.004))


def test_with_one_seed_a_lead_is_two_standard_errors() -> None:
    def lowest(ece: float) -> bool:
        rows = {"naive": row(0.010, seeds=1), "cheat": row(ece, seeds=1)}
        found = claims_of("scrambled", rows)
        assert len(found) == 3  # accuracy and divergence need several seeds
        assert "one seed" in found[1].name
        return found[1].holds

    assert lowest(0.0079)
    assert not lowest(0.0081)


def test_accuracy_and_divergence_may_be_worse_by_two_standard_errors() -> None:
    rows = {"naive": row(0.05), "cheat": row(0.01)}

    def holds(accuracy: float, kl: float) -> list[bool]:
        found = FromNaive(Difference(accuracy, 0.1, 0.01), Difference(kl, 0.002, 0.001))
        return [claim.holds for claim in claims_of("original", rows, {"cheat": found})][3:]

    assert holds(-0.19, 0.0039) == [True, True]
    assert holds(-0.21, 0.0041) == [False, False]
    assert holds(5.0, -1.0) == [True, True]  # better


def test_differences_belong_to_the_method_they_are_of() -> None:
    rows = {"naive": row(0.05), "cheat": row(0.01), "cheat-recalibrated": row(0.01)}
    worse = FromNaive(Difference(-1.0, 0.1, 0.01), Difference(0.1, 0.002, 0.001))
    same = FromNaive(Difference(0.0, 0.1, 0.01), Difference(0.0, 0.002, 0.001))
    found = claims_of("original", rows, {"cheat": worse, "cheat-recalibrated": same})
    assert about(found, "Cheat NN, as published")[3:] == [False, False]
    assert about(found, "Cheat NN, recalibrated, the best pair model")[3:] == [True, True]


def test_the_order_of_the_papers_two_pair_models_is_judged() -> None:
    rows = {"naive": row(0.05), "cheat": row(0.01), "cheat-sngp": row(0.02)}
    recipes = RECIPES | {"cheat-sngp": {"validation_kl": 0.44}}
    best = best_pair_model(rows, recipes)
    assert best == "cheat"
    (*_, order) = cifar10h_claims({"original": rows}, {"original": best}, {})
    assert "Cheat SNGP has a lower ECE-2 than Cheat NN" in order.name
    assert not order.holds


def test_the_standard_error_counts_seeds_and_images() -> None:
    """Against 4,000 worlds with effects of seeds, of images and of both."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4000):
        world = rng.normal(scale=0.3, size=(8, 1)) + rng.normal(size=(1, 60))
        found.append(crossed_difference(world + rng.normal(size=(8, 60)), np.zeros((8, 60))))
    means, errors, of_seeds = np.transpose(found)
    truth = 0.3**2 / 8 + 1 / 60 + 1 / (8 * 60)
    assert np.var(means) == pytest.approx(truth, rel=5 * np.sqrt(2 / 4000))
    assert np.mean(np.square(errors)) == pytest.approx(truth, rel=0.03)
    assert (errors >= of_seeds).all()


def test_without_rivals_or_pair_models_nothing_is_claimed() -> None:
    assert claims_of("original", {"naive": row(0.1)}) == []
    assert claims_of("original", {"cheat": row(0.1)}) == []


def test_tables_have_the_papers_numbers_beside_ours() -> None:
    rows = {
        variant: {"naive": row(0.05), "cheat": row(0.03), "cheat-recalibrated": row(0.02)}
        for variant in PAPER_MEANS
    }
    main = main_table(rows).splitlines()
    assert main[2].startswith("| Naive NN | 0.050 ± 0.000 (0.076) | 0.100 ± 0.000 (0.142) |")
    assert "| 90.0 ± 0.0 (93.9) |" in main[2]
    assert main[4].count("**0.020 ± 0.000**") == 2  # the lowest of either variant
    assert "(" not in main[4]  # the paper has no such row
    deviations = deviation_table(rows, "extra-scrambled").splitlines()
    assert deviations[2].startswith("| Naive NN | 0.050 ± 0.000 (0.521 ± 0.002) |")
    assert "| 90.00 ± 0.00 |" in deviations[2]  # the paper prints no accuracy there
    assert "(0.540)" in extra_table(rows)
    assert "(0.051)" in extra_table(rows)
    floors = floor_table(rows).splitlines()[3]
    assert floors.count("0.030 (floor 0.004) | 30.0 % (floor 4.0 %)") == 4
