"""The methods of section 5.1 as one record each: how to build, train and ask them.

The keys of `METHODS` are used in results and on the command line; `title` is the row of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from secondguess.baselines import ensemble, epinet, evidential, naive, sngp
from secondguess.classification.heads import MixturePairHead, PairModel, SymmetricPairHead
from secondguess.classification.losses import pair_model_loss
from secondguess.experiments.cifar10h.task import MakeBackbone
from secondguess.models.epinet import Epinet
from secondguess.models.initial import lecun_linear
from secondguess.models.random_features import OrthogonalRandomFeatures, RandomFeatureNetwork
from secondguess.theory.records import Prediction
from secondguess.training.ensembles import MemberStack

SPECTRAL_BOUND = 6.0
NUM_RANDOM_FEATURES = 1024
NUM_MEMBERS = 8
OUTPUT_SCALE = 0.1
"""Of the initial weights of output layers, so that networks start with even probabilities. In a few
hundred steps on features, what a K x K table of random logits says at first is never unlearned
completely. SNGP and the epinet start as their reference implementations do."""
FIRST_GUESS_WEIGHT = 1.0
"""Of the marginal in the all-pairs loss. With 30 classes a table has 465 logits to learn, and the
first guess is worse than the naive network's unless it has a weight of its own."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method, over any backbone.

    >>> METHODS["cheat-sngp"].title, METHODS["cheat-sngp"].is_pair_model
    ('Cheat SNGP', True)

    Attributes:
        title: its name in the tables.
        build: from a maker of backbones, the number of classes and a source of initial values to an
            untrained network.
        loss: `loss(network, batch)` for the training loop.
        predict: from the finished network, a chunk of inputs and a generator to a prediction.
        finish: from the trained network and its training inputs to what `predict` takes.
        is_pair_model: whether the network gives joints, which can be recalibrated.
        all_pairs: whether it trains on all annotations of a row.
        num_members: networks trained together, each on its own batches.
        is_evidential: whether batches carry the weight of the evidential regularisation.
        tuned_as: the method whose hyper-parameters it takes over, or None for its own.
    """

    title: str
    build: Callable[[MakeBackbone, int, torch.Generator], nn.Module]
    loss: Callable[[Any, Any], Tensor]
    predict: Callable[[Any, Tensor, torch.Generator], Prediction]
    finish: Callable[[Any, Iterable[Tensor]], Any] = lambda network, inputs: network
    is_pair_model: bool = False
    all_pairs: bool = False
    num_members: int = 1
    is_evidential: bool = False
    tuned_as: str | None = None


def _logit_network(
    make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator
) -> nn.Module:
    backbone = make_backbone(None, generator)
    output = lecun_linear(
        _num_features(backbone), num_classes, scale=OUTPUT_SCALE, generator=generator
    )
    return nn.Sequential(backbone, output)


def _members(
    make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator
) -> nn.Module:
    return MemberStack(
        [_logit_network(make_backbone, num_classes, generator) for _ in range(NUM_MEMBERS)],
        vectorised=False,
    )


def _random_features(make_backbone: MakeBackbone, generator: torch.Generator) -> nn.Sequential:
    backbone = make_backbone(SPECTRAL_BOUND, generator)
    features = OrthogonalRandomFeatures(
        _num_features(backbone), NUM_RANDOM_FEATURES, generator=generator
    )
    return nn.Sequential(backbone, features)


def _sngp(make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator) -> nn.Module:
    backbone, features = _random_features(make_backbone, generator)
    assert isinstance(features, OrthogonalRandomFeatures)
    return RandomFeatureNetwork(backbone, features, num_classes, generator=generator)


def _epinet(make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator) -> nn.Module:
    backbone = make_backbone(None, generator)
    return Epinet(backbone, _num_features(backbone), num_classes, generator=generator)


def _cheat(
    make_backbone: MakeBackbone,
    num_classes: int,
    generator: torch.Generator,
    *,
    head: type[SymmetricPairHead] | type[MixturePairHead] = SymmetricPairHead,
) -> nn.Module:
    backbone = make_backbone(None, generator)
    outputs = head(_num_features(backbone), num_classes, generator=generator)
    with torch.no_grad():
        for layer in outputs.children():
            assert isinstance(layer, nn.Linear)
            layer.weight *= OUTPUT_SCALE
    return PairModel(backbone, outputs)


def _cheat_sngp(
    make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator
) -> nn.Module:
    # The random features are a parametrisation only; no posterior is computed.
    backbone = _random_features(make_backbone, generator)
    head = SymmetricPairHead(NUM_RANDOM_FEATURES, num_classes, generator=generator)
    return PairModel(backbone, head)


def _num_features(backbone: nn.Module) -> int:
    size = backbone.num_features
    assert isinstance(size, int)
    return size


def _predict_pairs(network: PairModel, inputs: Tensor, generator: torch.Generator) -> Prediction:
    return network(inputs).prediction()


_cheat_mixture = partial(_cheat, head=MixturePairHead)


def _pair_method(title: str, build: Callable[..., nn.Module], *, all_pairs: bool = False) -> Method:
    all_pairs_loss = partial(pair_model_loss, marginal_weight=FIRST_GUESS_WEIGHT)
    return Method(
        title=title,
        build=build,
        loss=all_pairs_loss if all_pairs else pair_model_loss,
        predict=_predict_pairs,
        is_pair_model=True,
        all_pairs=all_pairs,
    )


METHODS = {
    "naive": Method(
        title="Naive NN",
        build=_logit_network,
        loss=naive.loss,
        predict=lambda network, inputs, generator: naive.predict(network, inputs),
    ),
    "ensemble": Method(
        title="NN Ensemble",
        build=_members,
        loss=ensemble.loss,
        predict=lambda network, inputs, generator: ensemble.predict(network, inputs),
        num_members=NUM_MEMBERS,
        tuned_as="naive",
    ),
    "evidential": Method(
        title="Evidential DL",
        build=_logit_network,
        loss=evidential.loss,
        predict=lambda network, inputs, generator: evidential.predict(network, inputs),
        is_evidential=True,
    ),
    "sngp": Method(
        title="SNGP Cov.",
        build=_sngp,
        loss=sngp.loss,
        predict=lambda fitted, inputs, generator: sngp.predict(fitted, inputs, generator=generator),
        finish=sngp.fit,
    ),
    "epinet": Method(
        title="Epinet",
        build=_epinet,
        loss=epinet.loss,
        predict=lambda network, inputs, generator: epinet.predict(
            network, inputs, generator=generator
        ),
    ),
    "cheat": _pair_method("Cheat NN", _cheat),
    "cheat-sngp": _pair_method("Cheat SNGP", _cheat_sngp),
    "cheat-mixture": _pair_method("Cheat NN, mixture head", _cheat_mixture),
    "cheat-all-pairs": _pair_method("Cheat NN, all pairs", _cheat, all_pairs=True),
    "mixture-all-pairs": _pair_method(
        "Cheat NN, mixture head, all pairs", _cheat_mixture, all_pairs=True
    ),
}
