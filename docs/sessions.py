"""Run the recorded sessions of the pages again, and write what they print into the pages.

    python docs/sessions.py [--runs OUT] [PAGE ...]

Without pages: README.md and all of docs/ that have such a session (`make docs-sessions`). A page is
worked through from its top in an empty folder, as a reader would:

- a block below `<!-- file: NAME -->` is saved under that name;
- a `pycon` block is run (what it prints is checked by the tests);
- a block below `<!-- recorded -->` is a session of the shell. Each line that starts with `$ ` is a
  command, carried on after a backslash, and what stands below is replaced by what it prints.
  `<!-- recorded: COMMAND -->` runs COMMAND first, without showing it.

A command that fails ends the run, and its page stays as it was. With `--runs OUT` the folder holds
a link `runs` to OUT: experiments that are finished there are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>recorded|file)(?:: (?P<argument>.+?))? -->\n+)?"
    r"```(?P<language>[^\n`]*)\n(?P<body>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ (?:.*\\\n)*.*\n", flags=re.MULTILINE)


def commands(body: str) -> list[str]:
    r"""The commands of a session, as they stand there.

    >>> commands("$ echo one\none\n$ echo two \\\n    three\ntwo three\n")
    ['echo one\n', 'echo two \\\n    three\n']
    """
    return [match[0].removeprefix("$ ") for match in COMMAND.finditer(body)]


def recorded_blocks(page: str) -> Iterator[re.Match[str]]:
    """The blocks of a page that are recorded sessions."""
    return (block for block in BLOCK.finditer(page) if block["mark"] == "recorded")


def replayed(page: str, folder: Path) -> str:
    """The page with its sessions recorded anew, its commands run in a folder."""
    names: dict[str, Any] = {}

    def replay(block: re.Match[str]) -> str:
        if block["mark"] == "file":
            (folder / block["argument"]).write_text(block["body"])
        elif block["mark"] == "recorded":
            if block["argument"]:
                _run(block["argument"], folder)
            said = "".join(f"$ {each}{_run(each, folder)}" for each in commands(block["body"]))
            head = page[block.start() : block.start("body")]
            return f"{head}{said}```"
        elif block["language"] == "pycon":
            _run_python(block["body"], names, folder)
        return block[0]

    return BLOCK.sub(replay, page)


def _run(command: str, folder: Path) -> str:
    """What a command prints on both streams, but for progress bars and spaces at ends of lines."""
    start = time.perf_counter()
    # `python` and `secondguess` are those of the interpreter that runs this.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"{time.perf_counter() - start:6.1f} s  {command.strip()}", flush=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}:\n{done.stdout}")
    lines = (line.rstrip() for line in done.stdout.splitlines() if "━" not in line)
    return "".join(f"{line}\n" for line in lines)


def _run_python(session: str, names: dict[str, Any], folder: Path) -> None:
    """Run the lines behind the prompts, but for those that are there to fail."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(session):
            if example.exc_msg is None:
                exec(example.source, names)


def main() -> None:
    """Record the sessions of the named pages."""
    parser = argparse.ArgumentParser(description="Record the sessions of the pages again.")
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--runs", type=Path, help="where finished experiments are")
    arguments = parser.parse_args()
    pages = arguments.pages or [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    for path in pages:
        page = path.read_text()
        if any(recorded_blocks(page)):
            print(path)
            with tempfile.TemporaryDirectory() as folder:
                if arguments.runs:
                    Path(folder, "runs").symlink_to(arguments.runs.resolve())
                path.write_text(replayed(page, Path(folder)))


if __name__ == "__main__":
    main()
