"""`PairClassifier`: pair models with the conventions of scikit-learn.

The estimator puts the parts of this layer together: a logistic regression on the shares of the
annotators, with a head that learns from pairs how far it is off and a network where it helps
(`stacked_fitting.py`), or a network trained end to end (`network_fitting.py`). Then the variance is
recalibrated. What follows from joints is in `joint_predictions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_random_state,
)
from torch import nn

from secondguess._arrays import FloatArray
from secondguess.classification.defaults import (
    NetworkSettings,
    network_alone,
    network_beside_regression,
)
from secondguess.classification.distributions import predicted_distribution
from secondguess.classification.fit_warnings import warn_of_recalibration
from secondguess.classification.fitting import FitSettings, LossName, Rows, check_loss
from secondguess.classification.heads import HeadName, PairModel
from secondguess.classification.inputs import (
    Inputs,
    Standardisation,
    num_rows_of,
    validated,
)
from secondguess.classification.joint import PairJoint
from secondguess.classification.joint_predictions import JointPredictions
from secondguess.classification.labels import Targets
from secondguess.classification.losses import EIGENVALUE_WEIGHT
from secondguess.classification.network_fitting import fit_network
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import joint_of, joints_of
from secondguess.classification.saved_estimators import restore, saved_classifier
from secondguess.classification.saving import SavedClassifier
from secondguess.classification.stacked_fitting import fit_stacked
from secondguess.classification.variance_map import VarianceMap, fit_variance_map
from secondguess.classification.weighting import (
    checked_groups,
    decision_weights,
    item_weights,
    prepared_rows,
)
from secondguess.theory.distribution import PredictedDistribution
from secondguess.training.loop import TrainingHistory

BackboneName = Literal["auto", "linear", "mlp"]


class PairClassifier(JointPredictions, ClassifierMixin, BaseEstimator):
    """A classifier that says what it does not know, from two or more annotators per item.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> annotators = rng.normal(size=(300, 3))  # three people see the item, and add their own view
    >>> y = np.where(X[:, :1] + 0.5 * annotators > 0, "yes", "no")
    >>> model = PairClassifier(targets="responses", backbone="linear").fit(X, y)
    >>> model.predict([[-2, 0], [2, 0]])
    array(['no', 'yes'], dtype='<U3')
    >>> model.predict_variance(X).shape, bool((model.predict_confidence(X) <= 1).all())
    ((300, 2), True)

    X is `(n, num_features)`, or what a backbone of your own takes: an array `(n, ...)` (float32, or
    int64 where it holds whole numbers; uint8 are pixels, scaled to [0, 1]), a tensor as it is, or
    a mapping of such, as tokenizers give it, which are passed by name. y is `(n, k)` responses
    or `(n, num_classes)` counts, as `targets` says, or a `PairData`.

    For out-of-fold probabilities use `cross_predict`: scikit-learn's `cross_val_predict` mixes up
    the classes of a two-dimensional y.

    Args:
        targets: `responses` or `counts`. There is no default that would guess it.
        head: `correlation`, `mixture`, `symmetric`, or `binary` (mean and correlation; with more
            than two classes one such pair per class, which gives no table). By default
            `correlation`, or `mixture` where that makes held-out pairs likelier (with 2,000 rows or
            more, and up to ten classes); `mixture` where the backbone is a network alone.
        num_components: R of the mixture head; see `MixturePairHead` for the default.
        backbone: `linear` is a logistic regression with a head that learns from pairs how far it is
            off: fast, and hard to beat where rows are few or features are those of a good encoder.
            `auto` adds a small network to that, where held-out pairs become likelier by it. `mlp`
            is the residual MLP of appendix F.1 alone. All see standardised features. Or a module of
            your own from inputs to features `(n, d)`, which is copied before it is trained.
        width: width of the network; the paper's, and the default of `mlp`, is 128. With `auto` it
            follows the number of rows, as do the settings of the training (`defaults.py`).
        classes: the labels there are, in order, where not all of them occur in y.
        class_weight: what `predict` multiplies the probability of each label by: a mapping, or
            `balanced` for the inverse of how often it was given. The fit takes no notice of it, so
            that probabilities and variances stay calibrated (see `decision_weights`).
        loss: `all_pairs` uses all annotations of a row at once, `pair` a random pair per epoch,
            `snapshot` the likelihood of all annotations (mixture head).
        eigenvalue_weight: weight of the negative-eigenvalue penalty (symmetric head).
        recalibrate: whether to recalibrate the variance on rows that were not trained on
            (`VarianceMap`; where the backbone is a network alone, `PairRecalibration` before it).
            `likelihood` leaves the map out.
        validation_fraction: share of the rows that a network alone holds out for early stopping and
            recalibration; 0 for none. With fewer than 20 such rows none are held out. `auto` and
            `linear` set no rows aside up to 10,000, and a tenth beyond.
        patience: how many validations without improvement end the training.
        validate_every: steps between validations.
        num_steps: optimizer steps at most.
        batch_size: rows of a step.
        learning_rate: highest learning rate of AdamW.
        weight_decay: decoupled weight decay of AdamW.
        random_state: seed of initial weights, batches and the held-out rows.
        device: where networks are trained, and your own predicts, such as `cpu` or `cuda:1`; by
            default a GPU where there is one. The others predict on the CPU.
        checkpoint_dir: where the training keeps its checkpoints; fitted again after a kill with the
            same data and settings, it resumes.
        progress: whether to show a progress bar.

    Attributes:
        classes_: `(K,)` labels.
        model_: the trained `PairModel`.
        recalibration_: the fitted `PairRecalibration`; the identity where there was none.
        variance_map_: the fitted `VarianceMap`; the identity where there was none.
        history_: losses of the training; empty where no network was trained.
        inflations_, intervals_, calibration_conditions_: see `PairPredictions`.
    """

    targets: Targets | None
    head: HeadName | None
    loss: LossName
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    model_: PairModel
    standardisation_: Standardisation
    history_: TrainingHistory

    def __init__(
        self,
        targets: Targets | None = None,
        *,
        head: HeadName | None = None,
        num_components: int | None = None,
        backbone: nn.Module | BackboneName = "auto",
        width: int | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        loss: LossName = "all_pairs",
        eigenvalue_weight: float = EIGENVALUE_WEIGHT,
        recalibrate: bool | Literal["likelihood"] = True,
        validation_fraction: float = 0.1,
        patience: int | None = None,
        validate_every: int | None = None,
        num_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
        checkpoint_dir: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.targets = targets
        self.head = head
        self.num_components = num_components
        self.backbone = backbone
        self.width = width
        self.classes = classes
        self.class_weight = class_weight
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
        self.device = device
        self.checkpoint_dir = checkpoint_dir
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: ArrayLike | PairData,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        validation: tuple[Any, ArrayLike | PairData] | None = None,
    ) -> Self:
        """Train on pairs.

        Args:
            X: inputs, one row per item.
            y: their responses or counts.
            sample_weight: `(n,)`, how often each item counts: 2 is as good as the item twice, 0 as
                if it were not there. They are counts, not shares of a whole.
            groups: `(n,)` labels; near-duplicates share one, and are held out together.
            validation: inputs and targets to use for validation, instead of rows of X.
        """
        check_loss(self.loss)
        self._check_backbone()
        data = self._targets_to_fit(y, self.classes)
        weights = item_weights(data, sample_weight)
        self.class_weight_ = decision_weights(self.class_weight, data, weights)
        rows = self._rows_to_fit(X, data, groups, weights)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held_out = None if validation is None else self._rows(*validation)
        settings = self._settings(len(rows.data), seed)
        if self.backbone in ("auto", "linear"):
            fitted = fit_stacked(rows, settings, validation=held_out)
        else:
            own = self.backbone if isinstance(self.backbone, nn.Module) else None
            fitted = fit_network(rows, settings, backbone=own, validation=held_out)
        self.model_, self.history_ = fitted.model, fitted.history
        self.recalibration_ = fitted.recalibration
        if not isinstance(self.backbone, nn.Module):
            # In float64 a prediction does not depend on the rows that are predicted with it.
            self.model_.cpu().double()
        self.variance_map_ = VarianceMap()
        if fitted.held_out is not None and fitted.held_out_data is not None:
            found, data = fitted.held_out, fitted.held_out_data
            if self.recalibrate is True:
                rng = np.random.default_rng(seed)
                self.variance_map_ = fit_variance_map(
                    found,
                    data,
                    rng=rng,
                    groups=fitted.held_out_groups,
                    weights=fitted.held_out_weights,
                )
            warn_of_recalibration(
                found, data, self.variance_map_, fitted.raw_variance, fitted.held_out_weights
            )
        self._forget_calibration()
        return self

    def joints(self, X: Any, values_per_row: int = 0) -> Iterator[tuple[slice, PairJoint]]:
        """The joints of all rows in float64, some rows at a time, each with the rows it is of."""
        check_is_fitted(self)
        for rows, joint in joints_of(self.model_, self._inputs(X), values_per_row=values_per_row):
            yield rows, self._recalibrated(joint)

    def predict_joint(self, X: Any) -> PairJoint:
        """The joints of all rows: tabular, but for a `binary` head with more than two classes."""
        check_is_fitted(self)
        return self._recalibrated(joint_of(self.model_, self._inputs(X)))

    def predict_distribution(self, X: Any) -> PredictedDistribution:
        """Candidates for p(.|x) and their weights (`mixture` head, best with loss `snapshot`)."""
        return predicted_distribution(self.predict_joint(X))

    def save(self, directory: str | Path) -> None:
        """Write the fitted estimator as safetensors and JSON; see `load`."""
        check_is_fitted(self)
        saved_classifier(self).write(Path(directory))

    @classmethod
    def load(
        cls,
        directory: str | Path,
        *,
        backbone: nn.Module | None = None,
        device: str | None = None,
    ) -> Self:
        """Read what `save` wrote.

        Args:
            directory: the directory that was saved to.
            backbone: a module of the same architecture, where the estimator had one of its own.
            device: where that module predicts; by default on the CPU.
        """
        saved = SavedClassifier.read(Path(directory), own_backbone=backbone is not None)
        settings: dict[str, Any] = {**saved.settings, "device": device}
        if backbone is not None:
            settings["backbone"] = backbone
        classifier = cls(**settings)
        restore(classifier, saved, classifier._network())
        return classifier

    def _rows_to_fit(
        self,
        X: Any,
        data: PairData,
        groups: ArrayLike | None,
        weights: FloatArray | None,
    ) -> Rows:
        """Distinct rows, standardised; for a module of one's own all rows, as they are."""
        inputs = validated(self, X, own=isinstance(self.backbone, nn.Module), fitting=True)
        check_consistent_length(range(num_rows_of(inputs)), data)
        if not isinstance(self.backbone, nn.Module):
            array = np.asarray(inputs)
            rows, self.standardisation_ = prepared_rows(array, data, groups=groups, weights=weights)
            return rows
        rows = Rows(inputs, data, checked_groups(groups, len(data)), weights)
        return rows if weights is None else rows.take(np.flatnonzero(weights > 0))

    def _rows(self, X: Any, y: ArrayLike | PairData) -> Rows:
        """Rows for a fitted estimator, whose classes are known."""
        rows = Rows(self._inputs(X), self.read_targets(y))
        check_consistent_length(range(num_rows_of(rows.inputs)), rows.data)
        return rows

    def _inputs(self, X: Any) -> Inputs:
        """X as a tensor, standardised but for a backbone of one's own."""
        own = isinstance(self.backbone, nn.Module)
        inputs = validated(self, X, own=own)
        if own:
            return inputs
        return torch.from_numpy(self.standardisation_(np.asarray(inputs)))

    def _check_backbone(self) -> None:
        if not isinstance(self.backbone, nn.Module) and self.backbone not in get_args(BackboneName):
            raise ValueError(
                f"backbone is {self.backbone!r}; expected 'auto', 'linear', 'mlp' or a module."
            )

    def _settings(self, num_rows: int, seed: int) -> FitSettings:
        return FitSettings(
            head=self.head,
            num_components=self.num_components,
            loss=self.loss,
            eigenvalue_weight=self.eigenvalue_weight,
            network=None if self.backbone == "linear" else self._network(num_rows),
            recalibrate=bool(self.recalibrate),
            validation_fraction=self.validation_fraction,
            checkpoint_dir=self.checkpoint_dir,
            device=self.device,
            progress=self.progress,
            seed=seed,
        )

    def _network(self, num_rows: int = 0) -> NetworkSettings:
        """The default network for so many rows, but for what the user stated."""
        beside = self.backbone == "auto"
        default = network_beside_regression(num_rows) if beside else network_alone()
        stated = {f.name: getattr(self, f.name, None) for f in fields(default)}
        return replace(default, **{k: v for k, v in stated.items() if v is not None})
