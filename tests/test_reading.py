"""JSON and JSON lines are read with complete checks and in bounded memory."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from secondguess._files import (
    MAX_DEPTH,
    MAX_LINE_BYTES,
    parse_json,
    read_document,
    read_json,
    read_lines,
)

BROKEN = [
    (b"", "broken JSON"),
    (b"{", "broken JSON"),
    (b"NaN", "NaN is not JSON"),
    (b'{"a": -Infinity}', "-Infinity is not JSON"),
    (b"\xff\xfe{\x00}\x00", "not UTF-8"),
    (b'{"a": "\xe9"}', "not UTF-8"),
    (b'{"a": "\x00"}', "broken JSON"),
    (b"1" * 5000, "broken JSON"),
    (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
    (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested too deep"),
    (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested too deep"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_what_is_not_json_is_refused_with_a_reason(tmp_path: Path, text: bytes, message: str):
    with pytest.raises(ValueError, match=message):
        parse_json(text)
    path = tmp_path / "file.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"file\.json cannot be read"):
        read_json(path)


def test_wide_is_not_deep():
    assert parse_json(json.dumps([[1]] * 1000).encode()) == [[1]] * 1000
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert json.dumps(parse_json(deepest)).encode() == deepest


def test_lines_know_their_place(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n[2]')
    first, blank, last = read_lines(path)
    assert [first.parse(), blank.text, last.parse()] == [{"a": 1}, b"", [2]]
    assert [each.number for each in (first, blank, last)] == [1, 2, 3]
    assert next(read_lines(path, last.offset)).parse() == [2]


@pytest.mark.parametrize("extra", [0, 1, 2, 3, 5_000_000])
def test_a_long_line_is_passed_over_in_bounded_memory(tmp_path: Path, extra: int):
    path = tmp_path / "rows.jsonl"
    size = MAX_LINE_BYTES + extra
    path.write_bytes(b"1\n" + b" " * (size - 1) + b"7" + b"\n2\n")
    tracemalloc.start()
    found = []
    for line in read_lines(path):
        try:
            found.append(line.parse())
        except ValueError as error:
            found.append(str(error).split(",")[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [1, 7 if extra == 0 else f"the line has {size // 10**6}", 2]
    assert peak < 5 * MAX_LINE_BYTES


def test_pipes_folders_and_large_files_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            read_json(path)
        with pytest.raises(ValueError, match="is not a file"):
            next(read_lines(path))
    (tmp_path / "file").write_text(" " * 100)
    with pytest.raises(ValueError, match="more than 99 bytes"):
        read_json(tmp_path / "file", at_most=99)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_json(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        *(None, True, 1, "text", [], {}, {"kind": "other", "format": 1}, {"kind": "ours"}),
        *({"kind": "ours", "format": 2}, {"kind": "ours", "format": True}, {"kind": ["ours"]}),
    ],
)
def test_a_record_says_what_it_is(tmp_path: Path, content: object):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"record\.json"):
        read_document(path, "ours", 1, what="a file of ours")
    path.write_text('{"kind": "ours", "format": 1, "a": 2}')
    assert read_document(path, "ours", 1, what="a file of ours")["a"] == 2
