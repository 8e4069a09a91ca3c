from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from secondguess.classification.batches import AnnotationBatch, PairBatch
from secondguess.experiments.cifar10h.evaluation import calibration_floor
from secondguess.experiments.cifar10h.task import VARIANTS, Variant
from secondguess.theory.floors import DirichletTruths
from secondguess.theory.metrics import annotator_kl, squared_error_estimate
from secondguess.theory.records import Prediction
from secondguess.theory.reliability import second_order_ece


def test_scrambling_is_one_permutation_of_the_inside() -> None:
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    scrambled = VARIANTS["scrambled"].scramble(images)
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[4:28, 4:28] = True
    assert scrambled[..., ~inside].equal(images[..., ~inside])
    assert not scrambled[..., inside].equal(images[..., inside])
    for image, other in zip(images.flatten(0, 1), scrambled.flatten(0, 1), strict=True):
        assert other[inside].sort().values.equal(image[inside].sort().values)
    # The permutation is part of the data: the same for every call, variant and batch.
    assert VARIANTS["extra-scrambled"].scramble(images[1:]).equal(scrambled[1:])
    assert VARIANTS["extra-classes"].scramble(images).equal(images)


def test_subclasses_are_fixed_distributions() -> None:
    split = VARIANTS["extra-classes"].subclass_probs()
    assert split is not None
    assert split.shape == (10, 3)
    np.testing.assert_allclose(split.sum(axis=1), 1)
    again = VARIANTS["extra-scrambled"].subclass_probs()
    assert again is not None
    assert np.array_equal(split, again)
    assert VARIANTS["scrambled"].subclass_probs() is None
    assert [v.num_classes() for v in VARIANTS.values()] == [10, 30, 10, 30]


@pytest.mark.statistical
def test_responses_get_subclasses_with_the_stated_probabilities() -> None:
    """Chi-square tests of 3 x 3 cells at level 1e-6: a false alarm in 300,000 seeds or so."""
    variant = Variant(extra_classes=True)
    split = variant.subclass_probs(num_original=2)
    assert split is not None
    labels = torch.arange(30_000) % 2
    batch = PairBatch(torch.zeros(len(labels), 1), labels, labels)
    drawn = variant.relabelled(lambda step: batch, num_original=2, seed=5)(3)
    pairs = torch.stack([drawn.y1, drawn.y2], dim=1)
    assert (pairs // 3).equal(torch.stack([labels, labels], dim=1))
    for original in range(2):
        subclasses = (pairs[labels == original] % 3).numpy()
        counts = np.zeros((3, 3))
        np.add.at(counts, tuple(subclasses.T), 1)
        # Independent draws for the two responses: the joint is the product.
        expected = np.outer(split[original], split[original]) * counts.sum()
        assert ((counts - expected) ** 2 / expected).sum() < 44.0  # 8 degrees of freedom, 6e-7


def test_each_annotation_keeps_its_class_and_steps_differ() -> None:
    labels = torch.tensor([[0, 1], [1, 0]])
    multiplicity = torch.tensor([[30, 20], [51, 0]])
    source = VARIANTS["extra-classes"].relabelled(
        lambda step: AnnotationBatch(torch.zeros(2, 1), labels, multiplicity), seed=0
    )
    batch = source(0)
    assert batch.labels.shape == (2, 6)
    assert (batch.labels // 3).equal(labels.repeat_interleave(3, dim=1))
    assert batch.multiplicity.unflatten(1, (2, 3)).sum(2).equal(multiplicity)
    assert source(0).multiplicity.equal(batch.multiplicity)
    assert not source(1).multiplicity.equal(batch.multiplicity)


def test_without_extra_classes_batches_pass_through() -> None:
    def batch_at(step: int) -> PairBatch:
        raise AssertionError

    assert VARIANTS["scrambled"].relabelled(batch_at, seed=0) is batch_at


@pytest.mark.parametrize("num_annotations", [2, 4])
def test_sub_class_form_is_unbiased_by_enumeration(num_annotations: int) -> None:
    variant = Variant(extra_classes=True)
    split = variant.subclass_probs(num_original=2)
    assert split is not None
    truth = np.array([0.3, 0.7])
    probs = np.random.default_rng(1).dirichlet(np.ones(6))
    expected = np.zeros(6)
    for labels in product(range(2), repeat=num_annotations):
        counts = np.bincount(labels, minlength=2)
        errors = squared_error_estimate(probs[None], variant.annotations(counts[None]))[0]
        expected += np.prod(truth[list(labels)]) * errors
    sub_truth = (truth[:, None] * split).reshape(-1)
    np.testing.assert_allclose(expected, (probs - sub_truth) ** 2, atol=1e-12)


def test_known_sub_classes_add_nothing_to_the_divergence() -> None:
    variant = Variant(extra_classes=True)
    split = variant.subclass_probs(num_original=2)
    assert split is not None
    probs, counts = np.array([[0.6, 0.4]]), np.array([[3, 1]])
    spread = (probs[:, :, None] * split).reshape(1, 6)
    found = annotator_kl(spread, variant.annotations(counts))
    assert found == pytest.approx(annotator_kl(probs, counts))


@pytest.mark.statistical
def test_floor_with_sub_classes_is_what_calibrated_predictors_measure() -> None:
    """40 worlds against their floors; false-alarm rate below 1e-4 (4 standard errors)."""
    variant, rng = Variant(extra_classes=True), np.random.default_rng(0)
    split = variant.subclass_probs()
    assert split is not None
    differences, floors = [], []
    for _ in range(40):
        whole, ratio = rng.dirichlet(np.ones(10), size=1_000), rng.uniform(0.05, 0.5, size=1_000)
        truths = DirichletTruths(whole, ratio)
        prediction = Prediction(
            (whole[:, :, None] * split).reshape(1_000, 30),
            (truths.variance[:, :, None] * split**2).reshape(1_000, 30),
        )
        counts = rng.multinomial(20, truths.draw(rng))
        measured = second_order_ece(prediction, variant.annotations(counts))
        floor = calibration_floor(prediction, 20, variant, rng=rng, num_simulations=4)
        differences.append(measured - floor.mean)
        floors.append(floor.mean)
    standard_error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 4 * standard_error
    assert standard_error < 0.03 * np.mean(floors)  # so that the test has power
