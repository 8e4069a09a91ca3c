"""The size of the house before and after it was rebuilt: modules, functions, public names.

    python docs/tables/house.py --against BEFORE

reads the source of a checkout of another version and of this one, imports neither, writes
docs/results/house-size.json and the table of CONTRIBUTING.md. Without `--against` the table is
written from the committed result. `--names` prints what became of every public name that is not
where it was: moved, or gone.

    duplicates --most 200 --seconds 120 | python docs/tables/house.py --repeated

reads pairs of places with repeated code and writes docs/results/repeated-code.json and the list of
CONTRIBUTING.md (see `repeated_code.py`).

A public name is a function, class or constant that a module defines (not one that it imports) and
whose path has no part with a leading underscore.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pages
import repeated_code
from pages import DOCS, table

from secondguess._files import write_json

PAGE = "../CONTRIBUTING.md"
RESULT = DOCS / "results" / "house-size.json"
COMMAND = "python docs/tables/house.py --against BEFORE"
LIMIT = 350

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(checkout: Path) -> dict[str, str]:
    """The text of every module, by its dotted name."""
    folder = checkout / "src"
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for path in sorted(folder.rglob("*.py"))
    }


def body_lines(function: Function) -> int:
    """Lines of a function below its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # pyright: ignore[reportOptionalOperand]


def defined(text: str) -> Iterator[str]:
    """The public names that a module defines."""
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found = [name]
            case ast.ClassDef(name=name):
                found = [name]
            case ast.Assign(targets=targets):
                found = [
                    each.id
                    for target in targets
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name)
                ]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case _:
                found = []
        yield from (name for name in found if not name.startswith("_"))


def public_names(modules: dict[str, str]) -> dict[str, set[str]]:
    """By name, the modules that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, text in modules.items():
        if not any(part.startswith("_") for part in module.split(".")):
            for name in defined(text):
                found[name].add(module)
    return found


def measured(checkout: Path) -> dict[str, Any]:
    """The figures of one version."""
    modules = sources(checkout)
    sizes = {module: text.count("\n") for module, text in modules.items()}
    functions = {
        f"{module}.{node.name}": body_lines(node)
        for module, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function)
    }
    largest, longest = (max(each, key=lambda name: each[name]) for each in (sizes, functions))
    return {
        "modules": len(sizes),
        "median": statistics.median(sizes.values()),
        "largest": [largest, sizes[largest]],
        "above_limit": sum(size > LIMIT for size in sizes.values()),
        "longest": [longest, functions[longest]],
        "names": sum(len(where) for where in public_names(modules).values()),
        "readme_words": words(checkout / "README.md"),
        "docs_words": sum(words(page) for page in (checkout / "docs").glob("*.md")),
    }


def words(page: Path) -> int:
    """Words of a page, code, tables and what it prints included."""
    return len(page.read_text(encoding="utf-8").split())


def changes(before: Path, after: Path) -> Iterator[str]:
    """One line per public name that is not where it was."""
    old, new = public_names(sources(before)), public_names(sources(after))
    for name, modules in sorted(old.items()):
        for module in sorted(modules - new.get(name, set())):
            now = ", ".join(sorted(new.get(name, set()) - modules))
            yield f"{module}.{name} -> {now or 'gone'}"


def sizes() -> str:
    """Both versions, side by side."""
    record = json.loads(RESULT.read_text())
    versions = record["before"], record["after"]
    named = {"largest": "largest module, lines", "longest": "longest function body, lines"}
    plain = {
        "modules": "modules",
        "median": "median module, lines",
        "above_limit": f"modules above {LIMIT} lines",
        "names": "public names",
        "readme_words": "words of README",
        "docs_words": "words of all pages in `docs`",
    }
    rows = [[title, *(f"{each[key]:,g}" for each in versions)] for key, title in plain.items()]
    rows += [
        [title, *(f"{each[key][1]} (`{each[key][0]}`)" for each in versions)]
        for key, title in named.items()
    ]
    return (
        f"{table(['', 'before', 'after'], rows, num_left=1)}\n\nCounted by `{record['command']}`."
    )


results = partial(pages.results, "house")
rendered = partial(pages.filled, PAGE, {"house": sizes, "repeated": repeated_code.listing})

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The size of the house, before and after.")
    parser.add_argument("--against", type=Path, help="a checkout of the version before")
    parser.add_argument("--names", action="store_true", help="print moved and removed names")
    parser.add_argument("--repeated", action="store_true", help="read pairs from standard input")
    arguments = parser.parse_args()
    here = DOCS.parent
    if arguments.against and arguments.names:
        print(*changes(arguments.against, here), sep="\n")
    elif arguments.against:
        found = {"before": measured(arguments.against), "after": measured(here)}
        write_json(RESULT, {"command": COMMAND} | found)
    if arguments.repeated:
        pairs = repeated_code.read_pairs(sys.stdin)
        if missing := repeated_code.without_reason(pairs):
            sys.exit("\n".join(["pairs without a reason:", *missing]))
        write_json(repeated_code.RESULT, {"command": repeated_code.COMMAND, "pairs": pairs})
    (DOCS / PAGE).write_text(rendered())
