"""How commands speak of mistakes: one message on standard error, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

EXTRAS = {
    "torch": "classification",
    "accelerate": "classification",
    "safetensors": "classification",
    "sklearn": "classification",
    "transformers": "language",
    "tokenizers": "language",
}
"""Which extra brings a module that a command needs; the other modules come with `all`."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a bad value, a bad file, a divergence or a missing package into a message and code 2.

    Put it around what reads the user's files and arguments, imports included. Other exceptions are
    bugs and keep their traceback.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "secondguess"):
            raise
        typer.echo(
            f"secondguess: this command needs {package}; install it with\n"
            f"    pip install 'secondguess[{EXTRAS.get(package, 'all')},cli]'",
            err=True,
        )
        raise typer.Exit(2) from None
    except (ValueError, OSError, FloatingPointError) as error:
        typer.echo(f"secondguess: {error}", err=True)
        raise typer.Exit(2) from None
