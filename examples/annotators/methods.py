"""The methods that are compared: pair classifiers, a plain classifier, and an ensemble of them.

All have the same backbone, see the same annotations and stop on the same validation rows. The plain
classifier learns the distribution of single ratings, and gets a temperature of its own.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from secondguess import Prediction
from secondguess.classification.batches import AnnotationBatch, annotation_batches
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.heads import HeadName
from secondguess.classification.pairs import PairData
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.loop import TrainingConfig, train

WIDTH = 64
NUM_STEPS = 400
BATCH_SIZE = 128
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 1.0
VALIDATE_EVERY = 25


def pair_classifier(head: HeadName, *, seed: int) -> PairClassifier:
    """The estimator with the settings of this example."""
    return PairClassifier(
        targets="responses",
        backbone="mlp",
        head=head,
        recalibrate="likelihood",
        width=WIDTH,
        num_steps=NUM_STEPS,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        validate_every=VALIDATE_EVERY,
        random_state=seed,
    )


class PlainClassifier:
    """Softmax over the classes, trained by cross-entropy on all annotations."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(
        self, inputs: np.ndarray, data: PairData, validation: tuple[np.ndarray, PairData]
    ) -> PlainClassifier:
        """Train with early stopping on the validation rows, then fit a temperature to them."""
        spread = inputs.std(axis=0)
        self.mean, self.scale = inputs.mean(axis=0), np.where(spread > 0, spread, 1.0)
        generator = torch.Generator().manual_seed(self.seed)
        self.model = ResidualMLP(
            inputs.shape[1],
            data.num_classes,
            width=WIDTH,
            hidden_width=4 * WIDTH,
            generator=generator,
        )
        held_inputs, held_data = self._tensor(validation[0]), validation[1]
        shares = torch.from_numpy(held_data.counts() / held_data.num_annotations[:, None]).float()
        train(
            self.model,
            loss=_cross_entropy,
            batch_at=annotation_batches(
                self._tensor(inputs), data, batch_size=BATCH_SIZE, seed=self.seed
            ),
            config=TrainingConfig(
                num_steps=NUM_STEPS,
                learning_rate=LEARNING_RATE,
                weight_decay=WEIGHT_DECAY,
                clip_norm=1.0,
                validate_every=VALIDATE_EVERY,
                patience=10,
                seed=self.seed,
            ),
            validate=lambda model: nn.functional.cross_entropy(model(held_inputs), shares).item(),
        )
        with torch.no_grad():
            logits = self.model(held_inputs)
        held_loss = partial(_tempered_loss, logits, shares)
        self.temperature = float(np.exp(minimize_scalar(held_loss, bounds=(-2, 2)).x))
        return self

    @torch.no_grad()
    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """p(y|x), `(n, num_classes)`."""
        logits = self.model(self._tensor(inputs)).double()
        return (logits / self.temperature).softmax(1).numpy()

    def _tensor(self, inputs: np.ndarray) -> Tensor:
        return torch.from_numpy(((inputs - self.mean) / self.scale).astype(np.float32))


def naive_prediction(probs: np.ndarray) -> Prediction:
    """The variance p (1 - p): all disagreement is held for ignorance."""
    return Prediction(probs, probs * (1 - probs))


def ensemble_prediction(members: list[np.ndarray]) -> Prediction:
    """Mean and variance over the members."""
    return Prediction(np.mean(members, axis=0), np.var(members, axis=0))


def _cross_entropy(model: nn.Module, batch: AnnotationBatch) -> Tensor:
    log_probs = model(batch.inputs).log_softmax(1).gather(1, batch.labels)
    weights = batch.multiplicity / batch.multiplicity.sum(1, keepdim=True)
    return -(weights * log_probs).sum(1).mean()


def _tempered_loss(logits: Tensor, shares: Tensor, log_temperature: float) -> float:
    tempered = logits / float(np.exp(log_temperature))
    return nn.functional.cross_entropy(tempered, shares).item()
