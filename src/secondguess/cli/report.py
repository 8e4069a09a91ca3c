"""`secondguess report DIR`: the page of all runs in a directory, from their results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.errors import tell, user_errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    directory: Annotated[
        Path, typer.Argument(help="The --out of `secondguess reproduce`, or a folder in it.")
    ] = Path("out"),
    out: Annotated[
        Path | None, typer.Option(help="The page to write. Default: report.html in DIRECTORY.")
    ] = None,
) -> None:
    """Write one HTML page of all runs in a directory, from their results alone."""
    with user_errors():
        from secondguess.report.page import write_report

        path = write_report(directory, out)
    tell(path)
