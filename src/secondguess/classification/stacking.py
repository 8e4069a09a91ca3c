"""A pair model on top of a logistic regression: the parts that the default classifier is made of.

The regression says what linear features can say about p(y|x). The head starts from its log-odds
(`offset`) and learns, from log-odds of regressions that did not see the row, how far they are off:
it corrects the marginal and gives the variance. A network may add what is not linear.

Axes: inputs are `(n, d)`, or `(n, d + K)` with out-of-fold log-odds behind the features: training
gives those, prediction leaves the log-odds to the regression inside. K is the number of classes.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from secondguess.classification.batches import AnnotationBatch, scaled_weights
from secondguess.classification.fitting import Rows
from secondguess.classification.heads import HeadName, PairModel, build_head
from secondguess.classification.logistic import Logistic
from secondguess.classification.losses import pair_model_loss
from secondguess.models.residual_mlp import ResidualMLP

MOST_CLASSES_AS_FEATURES = 20
"""With more classes the head sees three numbers about the log-odds instead of all of them."""

_MOST_HEAD_ROWS, _MOST_HEAD_VALUES = 10_000, 2**22
_HEAD_ITERATIONS = 60
PRIOR_PRECISION = 10.0
"""Of the head's weights on standardised log-odds; 1 overfits a few hundred rows of ten classes."""
_BOUND = 4.0
"""Standardised log-odds are held to this: what the head learned says nothing beyond."""


