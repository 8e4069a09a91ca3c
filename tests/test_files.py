"""Whatever happens to a writer, a file or folder is the old one or the new one, never a mixture."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from secondguess._files import (
    MANIFEST,
    check_manifest,
    folders,
    only_writer_of,
    recover,
    replacing,
    replacing_folder,
    write_json,
    write_text,
    writing,
)


def save(
    folder: Path, text: str, names: tuple[str, ...] = ("a.txt", "b.txt", "deep/c.txt")
) -> None:
    with replacing_folder(folder) as unfinished:
        for name in names:
            (unfinished / name).parent.mkdir(exist_ok=True)
            (unfinished / name).write_text(text)


def texts(folder: Path) -> set[str]:
    return {(folder / name).read_text() for name in check_manifest(folder)}


@pytest.fixture(params=["exchange", "two renames"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two renames":
        monkeypatch.setattr(folders, "_exchanged", lambda first, second: False)


def test_a_file_is_replaced_and_nothing_is_left(tmp_path: Path):
    path = tmp_path / "note.txt"
    write_text(path, "first\r\n")
    write_text(path, "second\n")
    write_json(tmp_path / "note.json", {"a": [1]})
    assert path.read_bytes() == b"second\n"
    assert (tmp_path / "note.json").read_text() == '{\n  "a": [\n    1\n  ]\n}\n'
    assert sorted(os.listdir(tmp_path)) == ["note.json", "note.txt"]


def test_a_failure_leaves_the_earlier_file(tmp_path: Path):
    path = tmp_path / "note.txt"
    write_text(path, "first")

    def cut() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("sec")
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        cut()
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["note.txt"]


def test_a_long_name_has_a_temporary_one(tmp_path: Path):
    path = tmp_path / ("n" * 255)
    write_text(path, "whole")
    assert path.read_text() == "whole"


def test_a_new_file_has_the_usual_permissions(tmp_path: Path):
    write_text(tmp_path / "ours", "")
    (tmp_path / "plain").write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert len(modes) == 1


def test_links_are_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("out.txt", ".out.txt.unfinished", ".out.txt.x.unfinished", "out.unfinished"):
        (tmp_path / name).symlink_to(victim)
    write_text(tmp_path / "out.txt", "new")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "out.txt").is_symlink()


def test_a_planted_lock_is_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".out.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"), only_writer_of(tmp_path / "out"):
        pass
    assert victim.read_text() == "mine"


def test_folders_and_devices_are_not_replaced_by_a_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError, match="not a regular file"):
            write_text(tmp_path / name, "text")
    with pytest.raises(NotADirectoryError, match="make it first"):
        write_text(tmp_path / "missing" / "file", "text")


@pytest.mark.usefixtures("_both_ways")
def test_a_folder_is_replaced_at_once(tmp_path: Path):
    folder = tmp_path / "model"
    save(folder, "first")
    save(folder, "second", ("b.txt",))
    assert sorted(os.listdir(folder)) == ["b.txt", MANIFEST]
    assert texts(folder) == {"second"}
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.usefixtures("_both_ways")
def test_a_failure_leaves_the_earlier_folder(tmp_path: Path):
    folder = tmp_path / "model"
    save(folder, "first")

    def cut() -> None:
        with replacing_folder(folder) as unfinished:
            (unfinished / "a.txt").write_text("sec")
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        cut()
    assert texts(folder) == {"first"}
    assert os.listdir(tmp_path) == ["model"]


def test_an_empty_folder_may_be_filled(tmp_path: Path):
    save(tmp_path, "first")
    assert texts(tmp_path) == {"first"}


@pytest.mark.parametrize("name", ["notes.md", "deep/notes.md"])
def test_what_was_not_saved_there_is_not_lost(tmp_path: Path, name: str):
    folder = tmp_path / "model"
    save(folder, "first")
    (folder / name).write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.md"):
        save(folder, "second")
    assert (folder / name).read_text() == "mine"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        save(tmp_path / "home", "second")


def test_a_killed_replacement_by_two_renames_is_undone(tmp_path: Path):
    folder = tmp_path / "model"
    save(folder, "first")
    place = tmp_path / ".model.abcd1234.unfinished"
    place.mkdir(mode=0o700)
    os.rename(folder, place / "model.earlier")
    assert texts(folder) == {"first"}
    recover(folder)
    save(folder, "second")
    assert os.listdir(tmp_path) == ["model"]


def damage_missing(folder: Path) -> None:
    (folder / "a.txt").unlink()


def damage_changed(folder: Path) -> None:
    (folder / "a.txt").write_text("Second")


def damage_added(folder: Path) -> None:
    (folder / "a.txt").rename(folder / "extra a.txt")
    (folder / "a.txt").write_text("first")


def damage_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


def damage_format(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_missing, r"a\.txt is missing"),
        (damage_changed, r"a\.txt was changed"),
        (damage_added, r"extra a\.txt was added"),
        (damage_manifest, r"manifest\.json is damaged"),
        (damage_format, r"format 2"),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: Callable[[Path], None], message: str):
    save(tmp_path / "model", "first")
    damage(tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        check_manifest(tmp_path / "model")


def test_a_folder_without_manifest_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="expected a folder that secondguess saved"):
        check_manifest(tmp_path)


def test_notes_may_be_added_that_nothing_reads(tmp_path: Path):
    save(tmp_path / "model", "first")
    (tmp_path / "model" / "README.md").write_text("about")
    (tmp_path / "model" / ".gitattributes").write_text("")
    assert texts(tmp_path / "model") == {"first"}


def test_one_writer_at_a_time(tmp_path: Path):
    out = tmp_path / "out.csv"
    with only_writer_of(out):
        (tmp_path / "other name").symlink_to(tmp_path)
        for same in (out, tmp_path / "other name" / "out.csv"):
            busy = pytest.raises(BlockingIOError, match=r"another process is writing .*out\.csv")
            with busy, only_writer_of(same):
                pass
        with only_writer_of(tmp_path / "another.csv"):
            pass
    with only_writer_of(out):
        pass
    (tmp_path / "other name").unlink()
    assert os.listdir(tmp_path) == []


def test_many_threads_never_hold_together(tmp_path: Path):
    inside: list[int] = []
    most: list[int] = []
    refused: list[int] = []

    def work() -> None:
        for _ in range(200):
            try:
                with only_writer_of(tmp_path / "out"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except BlockingIOError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) + len(refused) == 800


WRITER = """
import sys
from pathlib import Path
from secondguess._files import only_writer_of, replacing_folder, write_text

