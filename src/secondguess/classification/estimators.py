"""`PairClassifier`: pair models with the conventions of scikit-learn.

The estimator puts the parts of this layer together: pair data, a head on a backbone, the training
loop with early stopping on held-out pairs, and second-order recalibration. Labels, probabilities
and guaranteed intervals follow from its moments in `predictions.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from torch import Tensor, nn

from secondguess._arrays import FloatArray
from secondguess.classification.distributions import predicted_distribution
from secondguess.classification.fitting import LossName, Rows, hold_out, train_pair_model
from secondguess.classification.heads import HeadName, PairModel, build_head, num_features_of
from secondguess.classification.joint import PairJoint
from secondguess.classification.labels import Targets
from secondguess.classification.losses import EIGENVALUE_WEIGHT
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import joint_of, mean_loss, read_joints
from secondguess.classification.predictions import PairPredictions
from secondguess.classification.recalibration import PairRecalibration, fit_recalibration
from secondguess.classification.saving import MODEL, SavedClassifier
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.theory.distribution import PredictedDistribution
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingConfig


class PairClassifier(PairPredictions, ClassifierMixin, BaseEstimator):
    """A classifier that says what it does not know, from two or more annotators per item.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> annotators = rng.normal(size=(300, 3))  # three people see the item, and add their own view
    >>> y = np.where(X[:, :1] + 0.5 * annotators > 0, "yes", "no")
    >>> model = PairClassifier(targets="responses", num_steps=100).fit(X, y)
    >>> model.predict([[-2, 0], [2, 0]])
    array(['no', 'yes'], dtype='<U3')
    >>> model.predict_variance(X).shape, bool((model.predict_confidence(X) <= 1).all())
    ((300, 2), True)

    X is `(n, num_features)`, or anything that a backbone of your own takes. y is `(n, k)` responses
    or `(n, num_classes)` counts, as `targets` says, or a `PairData`.

    For out-of-fold probabilities use `cross_predict`: scikit-learn's `cross_val_predict` mixes up
    the classes of a two-dimensional y.

    Args:
        targets: `responses` or `counts`. There is no default that would guess it.
        head: `mixture`, `symmetric`, or `binary` (mean and correlation; with more than two classes
            one such pair per class, which gives no table).
        num_components: R of the mixture head; see `MixturePairHead` for the default.
        backbone: a module from inputs to features `(n, d)`, which is copied before it is trained;
            by default the residual MLP of appendix F.1, on standardised features.
        width: width of the default backbone; the paper's is 128.
        classes: the labels there are, in order, where not all of them occur in y.
        loss: `all_pairs` uses all annotations of a row at once, `pair` a random pair per epoch,
            `snapshot` the likelihood of all annotations (mixture head).
        eigenvalue_weight: weight of the negative-eigenvalue penalty (symmetric head).
        recalibrate: whether to fit a `PairRecalibration` on the validation rows.
        validation_fraction: share of the rows held out for early stopping and recalibration; 0 for
            none. With fewer than 20 such rows none are held out.
        patience: how many validations without improvement end the training.
        validate_every: steps between validations.
        num_steps: optimizer steps at most.
        batch_size: rows of a step.
        learning_rate: highest learning rate of AdamW.
        weight_decay: decoupled weight decay of AdamW.
        random_state: seed of initial weights, batches and the held-out rows.
        checkpoint_dir: where the training keeps its checkpoints; fitted again after a kill with the
            same data and settings, it resumes.
        progress: whether to show a progress bar.

    Attributes:
        classes_: `(K,)` labels.
        model_: the trained `PairModel`.
        recalibration_: the fitted `PairRecalibration`; the identity where there was none.
        history_: losses of the training.
        inflations_, intervals_, calibration_conditions_: see `PairPredictions`.
    """

    targets: Targets | None
    head: HeadName
    loss: LossName
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    model_: PairModel
    recalibration_: PairRecalibration

    def __init__(
        self,
        targets: Targets | None = None,
        *,
        head: HeadName = "mixture",
        num_components: int | None = None,
        backbone: nn.Module | None = None,
        width: int = 128,
        classes: Sequence[Any] | None = None,
        loss: LossName = "all_pairs",
        eigenvalue_weight: float = EIGENVALUE_WEIGHT,
        recalibrate: bool = True,
        validation_fraction: float = 0.1,
        patience: int = 10,
        validate_every: int = 50,
        num_steps: int = 2000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        random_state: int | np.random.RandomState | None = 0,
        checkpoint_dir: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.targets = targets
        self.head = head
        self.num_components = num_components
        self.backbone = backbone
        self.width = width
        self.classes = classes
        self.loss = loss
        self.eigenvalue_weight = eigenvalue_weight
        self.recalibrate = recalibrate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.validate_every = validate_every
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.progress = progress

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | PairData,
        *,
        groups: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike | PairData] | None = None,
    ) -> Self:
        """Train on pairs.

        Args:
            X: inputs, one row per item.
            y: their responses or counts.
            groups: `(n,)` labels; near-duplicates share one, and are held out together.
            validation: inputs and targets to use for validation, instead of rows of X.
        """
        if y is None:
            raise ValueError("PairClassifier requires y to be passed, but the target y is None.")
        data = PairData.from_targets(y, self.targets, classes=self.classes)
        rows = Rows(self._inputs(X, fitting=True), data)
        check_consistent_length(rows.inputs, rows.data)
        self.classes_ = rows.data.classes
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_.tolist()}; expected two or more.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held_out = None if validation is None else self._rows(*validation)
        if held_out is None:
            rows, held_out = hold_out(rows, self.validation_fraction, seed=seed, groups=groups)
        generator = torch.Generator().manual_seed(seed)
        own = self.backbone
        num_features = None if own is None else num_features_of(own, rows.inputs[:2])
        self.model_ = self._network(num_features, generator)
        self.history_ = train_pair_model(
            self.model_,
            rows,
            config=TrainingConfig(
                num_steps=self.num_steps,
                learning_rate=self.learning_rate,
                warmup_steps=min(100, self.num_steps // 10),
                weight_decay=self.weight_decay,
                clip_norm=1.0,
                validate_every=self.validate_every,
                patience=self.patience,
                seed=seed,
            ),
            batch_size=self.batch_size,
            validation=held_out,
            loss=self.loss,
            eigenvalue_weight=self.eigenvalue_weight,
            checkpoint_dir=self.checkpoint_dir,
            progress="pair classifier" if self.progress else None,
        )
        if self.backbone is None:
            # In float64 a prediction does not depend on the rows that are predicted with it.
            self.model_.cpu().double()
        self.recalibration_ = PairRecalibration()
        if self.recalibrate and held_out is not None:
            joint = joint_of(self.model_, held_out.inputs)
            self.recalibration_ = fit_recalibration(
                joint, held_out.data, snapshot=self.loss == "snapshot"
            )
        # Intervals of an earlier fit would speak of another model.
        for name in ("inflations_", "intervals_", "calibration_conditions_"):
            self.__dict__.pop(name, None)
        return self

    def predict_confidence(self, X: ArrayLike) -> FloatArray:
        """The epistemic confidence of each class, `(n, K)`."""
        check_is_fitted(self)
        return read_joints(
            self.model_,
            self._inputs(X),
            lambda joint: self._recalibrated(joint).scores().epistemic_confidence,
        )

    def predict_moments(self, X: ArrayLike) -> Prediction:
        """Probabilities and variances as the record that metrics and figures take."""
        check_is_fitted(self)

        def moments(joint: PairJoint) -> FloatArray:
            prediction = self._recalibrated(joint).prediction()
            return np.stack([prediction.probs, prediction.variance], axis=1)

        both = read_joints(self.model_, self._inputs(X), moments)
        return Prediction(both[:, 0], both[:, 1])

    def predict_joint(self, X: ArrayLike) -> PairJoint:
        """The joints of all rows: tabular, but for a `binary` head with more than two classes."""
        check_is_fitted(self)
        return self._recalibrated(joint_of(self.model_, self._inputs(X)))

    def predict_distribution(self, X: ArrayLike) -> PredictedDistribution:
        """Candidates for p(.|x) and their weights (`mixture` head, best with loss `snapshot`)."""
        return predicted_distribution(self.predict_joint(X))

    def score(  # pyright: ignore[reportIncompatibleMethodOverride] (no sample weights)
        self, X: ArrayLike, y: ArrayLike | PairData
    ) -> float:
        """Mean log-likelihood of the pairs of responses, over all pairs of each row.

        With a `binary` head and more than two classes it is a sum over classes, which cannot be
        compared with the other heads.
        """
        check_is_fitted(self)
        rows = self._rows(X, y)
        inputs, data = rows.take(np.flatnonzero(rows.data.has_pair))
        return -mean_loss(self.model_, inputs, data, self._recalibrated)

    def save(self, directory: str | Path) -> None:
        """Write the fitted estimator as safetensors and JSON; see `load`."""
        check_is_fitted(self)
        settings = self.get_params(deep=False)
        for name in ("backbone", "classes", "random_state", "checkpoint_dir"):
            settings.pop(name)
        tensors = {MODEL + name: value for name, value in self.model_.state_dict().items()}
        if self.backbone is None:
            tensors["feature_mean"] = torch.from_numpy(self.feature_mean_)
            tensors["feature_scale"] = torch.from_numpy(self.feature_scale_)
        SavedClassifier(
            settings=settings,
            own_backbone=self.backbone is not None,
            classes=self.classes_,
            num_inputs=self.n_features_in_,
            num_features=self.model_.head.in_features,
            feature_names=getattr(self, "feature_names_in_", np.array([])).tolist(),
            recalibration=self.recalibration_,
            inflations=getattr(self, "inflations_", None),
            intervals=getattr(self, "intervals_", None),
            conditions=getattr(self, "calibration_conditions_", ()),
            tensors=tensors,
        ).write(Path(directory))

    @classmethod
    def load(cls, directory: str | Path, *, backbone: nn.Module | None = None) -> Self:
        """Read what `save` wrote.

        Args:
            directory: the directory that was saved to.
            backbone: a module of the same architecture, where the estimator had one of its own.
        """
        saved = SavedClassifier.read(Path(directory), own_backbone=backbone is not None)
        classifier = cls(**saved.settings, backbone=backbone)
        classifier.classes_ = saved.classes
        classifier.n_features_in_ = saved.num_inputs
        if saved.feature_names:
            classifier.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        model = classifier._network(saved.num_features)
        if backbone is None:
            model.double()
            classifier.feature_mean_ = saved.tensors["feature_mean"].numpy()
            classifier.feature_scale_ = saved.tensors["feature_scale"].numpy()
        saved.fill(model)
        classifier.model_ = model.eval()
        classifier.recalibration_ = saved.recalibration
        vars(classifier).update(saved.calibration())
        return classifier

    def _rows(self, X: ArrayLike, y: ArrayLike | PairData) -> Rows:
        """Rows for a fitted estimator, whose classes are known."""
        rows = Rows(self._inputs(X), self.read_targets(y))
        check_consistent_length(rows.inputs, rows.data)
        return rows

    def _inputs(self, X: Any, *, fitting: bool = False) -> Tensor:
        """X as a tensor, standardised for the default backbone; in fitting, X is remembered."""
        default = self.backbone is None
        kind = {"dtype": np.float64 if default else "numeric", "allow_nd": not default}
        array = np.asarray(validate_data(self, X, reset=fitting, **kind))
        if not default:
            return torch.from_numpy(
                array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
            )
        if fitting:
            spread = array.std(axis=0)
            self.feature_mean_ = array.mean(axis=0)
            self.feature_scale_ = np.where(spread > 0, spread, 1.0)
        return torch.from_numpy((array - self.feature_mean_) / self.feature_scale_)

    def _network(
        self, num_features: int | None, generator: torch.Generator | None = None
    ) -> PairModel:
        """An untrained network: the backbone, which gives so many features, and its head."""
        if self.backbone is not None and num_features is not None:
            backbone = copy.deepcopy(self.backbone)
        else:
            # The residual MLP of appendix F.1: hidden layers four times as wide as its stream.
            backbone = ResidualMLP(
                self.n_features_in_,
                width=self.width,
                hidden_width=4 * self.width,
                generator=generator,
            )
            num_features = backbone.num_features
        head = build_head(
            self.head, num_features, len(self.classes_), self.num_components, generator=generator
        )
        return PairModel(backbone, head)

    def _recalibrated(self, joint: PairJoint) -> PairJoint:
        return self.recalibration_(joint.double())
