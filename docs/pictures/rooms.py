"""Draws docs/pictures/rooms.svg: `python docs/pictures/rooms.py`.

Which rooms of `src/secondguess` import from which, read from the source: imports inside functions
and imports for type checkers only are counted as well. Rooms stand from the ground up, as in
`tests/test_layers.py`, so every arc leads down; it is as thick as modules are many that import this
way.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "secondguess"
ROOMS = [
    "_text",
    "_processes",
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
"""From the ground up."""

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def module_name(path: Path) -> str:
    """The dotted name of a source file; a package has the name of its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(["secondguess", *(part for part in parts if part != "__init__")])


def imported_names(source: str, module: str) -> set[str]:
    """Every dotted name that a module imports, wherever in it, for type checkers only or not.

    >>> sorted(imported_names("from ..theory import bounds", "secondguess.models.epinet"))
    ['secondguess.theory.bounds']
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            start = [*base, *([node.module] if node.module else [])]
            names |= {".".join([*start, alias.name]) for alias in node.names}
    return names


def import_graph() -> dict[str, set[str]]:
    """For each module, the modules that it imports; without the front door, which names all."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {}
    for module, path in paths.items():
        names = imported_names(path.read_text(encoding="utf-8"), module)
        if path.name == "__init__.py":  # relative imports count from the folder itself
            names |= imported_names(path.read_text(encoding="utf-8"), f"{module}.__init__")
        # `from a.b import c` loads a.b.c where that is a module, and a.b otherwise.
        found = {name if name in paths else name.rpartition(".")[0] for name in names}
        graph[module] = (found & paths.keys()) - {module, "secondguess"}
    del graph["secondguess"]
    return graph


def room_graph(graph: dict[str, set[str]]) -> Counter[tuple[str, str]]:
    """How many modules of a room import from another room, by (importing, imported)."""

    def room(module: str) -> str:
        return module.split(".")[1]

    return Counter(
        (room(module), other)
        for module, imported in graph.items()
        for other in {room(name) for name in imported} - {room(module)}
    )


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """The names of one cycle in the order in which they import each other; empty without one.

    >>> cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    ['b', 'c', 'b']
    """
    cleared: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in cleared:
            for other in sorted(graph.get(name, ())):
                if found := search(other, [*path, name]):
                    return found
            cleared.add(name)
        return []

    return next((found for name in sorted(graph) if (found := search(name, []))), [])


def draw(path: Path) -> None:
    """The rooms in a column and an arc for each pair of them, in the colour of who imports."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    mpl.rcParams["svg.hashsalt"] = "rooms"  # the same bytes from the same graph
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    axes = figure.subplots()
    heights = {room: height for height, room in enumerate(ROOMS)}
    for (importing, imported), count in sorted(room_graph(import_graph()).items()):
        start, end = heights[importing], heights[imported]
        side = 1 if start - end > 2 else -1  # short arcs to the left, long ones to the right
        axes.add_patch(
            FancyArrowPatch(
                (0.62 * side, start - 0.12),
                (0.62 * side, end + 0.12),
                connectionstyle=f"arc3,rad={-0.45 * side}",
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=0.6 + 0.35 * count**0.5,
                color=COLOURS[start % len(COLOURS)],
                alpha=0.8,
            )
        )
    for room, height in heights.items():
        edge = COLOURS[height % len(COLOURS)]
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": edge}
        axes.text(0, height, room, ha="center", va="center", fontsize=10, bbox=box)
    axes.set(xlim=(-1.0, 2.2), ylim=(-0.6, len(ROOMS) - 0.4))
    axes.axis("off")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("rooms.svg"))