class StackedBackbone(nn.Module):
    """From inputs to what a head with an offset takes: features, then the regression's log-odds.

    >>> base = Logistic(np.ones((3, 2)), np.zeros(2))
    >>> backbone = StackedBackbone(base, logits=np.random.default_rng(0).normal(size=(9, 2)))
    >>> backbone(torch.zeros(5, 3)).shape, backbone.num_features
    (torch.Size([5, 4]), 2)

    Args:
        base: the regression of all rows; it is not trained any more.
        logits: `(n, K)` out-of-fold log-odds, which say how to standardise them.
        weights: `(n,)`, of those rows; equal by default.
        body: a network from features and standardised log-odds to further features; None for none.
    """

    def __init__(
        self,
        base: Logistic,
        logits: np.ndarray,
        weights: np.ndarray | None = None,
        body: ResidualMLP | None = None,
    ) -> None:
        super().__init__()
        self.num_inputs, self.num_classes = base.weight.shape
        self.register_buffer("weight", torch.from_numpy(base.weight.copy()).float())
        self.register_buffer("bias", torch.from_numpy(base.bias.copy()).float())
        described = _description(torch.from_numpy(logits)).numpy()
        mean = np.average(described, axis=0, weights=weights)
        spread = np.sqrt(np.average(np.square(described - mean), axis=0, weights=weights))
        scale = np.where(spread > 1e-6, spread, 1.0)
        self.register_buffer("mean", torch.from_numpy(mean).float())
        self.register_buffer("scale", torch.from_numpy(scale).float())
        self.body = body

    @property
    def num_features(self) -> int:
        """Features before the log-odds."""
        own = len(self.get_buffer("mean"))
        return own if self.body is None else own + self.body.num_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs `(n, d)` or `(n, d + K)` to `(n, num_features + K)`."""
        features, logits = inputs[:, : self.num_inputs], inputs[:, self.num_inputs :]
        if logits.shape[1] == 0:
            logits = features @ self.get_buffer("weight") + self.get_buffer("bias")
        described = (_description(logits) - self.get_buffer("mean")) / self.get_buffer("scale")
        described = described.clamp(-_BOUND, _BOUND)
        parts = [described]
        if self.body is not None:
            parts.append(self.body(torch.cat([features, described], dim=1)))
        return torch.cat([*parts, logits], dim=1)


def _description(logits: Tensor) -> Tensor:
    """Log-probabilities less their mean; for many classes their entropy and two largest."""
    log_probs = logits.log_softmax(-1)
    if logits.shape[1] <= MOST_CLASSES_AS_FEATURES:
        return log_probs - log_probs.mean(-1, keepdim=True)
    entropy = -(log_probs.exp() * log_probs).sum(-1, keepdim=True)
    return torch.cat([log_probs.topk(2, dim=-1).values, entropy], dim=-1)


def linear_model(
    base: Logistic,
    logits: np.ndarray,
    head: HeadName,
    num_components: int | None = None,
    weights: np.ndarray | None = None,
) -> PairModel:
    """The regression with a head on its log-odds, which `fit_head` is to fit.

    >>> base = Logistic(np.ones((3, 2)), np.zeros(2))
    >>> model = linear_model(base, np.zeros((9, 2)), "mixture")
    >>> model(torch.zeros(5, 3)).marginal.shape
    torch.Size([5, 2])
    """
    backbone = StackedBackbone(base, logits, weights)
    outputs = build_head(
        head, backbone.num_features, backbone.num_classes, num_components, offset=True
    )
    with torch.no_grad():
        for layer in outputs.children():
            if isinstance(layer, nn.Linear):
                layer.weight.zero_()
    return PairModel(backbone, outputs)


def with_body(model: PairModel, body: ResidualMLP) -> PairModel:
    """A copy with a network beside the log-odds, which says the same until it is trained.

    >>> base = Logistic(np.ones((3, 2)), np.zeros(2))
    >>> linear = linear_model(base, np.zeros((9, 2)), "binary")
    >>> grown = with_body(linear, ResidualMLP(5, width=4, hidden_width=8))
    >>> inputs = torch.randn(7, 3)
    >>> grown(inputs).marginal.allclose(linear(inputs).marginal)
    True
    """
    model = copy.deepcopy(model)
    assert isinstance(model.backbone, StackedBackbone)
    model.backbone.body = body
    for name, layer in model.head.named_children():
        if isinstance(layer, nn.Linear):
            new = layer.weight.new_zeros(len(layer.weight), body.num_features)
            layer.weight = nn.Parameter(torch.cat([layer.weight.detach(), new], dim=1))
            layer.in_features = layer.weight.shape[1]
            setattr(model.head, name, layer)
    model.head.in_features = model.backbone.num_features
    return model


def empty_stacked_model(
    num_inputs: int,
    num_classes: int,
    head: HeadName,
    num_components: int | None,
    network: tuple[int, int] | None,
) -> PairModel:
    """A model of the right shapes, to be filled with saved weights.

    >>> empty_stacked_model(3, 2, "mixture", None, (4, 1))(torch.zeros(5, 3)).marginal.shape
    torch.Size([5, 2])

    Args:
        num_inputs: d.
        num_classes: K.
        head: name of the head.
        num_components: of a mixture head.
        network: width and number of blocks of the network; None for none.
    """
    base = Logistic(np.zeros((num_inputs, num_classes)), np.zeros(num_classes))
    model = linear_model(base, np.zeros((1, num_classes)), head, num_components)
    if network is None:
        return model
    width, num_blocks = network
    assert isinstance(model.backbone, StackedBackbone)
    body = ResidualMLP(
        num_inputs + model.backbone.num_features,
        num_blocks=num_blocks,
        width=width,
        hidden_width=4 * width,
    )
    return with_body(model, body)


def network_size(model: PairModel) -> tuple[int, int] | None:
    """Width and blocks of the network beside a regression; None where there is none.

    >>> network_size(empty_stacked_model(3, 2, "mixture", None, (4, 1)))
    (4, 1)
    """
    body = getattr(model.backbone, "body", None)
    return (body.num_features // 4, len(body.blocks)) if isinstance(body, ResidualMLP) else None


def fit_head(
    model: PairModel, rows: Rows, *, eigenvalue_weight: float, snapshot: bool, seed: int
) -> None:
    """Fit the head of a `linear_model` in place, by the likelihood of rows with their log-odds.

    A few dozen weights under a Gaussian prior: quasi-Newton steps on all rows (or
    some thousand of them) find the optimum in a second, without a learning rate or a stopping rule.

    Args:
        model: what `linear_model` made.
        rows: inputs `(n, d + K)` with out-of-fold log-odds, and their responses.
        eigenvalue_weight: as in `pair_model_loss`.
        snapshot: as in `pair_model_loss`.
        seed: chooses the rows, where there are more than needed.
    """
    places = rows.data.labels.shape[1] ** 2 * getattr(model.head, "num_components", 1)
    most = min(_MOST_HEAD_ROWS, max(500, _MOST_HEAD_VALUES // places))
    if len(rows.data) > most:
        chosen = np.random.default_rng(seed).choice(len(rows.data), most, replace=False)
        rows = rows.take(np.sort(chosen))
    model.double()
    with torch.no_grad():
        features = model.backbone(rows.inputs.double())
    batch = AnnotationBatch(
        features,
        torch.from_numpy(rows.data.labels),
        torch.from_numpy(rows.data.multiplicity),
        scaled_weights(rows.weights),
    )
    total = rows.total_weight
    weights = [layer.weight for layer in model.head.children() if isinstance(layer, nn.Linear)]
    parameters = list(model.head.parameters())

    def loss_and_slope(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nn.utils.vector_to_parameters(torch.from_numpy(flat), parameters)
        loss = pair_model_loss(
            model.head, batch, eigenvalue_weight=eigenvalue_weight, snapshot=snapshot
        )
        norm = sum(weight.square().sum() for weight in weights)
        loss = loss + 0.5 * PRIOR_PRECISION * norm / total
        slopes = torch.autograd.grad(loss, parameters)
        return loss.item(), nn.utils.parameters_to_vector(slopes).numpy()

    start = nn.utils.parameters_to_vector(parameters).detach().numpy()
    found = minimize(
        loss_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _HEAD_ITERATIONS, "ftol": 1e-7},
    )
    nn.utils.vector_to_parameters(torch.from_numpy(found.x), parameters)
    model.float()
