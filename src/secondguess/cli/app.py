"""All commands, joined: one line per group.

A group is a module with `register(app)`. Modules import what is heavy inside their commands, so
that `secondguess --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from secondguess.cli import download, intervals, language, report, reproduce, serve
from secondguess.cli.errors import say


class _Commands(TyperGroup):
    """All commands; a mistake in their options is told as every other mistake is."""

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        try:
            code = super().main(*args, standalone_mode=False, **more)
        except Exception as error:
            # The base of Typer's complaints has no public name.
            if not standalone_mode or not hasattr(error, "format_message"):
                raise
            _complain(error)
            sys.exit(2)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def _complain(error: Any) -> None:
    context, message = getattr(error, "ctx", None), error.format_message()
    if not message:  # asked for nothing at all, it has printed its help
        return
    path = "secondguess" if context is None else context.command_path
    say(f"secondguess: {message}\nTry '{path} --help' for help.")


app = typer.Typer(
    cls=_Commands,
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
