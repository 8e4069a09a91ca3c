"""What a run is on disk, but for its figures and arrays: `result.json` and `page.json`.

The one owner of both formats: experiments write them here, and the report, the command line and
summaries read them here. All that a page shows is checked; metrics are the experiment's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secondguess._files import read_document, read_record, write_document
from secondguess.report.sections import Claim, Section

RESULT_FILE, PAGE_FILE = "result.json", "page.json"

_RESULT, _PAGE, _FORMAT = "secondguess result", "secondguess page", 1


def write_result(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the result of a run, whole or not at all.

    Args:
        directory: of the run.
        content: experiment, preset, seed, config, versions, machine, seconds, metrics and claims.
    """
    write_document(directory / RESULT_FILE, _RESULT, _FORMAT, content)


def read_result(directory: Path) -> dict[str, Any]:
    """What `write_result` wrote.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else, damaged, or of another format; the message says which.
    """
    return read_document(directory / RESULT_FILE, _RESULT, _FORMAT, what="the result of a run")


def read_claims(directory: Path) -> list[Claim]:
    """The claims of a run, each checked."""
    where = directory / RESULT_FILE
    claims = read_result(directory).get("claims")
    if not isinstance(claims, list):
        raise ValueError(f"{where} is damaged; expected a list of claims.")
    return [read_record(Claim, each, f"{where}: claims[{i}]") for i, each in enumerate(claims)]


def write_page(directory: Path, section: Section) -> None:
    """Write what the report says of a run, whole or not at all."""
    write_document(directory / PAGE_FILE, _PAGE, _FORMAT, asdict(section))


def read_page(directory: Path) -> Section:
    """What `write_page` wrote; errors as in `read_result`."""
    path = directory / PAGE_FILE
    content = read_document(path, _PAGE, _FORMAT, what="what the report says of a run")
    return read_record(Section, content, path.name)
