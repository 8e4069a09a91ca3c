"""The paper's own numbers on CIFAR-10H, to stand beside ours: tables 1, 2, 3 and 4.

Columns: ECE-2, mean variance, grouping error, ECE-1, accuracy in per cent, KL. Everything but the
last two is summed over classes. Where an appendix gives more digits, they are taken from there.
"""

from __future__ import annotations

from dataclasses import replace

from secondguess.experiments.cifar10h.fitting import Stage
from secondguess.experiments.cifar10h.protocol import Recipe

COLUMNS = (
    "second_order_ece",
    "mean_variance",
    "grouping_error",
    "first_order_ece",
    "accuracy",
    "kl",
)

Row = tuple[float | None, ...]

MEANS: dict[str, dict[str, Row]] = {
    "original": {
        "naive": (0.076, 0.142, 0.065, 0.017, 93.94, 0.179),
        "ensemble": (0.039, 0.014, 0.053, 0.029, 94.90, 0.152),
        "evidential": (0.377, 0.053, 0.430, 1.038, 88.45, 1.087),
        "sngp": (0.048, 0.005, 0.052, 0.020, 94.89, 0.153),
        "epinet": (0.056, 0.015, 0.071, 0.020, 93.40, 0.189),
        "cheat": (0.018, 0.052, 0.068, 0.029, 93.60, 0.182),
        "cheat-sngp": (0.009, 0.054, 0.052, 0.022, 94.90, 0.149),
    },
    "extra-scrambled": {
        "naive": (0.521, 0.682, 0.161, 0.068, None, 0.706),
        "ensemble": (0.134, 0.014, 0.148, 0.032, None, 0.647),
        "evidential": (0.387, 0.031, 0.418, 0.794, None, 2.356),
        "sngp": (0.112, 0.033, 0.145, 0.057, None, 0.634),
        "epinet": (0.089, 0.087, 0.163, 0.075, None, 0.712),
        "cheat": (0.022, 0.134, 0.154, 0.072, None, 0.672),
        "cheat-sngp": (0.011, 0.153, 0.150, 0.044, None, 0.650),
    },
    "extra-classes": {
        "naive": (0.540, 0.574, 0.034, 0.02, None, 0.18),
        "ensemble": (0.020, 0.007, 0.027, 0.03, None, 0.15),
        "evidential": (0.386, 0.031, 0.417, 1.14, None, 2.34),
        "sngp": (0.017, 0.030, 0.026, 0.03, None, 0.15),
        "epinet": (0.054, 0.083, 0.041, 0.04, None, 0.20),
        "cheat": (0.010, 0.029, 0.037, 0.04, None, 0.19),
        "cheat-sngp": (0.009, 0.032, 0.028, 0.02, None, 0.15),
    },
    "scrambled": {
        "naive": (0.051, 0.354, 0.314, 0.07, None, 0.69),
        "ensemble": (0.261, 0.028, 0.289, 0.04, None, 0.64),
        "evidential": (0.561, 0.068, 0.629, 0.97, None, 1.59),
        "sngp": (0.271, 0.014, 0.285, 0.06, None, 0.63),
        "epinet": (0.271, 0.044, 0.314, 0.08, None, 0.69),
        "cheat": (0.056, 0.252, 0.303, 0.08, None, 0.66),
        "cheat-sngp": (0.029, 0.280, 0.286, 0.05, None, 0.62),
    },
}

DEVIATIONS: dict[str, dict[str, Row]] = {
    "original": {
        "naive": (0.003, 0.001, 0.002, 0.003, 0.17, 0.003),
        "ensemble": (0.000, 0.000, 0.000, 0.002, 0.09, 0.001),
        "evidential": (0.001, 0.000, 0.002, 0.004, 0.23, 0.003),
        "sngp": (0.001, 0.000, 0.001, 0.001, 0.15, 0.001),
        "epinet": (0.002, 0.002, 0.001, 0.002, 0.26, 0.002),
        "cheat": (0.001, 0.000, 0.001, 0.003, 0.18, 0.002),
        "cheat-sngp": (0.002, 0.001, 0.001, 0.002, 0.14, 0.001),
    },
    "extra-scrambled": {
        "naive": (0.002, 0.003, 0.002, 0.004, None, 0.009),
        "ensemble": (0.001, 0.000, 0.001, 0.001, None, 0.003),
        "evidential": (0.000, 0.000, 0.000, 0.009, None, 0.000),
        "sngp": (0.003, 0.003, 0.001, 0.003, None, 0.006),
        "epinet": (0.009, 0.009, 0.003, 0.003, None, 0.010),
        "cheat": (0.001, 0.001, 0.001, 0.005, None, 0.005),
        "cheat-sngp": (0.001, 0.002, 0.001, 0.003, None, 0.006),
    },
}
"""Standard deviations over eight runs; the paper made one run of the other two variants."""

BATCH_SIZE = 512
_PRETRAINING_EPOCH, _FINETUNING_EPOCH = 50_000 // BATCH_SIZE, 5_000 // BATCH_SIZE


def shortened(recipe: Recipe, *, num_epochs: int, batch_size: int) -> Recipe:
    """The same rates for other lengths.

    >>> shortened(RECIPES["naive"], num_epochs=1, batch_size=500).pretraining.num_steps
    100

    Args:
        recipe: whose rates.
        num_epochs: of both stages.
        batch_size: rows of a batch.
    """
    return replace(
        recipe,
        pretraining=replace(recipe.pretraining, num_steps=num_epochs * (50_000 // batch_size)),
        finetuning=replace(recipe.finetuning, num_steps=num_epochs * (5_000 // batch_size)),
    )


def _recipe(pretraining: tuple[float, float, int], finetuning: tuple[float, float, int]) -> Recipe:
    rates = ((*pretraining, _PRETRAINING_EPOCH), (*finetuning, _FINETUNING_EPOCH))
    stages = [
        Stage(num_steps=epochs * steps, learning_rate=rate, weight_decay=decay)
        for rate, decay, epochs, steps in rates
    ]
    return Recipe(pretraining=stages[0], finetuning=stages[1])


RECIPES = {
    "naive": _recipe((3.799e-03, 3.656e-01, 50), (9.071e-05, 2.363e-01, 50)),
    "evidential": _recipe((7.465e-04, 2.950e-01, 200), (1.455e-04, 2.146e-03, 200)),
    "sngp": _recipe((1.221e-03, 4.742e-01, 200), (6.032e-05, 1.457e-01, 100)),
    "epinet": _recipe((1.327e-03, 4.513e-01, 50), (7.345e-05, 2.954e-01, 50)),
    "cheat": _recipe((1.113e-03, 4.835e-01, 50), (4.265e-05, 1.865e-01, 50)),
    "cheat-sngp": _recipe((1.687e-03, 4.411e-01, 200), (4.972e-05, 7.621e-05, 30)),
}
"""The hyper-parameters of appendix F.2.1, the ensemble's being those of the naive network."""
