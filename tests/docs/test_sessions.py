"""Recorded sessions: every one can be recorded again, and recording does what it says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

PAGE = """\
# Say it twice

```{note}
A block of another kind, whose end is no beginning.
```

<!-- file: words.txt -->
```text
one two
```

```pycon
>>> from pathlib import Path
>>> _ = Path("count.txt").write_text(str(6 * 7))
>>> [][0]
Traceback (most recent call last):
IndexError: list index out of range

```

<!-- recorded: echo unseen > made-before.txt -->
```console
$ cat words.txt count.txt
stale
$ ls \\
    *-before.txt; printf 'a  \\n━━ 4/4\\nb\\n' >&2
```

```console
$ echo left alone
as it is
```
"""


@pytest.fixture(scope="module")
def sessions() -> ModuleType:
    return load_script("docs/sessions.py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_recorded_block_carries_a_command(sessions: ModuleType, page: Path) -> None:
    text = page.read_text()
    blocks = list(sessions.recorded_blocks(text))
    assert len(blocks) == text.count("<!-- recorded"), "a mark does not stand above a block"
    for block in blocks:
        assert block["body"].startswith("$ ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_a_page_can_be_read(sessions: ModuleType, page: Path) -> None:
    for block in sessions.BLOCK.finditer(page.read_text()):
        if block["mark"] == "file":
            assert block["argument"]
            if block["language"] == "python":
                ast.parse(block["body"])
            elif block["language"] == "json":
                assert [json.loads(line) for line in block["body"].splitlines()]


def test_sessions_are_recorded_in_place(sessions: ModuleType, tmp_path: Path) -> None:
    page = sessions.replayed(PAGE, tmp_path)
    before, _, after = PAGE.partition("$ cat words.txt count.txt\n")
    recorded = "$ cat words.txt count.txt\none two\n42\n$ ls \\\n    *-before.txt; "
    recorded += "printf 'a  \\n━━ 4/4\\nb\\n' >&2\nmade-before.txt\na\nb\n"
    assert page == before + recorded + after[after.index("```") :]


def test_recording_twice_changes_nothing(sessions: ModuleType, tmp_path: Path) -> None:
    page = sessions.replayed(PAGE, tmp_path)
    assert sessions.replayed(page, tmp_path) == page


def test_a_command_that_fails_ends_the_recording(sessions: ModuleType, tmp_path: Path) -> None:
    failing = PAGE.replace("cat words.txt", "cat words.txt nowhere.txt")
    with pytest.raises(SystemExit, match=r"exit code 1:\none two"):
        sessions.replayed(failing, tmp_path)
