"""How commands end early: one message on standard error and an exit code, no traceback.

A mistake of the user ends with 2; a run that a signal stopped with 128 and the signal's number
(130 for SIGINT, 143 for SIGTERM), as shells count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from secondguess.training.signals import TrainingStopped

EXTRAS = {
    "torch": "classification",
    "accelerate": "classification",
    "safetensors": "classification",
    "sklearn": "classification",
    "transformers": "language",
    "tokenizers": "language",
    "httpx": "serve",
    "fastapi": "serve",
    "uvicorn": "serve",
}
"""Which extra brings a module that a command needs; the other modules come with `all`."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a bad value, a bad file, a divergence or a missing package into a message and code 2.

    A training that a signal stopped becomes a message that says how to resume it. Put this around
    what reads the user's files and arguments, imports included. Other exceptions are bugs and keep
    their traceback.
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
    except TrainingStopped as stopped:
        typer.echo(f"secondguess: {stopped}", err=True)
        raise typer.Exit(128 + stopped.signal) from None
