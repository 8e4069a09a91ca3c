"""The presets of the experiment, and its parts: train, score every sentence, sample, decode.

`quick` learns fewer digits; `cpu` is the best small recipe found for fifteen minutes on two
cores; `paper` is everything as published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.experiments.digits_of_pi.claims import pi_claims
from secondguess.experiments.digits_of_pi.decoders import decoder_rates
from secondguess.experiments.digits_of_pi.evaluation import (
    MALFORMED,
    Statements,
    calibration_metrics,
    draw_statements,
    exact_statements,
    sampled_statements,
)
from secondguess.experiments.digits_of_pi.examples import pick_examples
from secondguess.experiments.digits_of_pi.figures import draw_figures
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.outliers import explain_outliers
from secondguess.experiments.digits_of_pi.page import pi_section
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.rankings import (
    GAP_KINDS,
    ranking_gaps,
    rates_at,
)
from secondguess.experiments.digits_of_pi.recalibrated import recalibration_metrics
from secondguess.experiments.runner import Part, PartResult, run_preset
from secondguess.experiments.sequence_models import (
    MODEL_PART,
    fresh_transformer,
    load_model,
    training_config,
)
from secondguess.language.collating import Batch
from secondguess.language.formatting import Layout
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration_fit import RULE
from secondguess.training.loop import train

RESPONSE_RATES = (0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True, kw_only=True)
class PiConfig:
    """The size of a run; the defaults are the published ones (appendices F.3.2 and F.3.3).

    Attributes:
        layout: how pairs are laid out.
        hidden_size: width of the transformer; its MLPs are four times as wide.
        num_layers: its blocks.
        num_heads: attention heads of a block.
        batch_size: pairs per step.
        num_steps: steps of the training.
        learning_rate: the highest one.
        matrix_learning_rate: that of Muon on the weight matrices of the blocks, or None for AdamW.
        warmup_steps: steps until it is reached.
        clip_norm: largest norm of the gradient, or None.
        average_decay: of the moving average of the weights, or None.
        uniform_share: how many questions are about any digit, all alike, in place of the paper's.
        even_draws: whether digits and statements are drawn evenly over the steps, or independently.
        num_offsets: digits 1 to this one are asked about when the model is judged.
        num_samples: sampled statements about each of them; a multiple of 10.
        num_held_out: held-out pairs about each of them, for the recalibration.
        seed: of weights, data and samples.
    """

    layout: Layout = "padded"
    hidden_size: int = 512
    num_layers: int = 6
    num_heads: int = 8
    batch_size: int = 1024
    num_steps: int = 50_000
    learning_rate: float = 2e-5
    matrix_learning_rate: float | None = None
    warmup_steps: int = 1000
    clip_norm: float | None = None
    average_decay: float | None = None
    uniform_share: float = 0.0
    even_draws: bool = False
    num_offsets: int = 3000
    num_samples: int = 120
    num_held_out: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_samples < 10 or self.num_samples % 10:
            raise ValueError(
                f"num_samples is {self.num_samples!r}; expected a multiple of 10, because samples "
                f"are also clustered by tens."
            )


_SMALL = PiConfig(
    layout="positions",
    hidden_size=64,
    num_layers=3,
    num_heads=4,
    learning_rate=4e-3,
    clip_norm=1.0,
)
PRESETS = {
    "quick": replace(
        _SMALL,
        batch_size=128,
        num_steps=2400,
        matrix_learning_rate=0.02,
        warmup_steps=100,
        num_offsets=600,
        num_samples=40,
    ),
    "cpu": replace(
        _SMALL,
        hidden_size=96,
        batch_size=256,
        num_steps=3000,
        warmup_steps=200,
        uniform_share=0.03,
        even_draws=True,
    ),
    "paper": PiConfig(),
}


def run_digits_of_pi(*, preset: str, out: Path, seed: int = 0) -> Path:
    """Run or resume one seed; returns the directory of its results.

    Args:
        preset: `quick`, `cpu` or `paper`.
        out: where results of all experiments are.
        seed: of weights, data and samples.
    """
    return run_preset(
        PRESETS,
        experiment="digits-of-pi",
        preset=preset,
        seed=seed,
        out=out,
        parts=pi_parts,
        claims=pi_claims,
        draw=draw_figures,
        describe=pi_section,
    )


def pi_parts(config: PiConfig) -> list[Part]:
    """The parts of a run, in the order they need each other.

    Each depends on the training, and those that judge it on what they ask it; so the number of
    samples can change without a new training.
    """
    trained = _trained_with(config)
    asked = trained | {"num_offsets": config.num_offsets}
    sampled = asked | {"num_samples": config.num_samples}
    recalibrated = sampled | {"num_held_out": config.num_held_out, "lines": RULE}
    return [
        Part(name=name, config=depends_on, compute=partial(compute, config), effort=effort)
        for name, compute, depends_on, effort in (
            (MODEL_PART, _train, trained, 10.0),
            ("exact", _score_exactly, asked, 2.0),
            ("samples", _sample, sampled, 1.0),
            ("recalibration", _recalibrate, recalibrated, 0.1),
            ("decoders", _decode, asked, 1.0),
            ("examples", _pick_examples, asked, 0.1),
        )
    ]


def fresh_model(config: PiConfig, pairs: PiPairs) -> PairLanguageModel:
    """The untrained model of a run; its weights depend on the seed alone."""
    return fresh_transformer(
        pairs.layout.formatter,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_positions=64,
        seed=config.seed,
    )


def training_batches(config: PiConfig, pairs: PiPairs) -> Callable[[int], Batch]:
    """The function from the step to its batch that a run is trained with."""
    return pairs.source(
        batch_size=config.batch_size,
        seed=config.seed,
        uniform_share=config.uniform_share,
        even_draws=config.even_draws,
    )


def _trained_with(config: PiConfig) -> dict[str, Any]:
    """What the trained model depends on."""
    only_judging = ("num_offsets", "num_samples", "num_held_out")
    return {name: value for name, value in asdict(config).items() if name not in only_judging}


def _train(config: PiConfig, directory: Path, done: object) -> PartResult:
    pairs = PiPairs(config.layout)
    model = fresh_model(config, pairs)
    history = train(
        model.network,
        loss=pairs.layout.loss,
        batch_at=training_batches(config, pairs),
        config=training_config(config, betas=(0.9, 0.99)),
        checkpoint_dir=directory / "checkpoints",
        checkpoint_every=200,
        identity={"experiment": "digits-of-pi", **_trained_with(config)},
        progress="digits of pi",
    )
    model.save(directory / "model")
    known, unknown, unknown_pair = grammar().entropies()
    return PartResult(
        metrics={
            "num_parameters": model.network.num_parameters(),
            "final_loss": float(history.losses[-100:].mean()),
            "entropy_of_a_known_pair": 2 * known,
            "entropy_of_an_unknown_pair": unknown_pair,
            "entropy_of_an_unknown_response": unknown,
        },
        arrays={"losses": history.losses},
    )


def _trained(config: PiConfig, directory: Path) -> tuple[PairLanguageModel, PiPairs]:
    return load_model(directory.parent.parent), PiPairs(config.layout)


def _score_exactly(config: PiConfig, directory: Path, done: object) -> PartResult:
    model, pairs = _trained(config, directory)
    offsets = np.arange(1, config.num_offsets + 1)
    statements = exact_statements(model, pairs, offsets)
    return PartResult(
        metrics=calibration_metrics(statements)
        | {"malformed_share": float(1 - statements.weights.sum(axis=1).mean())},
        arrays=statements.arrays(),
    )


def _sample(config: PiConfig, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
    model, pairs = _trained(config, directory)
    offsets = np.arange(1, config.num_offsets + 1)
    drawn = draw_statements(
        model,
        pairs,
        offsets,
        num_samples=config.num_samples,
        rng=np.random.default_rng([config.seed, 1]),
    )
    statements = sampled_statements(offsets, drawn)
    share_correct = Statements.from_arrays(done["exact"].arrays).share_correct
    rng = np.random.default_rng([config.seed, 2])
    gaps = ranking_gaps(statements)
    gaps |= {f"gap {kind}": statements.scores.confidence_gap(kind) for kind in GAP_KINDS}
    rates = {
        name: dict(
            zip(
                map(str, RESPONSE_RATES),
                rates_at(gap, statements.is_true, RESPONSE_RATES, rng=rng),
                strict=True,
            )
        )
        for name, gap in gaps.items()
    }
    return PartResult(
        metrics=calibration_metrics(statements)
        | {
            "malformed_share": float((statements.columns == MALFORMED).mean()),
            "rate_and_standard_error": rates,
            "outliers": explain_outliers(model, pairs, statements, drawn, share_correct),
        },
        arrays=statements.arrays(),
    )


def _recalibrate(config: PiConfig, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
    return PartResult(
        metrics=recalibration_metrics(
            Statements.from_arrays(done["exact"].arrays),
            Statements.from_arrays(done["samples"].arrays),
            num_pairs=config.num_held_out,
            rng=np.random.default_rng([config.seed, 5]),
        )
    )


def _decode(config: PiConfig, directory: Path, done: object) -> PartResult:
    model, _ = _trained(config, directory)
    offsets = np.arange(1, config.num_offsets + 1)
    return PartResult(metrics=decoder_rates(model, offsets, seed=config.seed))


def _pick_examples(config: PiConfig, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
    model, pairs = _trained(config, directory)
    return PartResult(
        metrics=pick_examples(
            model, pairs, done["exact"], rng=np.random.default_rng([config.seed, 4])
        )
    )
