"""The `secondguess` command.

This module imports nothing beyond the standard library, so that the command can say what to install
where the `cli` extra is missing. Commands live in one file per group and are joined in `app.py`.
"""

import os
import sys
from collections.abc import Callable


def main() -> None:
    """Run the command line; the entry point that pyproject.toml names."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # libraries draw their bars into logs otherwise
    try:
        _command()()
    except KeyboardInterrupt:  # commands hear it themselves; this one came before or after
        sys.exit(130)


def _command() -> Callable[[], object]:
    try:
        from secondguess.cli.app import app
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "secondguess":
            raise
        print(
            f"secondguess: the command line needs {error.name}; install it with\n"
            f"    pip install 'secondguess[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    return app
