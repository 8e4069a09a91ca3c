"""How commands speak of mistakes: one message on standard error, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a bad value or a file that cannot be used into a message and exit code 2.

    Put it around what reads the user's files and arguments. Other exceptions are bugs and keep
    their traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"secondguess: {error}", err=True)
        raise typer.Exit(2) from None
