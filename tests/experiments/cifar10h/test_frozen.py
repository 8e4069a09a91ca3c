from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secondguess.experiments.cifar10h.frozen import FrozenEfficientNet, frozen_features


class MeanLevels(nn.Module):
    """Stands for the network; counts its calls."""

    digest, image_size, calls = "weights", 32, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images.float().mean(dim=(2, 3))


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(10, 3, 8, 8), dtype=np.uint8)


def test_features_are_computed_once(images: np.ndarray, tmp_path: Path) -> None:
    extractor = MeanLevels()
    first = frozen_features(images, cache_dir=tmp_path, extractor=extractor, block=4)
    again = frozen_features(images, cache_dir=tmp_path, extractor=extractor, block=4)
    assert extractor.calls == 3
    assert first.equal(again)
    expected = torch.from_numpy(images).float().mean(dim=(2, 3))
    torch.testing.assert_close(first, expected, rtol=1e-3, atol=0)  # half precision on disk


@pytest.mark.parametrize("change", ["one pixel", "order", "weights", "size"])
def test_a_stale_cache_is_never_used(images: np.ndarray, tmp_path: Path, change: str) -> None:
    extractor = MeanLevels()
    frozen_features(images, cache_dir=tmp_path, extractor=extractor)
    if change == "one pixel":
        images[3, 1, 4, 4] ^= 1
    elif change == "order":
        images = images[::-1]
    elif change == "weights":
        extractor.digest = "other weights"
    else:
        extractor.image_size = 64
    frozen_features(images, cache_dir=tmp_path, extractor=extractor)
    assert extractor.calls == 2


def test_a_killed_pass_goes_on_at_its_block(images: np.ndarray, tmp_path: Path) -> None:
    class KilledAtThird(MeanLevels):
        def forward(self, images: Tensor) -> Tensor:
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().forward(images)

    settings = {"cache_dir": tmp_path, "block": 4}
    with pytest.raises(KeyboardInterrupt):
        frozen_features(images, extractor=KilledAtThird(), **settings)
    assert len(list(tmp_path.iterdir())) == 2  # whole blocks only
    extractor, shown = MeanLevels(), []
    features = frozen_features(
        images, extractor=extractor, show=lambda *progress: shown.append(progress), **settings
    )
    assert extractor.calls == 1
    assert shown == [(10, 10)]
    assert len(features) == 10


def test_the_first_images_of_a_set_share_its_files(images: np.ndarray, tmp_path: Path) -> None:
    extractor = MeanLevels()
    settings = {"cache_dir": tmp_path, "extractor": extractor, "block": 2}
    few = frozen_features(images[:4], **settings)
    assert frozen_features(images, **settings)[:4].equal(few)
    assert extractor.calls == 5


def test_the_network_is_frozen_and_gives_1280_features(images: np.ndarray) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    network = FrozenEfficientNet(image_size=32)
    features = network(torch.from_numpy(images[:2]))
    assert features.shape == (2, 1280)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    # Batch statistics are those of the pretraining: a row does not depend on its neighbours.
    torch.testing.assert_close(network(torch.from_numpy(images[:1])), features[:1])
