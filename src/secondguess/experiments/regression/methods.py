"""The methods of section 4.2 on the one-dimensional worlds, each fitted as appendix F.1 prints.

Every function trains one method in a directory of its own (where it resumes if it was stopped) and
returns a `Predictor`: from inputs `(n,)` to a `Prediction` of shape `(n,)`, the probability of
Y = 1 and its variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from secondguess._arrays import FloatArray
from secondguess.baselines import ensemble, evidential, forest, gaussian_process, naive
from secondguess.classification.batches import PairBatch, pair_batches
from secondguess.classification.heads import BinaryPairHead, PairModel, SymmetricPairHead
from secondguess.classification.losses import pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.experiments.regression.data import FUNCTIONS, sample_pairs
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.theory.records import Prediction
from secondguess.training.ensembles import MemberStack
from secondguess.training.loop import TrainingConfig, TrainingHistory, train

Predictor = Callable[[FloatArray], Prediction]

_CHUNK = 8192
"""Inputs evaluated at once: bounds memory."""


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """What all methods of a run share; the defaults are the published ones.

    >>> RegressionConfig().num_steps
    10000

    Attributes:
        function: which world, `sinusoid` or `piecewise`.
        num_triples: training inputs, two responses each.
        num_steps: steps of every network.
        batch_size: triples of a step.
        learning_rate: after 100 steps of warm-up; cosine decay.
        num_evaluation: inputs of equal probability mass that all metrics are averaged over.
        seed: of data, initial weights and batches.
    """

    function: str = "sinusoid"
    num_triples: int = 25_000
    num_steps: int = 10_000
    batch_size: int = 512
    learning_rate: float = 0.002
    num_evaluation: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise ValueError(
                f"function is {self.function!r}; expected one of {', '.join(FUNCTIONS)}."
            )

    def training(self, **changes: Any) -> TrainingConfig:
        """The optimiser's settings. AdamW's weight decay is not printed: that of optax is used."""
        return TrainingConfig(
            num_steps=self.num_steps,
            learning_rate=self.learning_rate,
            weight_decay=1e-4,
            **changes,
        )


@dataclass(frozen=True, slots=True)
class TrainingTriples:
    """Inputs `(n, 1)` and responses `(n, 2)`."""

    inputs: Tensor
    responses: Tensor

    @classmethod
    def draw(cls, config: RegressionConfig) -> TrainingTriples:
        """The training set of a run."""
        rng = np.random.default_rng([config.seed, 0])
        inputs, responses = sample_pairs(
            config.num_triples, rng, probability=FUNCTIONS[config.function]
        )
        return cls(torch.from_numpy(inputs).float()[:, None], torch.from_numpy(responses))

    def __getitem__(self, rows: slice) -> TrainingTriples:
        return TrainingTriples(self.inputs[rows], self.responses[rows])

    def batches(self, config: RegressionConfig, member: int = 0) -> Callable[[int], PairBatch]:
        """Random triples for each step, other ones for each member of an ensemble."""
        data = PairData.from_responses(self.responses.numpy(), classes=[0, 1])
        seed = _seed(config, 1, member)
        return pair_batches(self.inputs, data, batch_size=config.batch_size, seed=seed)


def fit_cheat_corrected(config: RegressionConfig, directory: Path) -> Predictor:
    """The pair network: mean and correlation of a pair, trained on -log p(y1, y2|x)."""
    triples = TrainingTriples.draw(config)
    model = _pair_network(config)
    _train(model, pair_model_loss, triples.batches(config), config, directory, method={})
    return _pair_predictor(model)


def fit_cheat_corrected_signed(config: RegressionConfig, directory: Path) -> Predictor:
    """The same with any symmetric table as its head, so that variances may come out negative.

    A correlation in [0, 1] can only err upwards where the truth is 0; this one errs both ways.
    """
    triples = TrainingTriples.draw(config)
    model = _pair_network(config, signed=True)
    loss = partial(pair_model_loss, eigenvalue_weight=0.0)
    _train(model, loss, triples.batches(config), config, directory, method={"head": "symmetric"})
    return _pair_predictor(model)


def fit_cheat_corrected_early(
    config: RegressionConfig, directory: Path
) -> tuple[Predictor, TrainingHistory]:
    """The same, on nine tenths of the data, with the weights that the last tenth likes best."""
    triples = TrainingTriples.draw(config)
    num_held_out = config.num_triples // 10
    held_out, rest = triples[:num_held_out], triples[num_held_out:]
    held_out_batch = PairBatch(held_out.inputs, *held_out.responses.unbind(dim=1))
    model = _pair_network(config)
    history = _train(
        model,
        pair_model_loss,
        rest.batches(config),
        config,
        directory,
        method={"num_held_out": num_held_out},
        validate=lambda model: float(pair_model_loss(model, held_out_batch)),
        validate_every=max(1, config.num_steps // 50),
    )
    return _pair_predictor(model), history


def fit_ensemble(
    config: RegressionConfig, directory: Path, *, num_members: int = 8
) -> tuple[Predictor, Predictor]:
    """The ensemble, and its first member as the naive network."""
    triples = TrainingTriples.draw(config)
    members = range(num_members)
    stack = MemberStack([ResidualMLP(1, 1, generator=_generator(config, m)) for m in members])
    sources = [triples.batches(config, member) for member in members]
    batch_at = ensemble.member_batches(sources)
    method = {"num_members": num_members}
    _train(stack, ensemble.loss, batch_at, config, directory, method=method)
    return (
        _predictor(partial(ensemble.predict, stack)),
        _predictor(partial(naive.predict, stack.member(0))),
    )


def fit_evidential(
    config: RegressionConfig,
    directory: Path,
    *,
    final_weight: float = 1.0,
    form: evidential.EvidentialForm = "cross_entropy",
) -> Predictor:
    """The evidential network, its regularisation growing over the first half of the training."""
    triples = TrainingTriples.draw(config)
    model = ResidualMLP(1, 2, generator=_generator(config))
    batch_at = evidential.regularised_batches(
        triples.batches(config), final_weight=final_weight, ramp_steps=config.num_steps // 2
    )
    method = {"final_weight": final_weight, "form": form}
    _train(model, partial(evidential.loss, form=form), batch_at, config, directory, method=method)
    return _predictor(partial(evidential.predict, model))


def fit_gaussian_process(
    config: RegressionConfig, *, length_scale: float = 0.15, num_inducing: int = 512
) -> tuple[Predictor, gaussian_process.FittedGaussianProcess]:
    """The Gaussian-process classifier, at the optimum of its evidence bound."""
    triples = TrainingTriples.draw(config)
    settings = gaussian_process.GaussianProcessConfig(
        length_scale=length_scale, num_inducing=num_inducing
    )
    fitted = gaussian_process.fit(triples.inputs, triples.responses, settings)
    return _predictor(partial(gaussian_process.predict, fitted)), fitted


def fit_forest(
    config: RegressionConfig, *, num_trees: int = 50
) -> tuple[Predictor, forest.FittedForest]:
    """The random forest, its leaves chosen out of bag."""
    triples = TrainingTriples.draw(config)
    settings = forest.ForestConfig(num_trees=num_trees, seed=_seed(config, 3) % 2**31)
    fitted = forest.fit(triples.inputs, triples.responses, settings)
    return _predictor(partial(forest.predict, fitted)), fitted


def _train(
    model: nn.Module,
    loss: Callable[..., Tensor],
    batch_at: Callable[[int], Any],
    config: RegressionConfig,
    directory: Path,
    *,
    method: dict[str, Any],
    validate: Callable[[nn.Module], float] | None = None,
    **changes: Any,
) -> TrainingHistory:
    return train(
        model,
        loss=loss,
        batch_at=batch_at,
        config=config.training(**changes),
        validate=validate,
        checkpoint_dir=directory / "checkpoints",
        checkpoint_every=200,
        identity={
            "data": [config.function, config.num_triples, config.batch_size, config.seed],
            "method": method,
        },
        progress=directory.name,
    )


def _pair_network(config: RegressionConfig, *, signed: bool = False) -> PairModel:
    generator = _generator(config)
    backbone = ResidualMLP(1, generator=generator)
    if signed:
        head = SymmetricPairHead(backbone.num_features, 2, generator=generator)
    else:
        head = BinaryPairHead(backbone.num_features, generator=generator)
    return PairModel(backbone, head)


def _pair_predictor(model: PairModel) -> Predictor:
    return _predictor(lambda inputs: model(inputs).prediction())


def _predictor(predict: Callable[[Tensor], Prediction]) -> Predictor:
    """Predictions of Y = 1 for arrays of inputs, a chunk at a time."""

    def predict_event(inputs: FloatArray) -> Prediction:
        with torch.no_grad():
            chunks = torch.from_numpy(inputs).float()[:, None].split(_CHUNK)
            parts = [predict(chunk) for chunk in chunks]
        return Prediction(
            np.concatenate([part.probs[:, 1] for part in parts]),
            np.concatenate([part.variance[:, 1] for part in parts]),
        )

    return predict_event


def _seed(config: RegressionConfig, *keys: int) -> int:
    return int(np.random.SeedSequence((config.seed, *keys)).generate_state(1)[0])


def _generator(config: RegressionConfig, member: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(_seed(config, 2, member))
