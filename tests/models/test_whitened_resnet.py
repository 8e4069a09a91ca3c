from __future__ import annotations

import torch

from secondguess.models.spectral import SpectralConv2d
from secondguess.models.whitened_resnet import WhitenedResNet, whitening_kernel


def _images(number: int) -> torch.Tensor:
    """Neighbouring pixels and channels depend on each other, as they do in photographs."""
    noise = torch.randn(number, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.avg_pool2d(noise, 3, stride=1)
    return 3 * smooth + smooth.mean(dim=1, keepdim=True)


def test_patches_are_white_whatever_the_images() -> None:
    images = _images(100)
    kernel = whitening_kernel(images)
    responses = torch.conv2d(images, kernel).transpose(0, 1).flatten(1)
    second_moments = responses[:12] @ responses[:12].T / responses.shape[1]
    raw = images.transpose(0, 1).flatten(1).cov()
    assert raw[0, 1] > 0.2 * raw[0, 0]  # so that the next line says something
    assert (second_moments - torch.diag(second_moments.diagonal())).abs().max() < 1e-4
    assert (second_moments.diagonal() > 0.5).all()
    torch.testing.assert_close(responses[12:], -responses[:12])


def test_the_whitening_is_saved_and_not_trained() -> None:
    network = WhitenedResNet(_images(8), widths=(4, 8, 8))
    assert "whitening" in network.state_dict()
    other = WhitenedResNet(2 * _images(8), widths=(4, 8, 8))
    other.load_state_dict(network.state_dict())
    images = _images(2)
    torch.testing.assert_close(other.eval()(images), network.eval()(images))
    assert len(network.hidden_matrices()) == 6
    assert sum(weight.numel() for weight in network.parameters()) == sum(
        weight.numel() for weight in network.hidden_matrices()
    ) + 2 * 2 * (4 + 8 + 8)


def test_a_bound_is_on_every_trained_convolution() -> None:
    network = WhitenedResNet(_images(8), widths=(4, 8, 8), spectral_bound=6.0)
    layers = [layer for layer in network.modules() if isinstance(layer, SpectralConv2d)]
    assert [layer.bound for layer in layers] == [6.0] * 6
