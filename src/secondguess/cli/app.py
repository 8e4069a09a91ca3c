"""All commands, joined: one line per group.

A group is a module with `register(app)`. Modules import what is heavy inside their commands, so
that `secondguess --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from secondguess.cli import download, intervals, language, report, reproduce, serve

app = typer.Typer(
    help="Models that say what they don't know, from pairs of responses to the same input.",
    epilog="Each command has its own --help. Mistakes end with exit code 2 and say what to do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from secondguess import __version__

        typer.echo(f"secondguess {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


intervals.register(app)
language.register(app)
serve.register(app)
reproduce.register(app)
download.register(app)
report.register(app)
