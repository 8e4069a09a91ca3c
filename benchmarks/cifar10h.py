"""Speeds of the CIFAR-10H pipeline: augmentation, feature pass, training on features.

Run with `python benchmarks/cifar10h.py`. The peer of the augmentation is the same algorithm on
Pillow, image by image, as in the reference implementation. All on random images, on one thread, in
processor seconds, best of three, the two sides of a ratio in turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from timing import best_seconds

from secondguess.baselines import naive
from secondguess.classification.batches import PairBatch
from secondguess.experiments.cifar10h.augmix import AugMixConfig, augmix
from secondguess.experiments.cifar10h.frozen import FeatureMLP, FrozenEfficientNet, frozen_features
from secondguess.experiments.cifar10h.run import PRESETS

NUM_IMAGES = 512


def pillow_operation(image: Image.Image, kind: int, strength: float) -> Image.Image:
    bilinear, affine = Image.Resampling.BILINEAR, Image.Transform.AFFINE
    matrices = {
        5: (1, 0.3 * strength, 0, 0, 1, 0),
        6: (1, 0, 0, 0.3 * strength, 1, 0),
        7: (1, 0, int(strength * 32 / 3), 0, 1, 0),
        8: (1, 0, 0, 0, 1, int(strength * 32 / 3)),
    }
    if kind in matrices:
        return image.transform((32, 32), affine, matrices[kind], resample=bilinear)
    operations: list[Callable[[], Image.Image]] = [
        lambda: ImageOps.autocontrast(image),
        lambda: ImageOps.equalize(image),
        lambda: ImageOps.posterize(image, 4 - int(4 * abs(strength))),
        lambda: ImageOps.solarize(image, 256 - int(256 * abs(strength))),
        lambda: image.rotate(int(30 * strength), resample=bilinear),
    ]
    return operations[kind]()


def pillow_augmix(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    results = []
    for array in images:
        image = Image.fromarray(array)
        shares, weight = rng.dirichlet(np.ones(3)), rng.random()
        mixed = np.zeros_like(array, dtype=np.float64)
        for share in shares:
            chain = image
            for _ in range(rng.integers(1, 4)):
                strength = rng.choice([-1, 1]) * rng.uniform(0.01, 0.3)
                chain = pillow_operation(chain, int(rng.integers(9)), strength)
            mixed += share * np.asarray(chain)
        results.append((1 - weight) * array + weight * mixed)
    return np.stack(results)


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = rng.integers(256, size=(NUM_IMAGES, 32, 32, 3), dtype=np.uint8)
    images = torch.from_numpy(rows).movedim(-1, 1).contiguous()
    generator = torch.Generator().manual_seed(0)
    plain = AugMixConfig(padding=None)
    ours, pillow = best_seconds(
        lambda: augmix(images, generator=generator, config=plain),
        lambda: pillow_augmix(rows, rng),
        clock=time.process_time,
    )
    print(
        f"AugMix, batches of {NUM_IMAGES}: {NUM_IMAGES / ours:,.0f} images/s; Pillow, one by one: "
        f"{NUM_IMAGES / pillow:,.0f}; ratio {pillow / ours:.1f}"
    )

    network = FrozenEfficientNet()
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        frozen_features(images[:256].numpy(), cache_dir=folder, extractor=network)
        seconds = time.process_time() - start
    print(f"features of the frozen network: {256 / seconds:,.0f} images/s")

    size = PRESETS["cpu"]
    number = size.protocol.batch_size
    model = torch.nn.Sequential(FeatureMLP(1280, size.width), torch.nn.Linear(size.width, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    labels = torch.randint(10, (number,), generator=generator)
    batch = PairBatch(torch.randn(number, 1280, generator=generator), labels, labels)

    def step() -> None:
        optimizer.zero_grad()
        naive.loss(model, batch).backward()
        optimizer.step()

    (seconds,) = best_seconds(step, clock=time.process_time)
    print(f"training on features, batches of {number}: {1 / seconds:,.0f} steps/s")


if __name__ == "__main__":
    main()
