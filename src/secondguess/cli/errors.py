"""How commands end early: one message on standard error and an exit code, no traceback.

A mistake of the user ends with 2; a run that a signal stopped with 128 and the signal's number
(130 for SIGINT, 143 for SIGTERM), as shells count. All text that commands print for people goes
through `say` and `tell`, which show control characters instead of obeying them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from secondguess._text import shown
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


OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output if it exists.")
]


def tell(text: object) -> None:
    """A line of results for people, on standard output."""
    typer.echo(shown(text))


def say(text: object) -> None:
    """A line on standard error: standard output is for results."""
    typer.echo(shown(text), err=True)


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
        say(
            f"secondguess: this command needs {package}; install it with\n"
            f"    pip install 'secondguess[{EXTRAS.get(package, 'all')},cli]'"
        )
        raise typer.Exit(2) from None
    except MemoryError:
        say("secondguess: there is not enough memory for this; give it less at a time.")
        raise typer.Exit(2) from None
    except (ValueError, OSError, FloatingPointError) as error:
        say(f"secondguess: {error}")
        raise typer.Exit(2) from None
    except TrainingStopped as stopped:
        say(f"secondguess: {stopped}")
        raise typer.Exit(128 + stopped.signal) from None
