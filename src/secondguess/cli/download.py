"""`secondguess download`: data that experiments need, from official addresses, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.errors import tell, user_errors


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Fetch data that experiments need.", no_args_is_help=True)
    group.command()(cifar10h)
    # A group with one command would otherwise be that command.
    group.callback()(lambda: None)
    app.add_typer(group, name="download")


def cifar10h(
    folder: Annotated[Path, typer.Argument(help="Where to put the files; made if it is missing.")],
) -> None:
    """Fetch CIFAR-10, CIFAR-10N and CIFAR-10H, and check them; files that are there are kept."""
    with user_errors():
        from secondguess.experiments.cifar10h.download import download

        download(folder)
    tell(f"{folder} is complete and checked")
