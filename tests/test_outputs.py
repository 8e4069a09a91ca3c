"""No output is an input, nothing is replaced unasked, and unfinished work is nobody else's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from secondguess._files import check_output, only_writer_of, private_folder


def same(path: Path, source: Path) -> Path:
    return source


def by_another_name(path: Path, source: Path) -> Path:
    return source.parent / "." / ".." / source.parent.name / source.name


def linked(path: Path, source: Path) -> Path:
    (path / "link").symlink_to(source)
    return path / "link"


def hard_linked(path: Path, source: Path) -> Path:
    os.link(source, path / "hard")
    return path / "hard"


def through_a_linked_folder(path: Path, source: Path) -> Path:
    (path / "elsewhere").symlink_to(source.parent)
    return path / "elsewhere" / source.name


@pytest.mark.parametrize(
    "out_of", [same, by_another_name, linked, hard_linked, through_a_linked_folder]
)
def test_an_output_is_never_an_input(tmp_path: Path, out_of: Callable[[Path, Path], Path]):
    source = tmp_path / "rows" / "rows.csv"
    source.parent.mkdir()
    source.write_text("p,v")
    out = out_of(tmp_path, source)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is the input"):
            check_output(out, [tmp_path / "nowhere", source], overwrite=overwrite)


def test_nothing_is_written_into_an_input_folder(tmp_path: Path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "p.npy").write_bytes(b"")
    for name in ("rows", "rows/p.npy", "rows/new.npy"):
        with pytest.raises(FileExistsError, match="is the input"):
            check_output(tmp_path / name, [tmp_path / "rows"], overwrite=True)


def test_what_exists_is_replaced_only_if_asked(tmp_path: Path):
    (tmp_path / "note").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    for name, folder in (("note", False), ("dangling", False), ("folder", True)):
        with pytest.raises(FileExistsError, match="--overwrite"):
            check_output(tmp_path / name, folder=folder)
        check_output(tmp_path / name, folder=folder, overwrite=True)
    check_output(tmp_path / "new", [tmp_path / "note"])


def test_devices_pipes_and_missing_folders_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path / "folder"):
        with pytest.raises(FileExistsError, match="not a regular file"):
            check_output(path, overwrite=True)
    with pytest.raises(FileExistsError, match="not a folder"):
        check_output(tmp_path / "pipe", overwrite=True, folder=True)
    with pytest.raises(NotADirectoryError, match="make it first"):
        check_output(tmp_path / "missing" / "out")


def test_names_of_full_length_can_be_held(tmp_path: Path):
    for name in ("n" * 255, "\u00e9" * 127):
        with only_writer_of(tmp_path / name):
            (tmp_path / name).write_text("whole")


def test_unfinished_work_is_private(tmp_path: Path):
    private_folder(tmp_path / "parts")
    private_folder(tmp_path / "parts")
    assert (tmp_path / "parts").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "parts")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(FileExistsError, match="not a folder"):
        private_folder(tmp_path / "link")
    with pytest.raises(PermissionError, match="others may have written"):
        private_folder(tmp_path / "open")
