"""Windows of JSON lines: whole or not at all, killed and resumed, shared by processes."""

from __future__ import annotations

import json
import os
import signal
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from secondguess._files import MAX_LINE_BYTES, Line
from secondguess.language.jsonl import (
    BadLineError,
    Row,
    Window,
    WindowedJob,
    parse_line,
    parse_rows,
    read_windows,
)


def write_lines(path: Path, count: int) -> None:
    path.write_text("".join(json.dumps({"value": value}) + "\n" for value in range(count)))


def doubled(window: Window) -> list[Row]:
    time.sleep(0.002)
    rng = np.random.default_rng([0, window.first_line])
    rows = parse_rows(window, lambda row: row["value"], skip_bad=True)
    return [{"line": line, "doubled": 2 * value, "random": rng.random()} for line, _, value in rows]


def job_of(
    tmp_path: Path, name: str, *, process_index: int = 0, num_processes: int = 1
) -> WindowedJob:
    return WindowedJob(
        source=tmp_path / "in.jsonl",
        out=tmp_path / name,
        settings={"seed": 0},
        window_size=7,
        process_index=process_index,
        num_processes=num_processes,
    )


def run_whole(job: WindowedJob) -> str:
    job.prepare()
    job.run(doubled)
    job.join()
    return job.out.read_text()


def test_killed_at_random_moments_it_ends_with_the_same_output(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 200)
    expected = run_whole(job_of(tmp_path, "plain.jsonl"))
    assert [json.loads(line)["line"] for line in expected.splitlines()] == list(range(1, 201))
    job = job_of(tmp_path, "killed.jsonl")
    rng = np.random.default_rng(0)
    kills = 0
    while not job.out.exists() or job.parts.exists():
        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside threads; this child is killed or exits.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            run_whole(job)
            os._exit(0)
        time.sleep(rng.uniform(0.001, 0.03) if kills < 25 else 2.0)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        assert not job.out.exists() or job.out.read_text() == expected
    assert kills >= 3
    assert job.out.read_text() == expected


def test_processes_share_the_windows(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 50)
    expected = run_whole(job_of(tmp_path, "one.jsonl"))
    jobs = [
        job_of(tmp_path, "three.jsonl", process_index=index, num_processes=3) for index in range(3)
    ]
    counts = [0, 0, 0]
    for index, job in enumerate(jobs):
        job.prepare()

        def count(lines: int, index: int = index) -> None:
            counts[index] += lines

        job.run(doubled, count)
    assert jobs[0].join() == (50, 0)
    assert sum(counts) == 50
    assert min(counts) > 0
    assert jobs[0].out.read_text() == expected


def test_correcting_a_line_costs_one_window(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 30)
    job = job_of(tmp_path, "out.jsonl")
    job.prepare()
    job.run(doubled)
    lines = (tmp_path / "in.jsonl").read_text().splitlines()
    lines[10] = json.dumps({"value": 1000})
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    worked: list[int] = []
    job.run(lambda window: worked.append(window.index) or doubled(window))
    assert worked == [1]
    job.join()
    assert json.loads(job.out.read_text().splitlines()[10])["doubled"] == 2000


def test_refuses_other_settings_and_finished_outputs(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 10)
    job_of(tmp_path, "out.jsonl").prepare()
    other = WindowedJob(
        source=tmp_path / "in.jsonl",
        out=tmp_path / "out.jsonl",
        settings={"seed": 1},
        window_size=7,
    )
    with pytest.raises(ValueError, match=r"other settings \(seed: 0 before, 1 now\)"):
        other.prepare()
    run_whole(job_of(tmp_path, "out.jsonl"))
    with pytest.raises(FileExistsError, match=r"out.jsonl exists"):
        job_of(tmp_path, "out.jsonl").prepare()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1', r"file.jsonl, line 4: broken JSON \(Expecting ',' delimiter at character 8\)"),
        (b"[1]", "line 4: a list; expected an object"),
        (b'{"a": "\xff"}', "line 4: not UTF-8"),
    ],
)
def test_a_broken_line_is_named(text: bytes, message: str) -> None:
    with pytest.raises(BadLineError, match=message):
        parse_line(Path("file.jsonl"), Line(4, 0, text, len(text)))


def test_blank_lines_count_but_are_not_rows(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"value": 1}\r\n\n{"value": 3}')
    [window] = read_windows(path, 10)
    assert [line.number for line in window.rows()] == [1, 3]


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        write_lines(tmp_path / "in.jsonl", count)
        job = job_of(tmp_path, f"{count}.jsonl")
        job.prepare()
        tracemalloc.start()
        job.run(lambda window: [{"line": window.first_line}])
        job.join()
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(70)  # what is imported and cached on first use
    assert peak(7000) < 1.5 * peak(700)


def test_a_planted_or_damaged_window_is_made_again(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 30)
    expected = run_whole(job_of(tmp_path, "plain.jsonl"))
    job = job_of(tmp_path, "out.jsonl")
    job.prepare()
    windows = list(read_windows(job.source, job.window_size))
    planted = tmp_path / "planted"
    planted.write_text('{"line": 1, "doubled": 0}\n')
    job.part(windows[0]).write_text('{"line": 1, "doubled": 0}\n')
    job.part(windows[1]).symlink_to(planted)
    job.run(doubled)
    text = job.part(windows[2]).read_text()
    job.part(windows[2]).write_text(text.replace('"doubled": 28', '"doubled": 29'))
    job.part(windows[3]).write_text(text)  # of another window
    assert run_whole(job) == expected
    assert "doubled" in planted.read_text()


def test_the_folder_of_windows_is_nobody_elses(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 3)
    job = job_of(tmp_path, "out.jsonl")
    job.parts.mkdir()
    job.parts.chmod(0o777)
    with pytest.raises(PermissionError, match="others may have written"):
        job.prepare()


def test_an_output_that_appears_in_the_meantime_is_kept(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 10)
    job = job_of(tmp_path, "out.jsonl")
    job.prepare()
    job.run(doubled)
    job.out.write_text("mine")
    with pytest.raises(FileExistsError, match="in the meantime"):
        run_whole(job)
    assert job.out.read_text() == "mine"
    job.out.unlink()
    run_whole(job)


def test_a_long_line_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"value": 1}\n{"value": "' + b"x" * MAX_LINE_BYTES + b'"}\n{"value": 2}\n')
    [window] = read_windows(path, 10)
    found = list(parse_rows(window, lambda row: row["value"], skip_bad=True))
    assert [found[0][2], found[2][2]] == [1, 2]
    assert f"line 2: the line has {MAX_LINE_BYTES + 14:,} bytes; expected at most" in found[1][2]
