"""The house keeps its order: a layer imports only from the layers below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "secondguess"
LAYERS = [
    "_files",
    "_arrays",
    "theory",
    "models",
    "training",
    "classification",
    "language",
    "baselines",
    "displays",
    "report",
    "experiments",
    "serving",
    "cli",
]
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported_layers(source: str, module: str) -> set[str]:
    """The layers that a module imports from, `from . import` and imports in functions included."""
    parts = module.split(".")
    found = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: -node.level]) if node.level else ""
            start = f"{base}.{node.module}" if base and node.module else base or node.module or ""
            names = [f"{start}.{alias.name}" for alias in node.names]
        found |= {
            name.split(".")[1]
            for name in names
            if name.startswith("secondguess.") and name.split(".")[1] in LAYERS
        }
    return found


def wrong_imports(source: str, module: str) -> set[str]:
    """The layers that a module must not import from."""
    parts = module.split(".")
    layer = parts[1] if len(parts) > 1 else "__init__"
    if layer in ("__init__", "__main__"):
        allowed = {"theory"} if layer == "__init__" else set(LAYERS)
    else:
        allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    return imported_layers(source, module) - allowed


def module_name(path: Path) -> str:
    return ".".join(["secondguess", *path.relative_to(PACKAGE).with_suffix("").parts])


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_modules_import_only_from_lower_layers(path: Path):
    assert wrong_imports(path.read_text(), module_name(path)) == set()


@pytest.mark.parametrize(
    "source",
    [
        "import secondguess.classification.heads",
        "from secondguess.classification import heads",
        "from secondguess import classification",
        "from ..classification import heads",
        "def late():\n    from secondguess.classification.heads import BinaryPairHead",
    ],
)
def test_a_wrong_import_is_found(source: str):
    assert wrong_imports(source, "secondguess.theory.bounds") == {"classification"}


def test_a_right_import_passes():
    source = "from secondguess.theory.records import Interval\nimport numpy"
    assert wrong_imports(source, "secondguess.theory.bounds") == set()
    assert wrong_imports(source, "secondguess.classification.heads") == set()


def test_every_folder_is_a_known_layer():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= set(LAYERS)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, secondguess; "
        "heavy = {'torch', 'transformers', 'matplotlib', 'sklearn', 'typer', 'pyarrow', 'rich'}; "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
