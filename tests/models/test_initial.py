"""The one initialiser: its scale, its source, and that there is no second one."""

from __future__ import annotations

import ast
from pathlib import Path

import torch

import secondguess
from secondguess.models.initial import lecun_linear


def test_weights_come_from_the_generator_and_nothing_else() -> None:
    before = torch.get_rng_state()
    layers = [lecun_linear(9, 5, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layers[0].weight, layers[1].weight)
    drawn = torch.empty(5, 9).normal_(std=1 / 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(layers[0].weight, drawn)
    assert not layers[0].bias.any()


def test_scale_multiplies_the_weights() -> None:
    plain, small = (
        lecun_linear(64, 32, scale=scale, generator=torch.Generator().manual_seed(0))
        for scale in (1.0, 0.25)
    )
    assert torch.equal(small.weight, plain.weight / 4)


def test_no_other_module_makes_an_empty_linear_layer() -> None:
    package = Path(secondguess.__file__).parent
    makers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("Linear")
        and any(keyword.arg == "device" for keyword in node.keywords)
    }
    assert makers == {"models/initial.py"}