root, two_renames = Path(sys.argv[1]), sys.argv[2] == "two renames"
if two_renames:
    from secondguess._files import folders
    folders._exchanged = lambda first, second: False
version = int((root / "file").read_text().split()[0]) if (root / "file").exists() else 0
with only_writer_of(root / "folder"):
    while True:
        version += 1
        write_text(root / "file", f"{version} " * 1000)
        with replacing_folder(root / "folder") as unfinished:
            for name in "abc":
                (unfinished / name).write_text(f"{version} " * 1000)
        print("saved", flush=True)
"""


def killed_writers(tmp_path: Path, num_kills: int, way: str) -> None:
    rng = random.Random(0)
    previous = 0
    for _ in range(num_kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), way], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "saved\n"
        time.sleep(rng.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        recover(tmp_path / "folder")
        if (tmp_path / "folder").exists():
            found = texts(tmp_path / "folder")
            assert len(found) == 1
            words = found.pop().split()
            assert len(words) == 1000
            assert len(set(words)) == 1
            assert int(words[0]) >= previous
            previous = int(words[0])
        if (tmp_path / "file").exists():
            words = (tmp_path / "file").read_text().split()
            assert len(words) == 1000
            assert len(set(words)) == 1
    assert previous > 0
    writing._cleared.clear()  # as in a new process, which clears up first
    write_text(tmp_path / "file", "0")
    save(tmp_path / "folder", "0")
    assert set(os.listdir(tmp_path)) - {".folder.lock"} == {"file", "folder"}


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_kills_leave_the_old_or_the_new(tmp_path: Path, way: str):
    killed_writers(tmp_path, 10, way)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_many_kills_leave_the_old_or_the_new(tmp_path: Path, way: str):
    killed_writers(tmp_path, 200, way)


def test_folders_of_others_that_look_unfinished_are_let_be(tmp_path: Path):
    names = ["thesis.unfinished", ".thesis.unfinished", ".out.abcd1234.unfinished"]
    for name in names:
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "out.txt.earlier").write_text("planted")
    write_text(tmp_path / "note.txt", "text")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "note.txt"])
    assert all((tmp_path / name / "out.txt.earlier").exists() for name in names)


def test_whoever_may_read_one_file_of_a_folder_may_read_all(tmp_path: Path):
    with replacing_folder(tmp_path / "model") as unfinished:
        (unfinished / "weights").touch(0o600)
    mode = (tmp_path / "model" / MANIFEST).stat().st_mode
    assert (tmp_path / "model" / "weights").stat().st_mode == mode
