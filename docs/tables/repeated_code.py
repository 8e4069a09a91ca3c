"""Repeated code that stays: every pair of places that share six lines or more, with its reason.

Pairs come from a finder of repeated runs that prints one `FILE:FIRST-LAST ~ FILE:FIRST-LAST` per
line (`house.py --repeated` reads them); here they get names that outlive a change of line numbers,
and the reason why they stay. A pair without a reason is an error that names it: give the code one
owner, or a pattern below.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from pages import DOCS

ROOT = DOCS.parent
RESULT = DOCS / "results" / "repeated-code.json"
COMMAND = "duplicates --most 200 --seconds 120 | python docs/tables/house.py --repeated"

Pair = dict[str, Any]


class Reason(NamedTuple):
    """Why pairs of places stay as they are.

    Attributes:
        text: in CONTRIBUTING.md.
        pairs: patterns for the two places, which may stand in either order.
        by_shape: whether it excuses only what is alike in shape, with other names and values.
    """

    text: str
    pairs: Sequence[tuple[str, str]]
    by_shape: bool = False


REASONS = [
    Reason(
        "Signatures and fields of figures: scikit-learn's convention, spelled out so that `help` "
        "shows them; there are no base classes.",
        [("displays/*", "displays/*")],
    ),
    Reason(
        "The same options of public functions by the same names, spelled out so that `help` and "
        "type checkers show them; the bodies differ.",
        [
            ("theory/calibration/*::fit_*", "theory/calibration/*::fit_*"),
            ("theory/calibration/means.py::*", "theory/calibration/means.py::*"),
            ("theory/calibration/*::*.update", "theory/calibration/*::*.update"),
            ("theory/floors.py::*", "theory/higher_order.py::*"),
            ("language/ray_data.py::*", "language/ray_data.py::*"),
            ("experiments/cifar10h/protocol.py::*", "experiments/cifar10h/protocol.py::*"),
        ],
    ),
    Reason(
        "Overloads: type checkers read each by itself.",
        [("language/answering.py::answer", "language/answering.py::answer")],
    ),
    Reason(
        "Signatures of alternatives: they are exchanged for one another because they are called "
        "alike, and there are no base classes.",
        [
            ("cli/*columns.py::*.chunks", "cli/*columns.py::*.chunks"),
            ("classification/heads.py::*__init__", "classification/heads.py::*__init__"),
            ("classification/*_joint.py::*", "classification/*_joint.py::*"),
            ("experiments/*/run.py::run_*", "experiments/*/run.py::run_*"),
            ("theory/decoding.py::*", "theory/decoding.py::*"),
            ("baselines/*::predict", "baselines/*::predict"),
            ("*::PairClassifier.__init__", "*::PairMetaClassifier.__init__"),
        ],
    ),
    Reason(
        "Two calls with the same arguments, in a column.",
        [
            ("theory/calibration/cutoff.py::calibrate", "theory/calibration/cutoff.py::calibrate"),
            ("docs/tables/*::main", "docs/tables/*::main"),
            ("benchmarks/*::main", "benchmarks/*::main"),
        ],
    ),
    Reason(
        "A command is its options, and hands them on; the words of help differ.",
        [
            ("cli/reproduce.py::*", "cli/reproduce.py::*"),
            ("cli/reproduce.py::[a-z]*", "cli/serve.py::serve"),
            ("cli/language.py::*", "cli/language.py::*"),
            ("cli/fit.py::fit", "cli/*"),
            ("cli/intervals.py::calibrate", "cli/*"),
            ("cli/reproduce.py::*", "cli/inspection.py::*"),
        ],
    ),
    Reason(
        "Choices of options. They stand in the library, too, which `--help` must not load; "
        "`tests/cli/test_choices.py` compares them.",
        [("cli/*Name", "cli/*"), ("cli/*::Method", "cli/*"), ("cli/*Preset", "cli/*")],
        by_shape=True,
    ),
    Reason(
        "Settings in a column: fields with defaults, whose names are those of what is configured.",
        [("*Config", "*Config"), ("*::_SMALL", "*"), ("*::PRESETS", "*")],
        by_shape=True,
    ),
    Reason(
        "Small networks for tests, benchmarks and examples: sizes in a column.",
        [
            ("*::network_of", "*"),
            ("*::_encoder", "*"),
            ("*::small_smollm2", "*"),
            ("*::byte_model", "*"),
            ("*::tiny_pair_model", "*"),
        ],
        by_shape=True,
    ),
    Reason(
        "Arguments, parameters or attributes in a column, of things that have nothing in common.",
        [
            ("examples/annotators/*", "*"),
            ("cli/intervals.py::calibrate", "theory/calibration/cutoff.py::calibrate"),
            ("experiments/cifar10h/frozen.py::frozen_task", "theory/calibration/*"),
            ("theory/calibration/thresholds.py::*", "theory/*"),
            ("models/*::*__init__", "models/*::*__init__"),
            ("*::PairClassifier.__init__", "models/*"),
            ("*::BinaryJoint", "*::Standardisation"),
            ("benchmarks/*::measure", "docs/tables/*::measure"),
        ],
        by_shape=True,
    ),
    Reason(
        "Data: entries of tables, claims, words of pages, settings of studies.",
        [
            ("__init__.py::_HOMES", "__init__.py::_HOMES"),
            ("experiments/*::[A-Z]*", "experiments/*::[A-Z]*"),
            ("experiments/*/page.py::*", "experiments/*/page.py::*"),
            ("experiments/*/claims.py::*", "experiments/*/claims.py::*"),
            ("docs/tables/*::[A-Z]*", "docs/tables/*::[A-Z]*"),
        ],
    ),
    Reason(
        "Tables of pages: one formatted cell per column.",
        [
            ("docs/tables/render.py::*", "docs/tables/*"),
            ("docs/tables/counts_page.py::*", "docs/tables/*"),
            ("docs/tables/language_models.py::*", "docs/tables/*"),
        ],
    ),
    Reason(
        "A training as the experiment does it, for a test that needs its bits and no files.",
        [("experiments/digits_of_pi/run.py::_train", "tests/experiments/bits_experiment.py::*")],
    ),
    Reason("Imported names, in the order of the alphabet.", [("*imports", "*imports")]),
    Reason(
        "Tests that read alike: each says in full what it expects.",
        [
            ("tests/training/test_checkpoints.py::*", "tests/training/test_checkpoints.py::*"),
            ("tests/cli/*_accidents.py::*", "tests/cli/*_accidents.py::*"),
            ("tests/experiments/*::test_*", "tests/experiments/*::test_*"),
        ],
        by_shape=True,
    ),
]


def place(path: str, first: int, last: int) -> str:
    """Where a run of lines stands: its file, and the definition that holds most of it.

    >>> place("docs/tables/repeated_code.py", 10, 20)
    'docs/tables/repeated_code.py::imports'
    """
    name = path.removeprefix("src/secondguess/")
    if not path.endswith(".py"):
        return name
    inside: list[str] = []
    nodes: Sequence[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    while nodes:
        node = max(nodes, key=lambda node: _overlap(node, first, last))
        nodes = []
        match node:
            case _ if _overlap(node, first, last) <= 0:
                pass
            case ast.Import() | ast.ImportFrom():
                inside.append("imports")
            case ast.Assign(targets=[ast.Name(id=assigned)]) if not inside:
                inside.append(assigned)
            case ast.AnnAssign(target=ast.Name(id=assigned)) if not inside:
                inside.append(assigned)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                inside.append(node.name)
                nodes = node.body
            case _:
                pass
    return f"{name}::{'.'.join(inside)}" if inside else name


def _overlap(node: ast.stmt, first: int, last: int) -> int:
    """How many lines of a statement are in a run."""
    return min(last, node.end_lineno or 0) - max(first, node.lineno) + 1


def read_pairs(lines: Iterable[str]) -> list[Pair]:
    """What a finder printed, by places."""
    pattern = re.compile(r"(\S+):(\d+)-(\d+) ~ (\S+):(\d+)-(\d+)(.*)")
    pairs = []
    for line in lines:
        if match := pattern.search(line):
            sides = (match.group(1, 2, 3), match.group(4, 5, 6))
            places = [place(path, int(first), int(last)) for path, first, last in sides]
            pairs.append({"places": places, "by_shape": "shape" in match[7]})
    return pairs


def reason_of(pair: Pair) -> Reason | None:
    """Why a pair stays: the first reason with a pattern for both places, in either order."""
    for reason in REASONS:
        if reason.by_shape and not pair["by_shape"]:
            continue
        for one, other in (pair["places"], reversed(pair["places"])):
            if any(fnmatchcase(one, a) and fnmatchcase(other, b) for a, b in reason.pairs):
                return reason
    return None


def without_reason(pairs: Iterable[Pair]) -> list[str]:
    """The pairs that nobody has explained."""
    return [" ~ ".join(pair["places"]) for pair in pairs if reason_of(pair) is None]


def results() -> list[Pair]:
    """The committed pairs."""
    return json.loads(RESULT.read_text())["pairs"]


def listing() -> str:
    """All pairs below their reasons."""
    pairs = results()
    by_shape = sum(pair["by_shape"] for pair in pairs)
    blocks = [
        f"{len(pairs)} pairs, {by_shape} of them alike in shape only (other names and values); "
        f"listed by `{COMMAND}`, where `duplicates` stands for any finder that prints "
        "`FILE:FIRST-LAST ~ FILE:FIRST-LAST`. The script refuses a pair without a reason."
    ]
    for reason in REASONS:
        found = [pair["places"] for pair in pairs if reason_of(pair) == reason]
        if found:
            rows = "\n".join(f"- `{one}`, `{other}`" for one, other in found)
            blocks.append(f"{reason.text}\n\n{rows}")
    return "\n\n".join(blocks)
