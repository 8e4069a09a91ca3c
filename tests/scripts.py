"""Scripts of the repository that are no part of the package, loaded as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load_script(path: str) -> ModuleType:
    """A module of its own, which `import` does not find: folders have scripts of the same name."""
    name = path.removesuffix(".py").replace("/", "_of_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)  # dataclasses look for their module
        patch.syspath_prepend((ROOT / path).parent)  # as if it were run
        spec.loader.exec_module(module)
    return module
