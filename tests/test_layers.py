"""The house keeps its order: a layer imports only from the layers below it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import PACKAGE, ROOMS, cycle_in, import_graph, imported_names, module_name, room_graph

import secondguess

MODULES = sorted(PACKAGE.rglob("*.py"))


def imported_layers(source: str, module: str) -> set[str]:
    """The layers that a module imports from."""
    names = imported_names(source, module)
    return {name.split(".")[1] for name in names if name.startswith("secondguess.")} & set(ROOMS)


def wrong_imports(source: str, module: str) -> set[str]:
    """The layers that a module must not import from."""
    parts = module.split(".")
    layer = parts[1] if len(parts) > 1 else "__init__"
    if layer in ("__init__", "__main__"):
        allowed = set(ROOMS)  # the front door names things of all layers, and loads none
    else:
        allowed = set(ROOMS[: ROOMS.index(layer) + 1])
    return imported_layers(source, module) - allowed


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
    assert folders == {room for room in ROOMS if (PACKAGE / room).is_dir()}


def test_no_cycle_between_modules_nor_between_rooms():
    """Imports in functions and for type checkers count, too."""
    graph = import_graph()
    assert len(graph) > 100
    assert cycle_in(graph) == []
    rooms: dict[str, set[str]] = {}
    for importing, imported in room_graph(graph):
        rooms.setdefault(importing, set()).add(imported)
    assert set(rooms) | set.union(*rooms.values()) == set(ROOMS)
    assert cycle_in(rooms) == []


def test_a_cycle_of_types_is_found():
    types = "if TYPE_CHECKING:\n    from secondguess.theory.records import Interval"
    assert imported_names(types, "secondguess.theory.bounds") == {
        "secondguess.theory.records.Interval"
    }
    assert cycle_in({"a": {"b", "c"}, "b": set(), "c": {"d"}, "d": {"a"}}) == ["a", "c", "d", "a"]


def test_contributors_read_about_every_room_in_order():
    page = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+?)(?:\.py)?` \|", page, flags=re.MULTILINE)
    assert told == ROOMS


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after some code."""
    code += "; import sys; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


HEAVY = {"torch", "transformers", "matplotlib", "sklearn", "typer", "pyarrow", "rich"}


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import secondguess; dir(secondguess)") & (HEAVY | {"numpy", "scipy"})
    assert not loaded_by("from secondguess import hallucination_bound") & HEAVY


def test_help_loads_neither_arrays_nor_networks():
    commands = "import typer; from secondguess.cli.app import app; typer.main.get_command(app)"
    assert not loaded_by(commands) & (HEAVY - {"typer", "rich"} | {"numpy", "scipy"})


def test_the_front_door_opens_and_shows_nothing_private():
    assert [name for name in dir(secondguess) if name.startswith("_")] == ["__version__"]
    for name in secondguess.__all__:
        assert getattr(secondguess, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = secondguess.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_what_checkers_see_is_what_is_loaded():
    seen = {}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("secondguess."):
            for alias in node.names:
                seen[alias.name] = (node.module or "").removeprefix("secondguess.")
    assert seen == secondguess._HOME_OF
    assert sorted(seen) == secondguess.__all__


def test_a_missing_extra_is_named_with_its_install_line():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try: from secondguess import PairClassifier\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == (
        "PairClassifier needs torch; install it with\n"
        "    pip install 'secondguess[classification]'\n"
    )
