"""All that is read and written on disk goes through here.

`writing` and `folders` are the only writers: whole or not at all. `outputs` says who may write
where: nothing is replaced unasked, no output is an input, and one process writes it at a time.
`reading` is the only reader of JSON and JSON lines, with stated limits, and `records` makes
dataclasses of it. This package knows no format but JSON, and nothing of what the files mean.
"""

from secondguess._files.folders import (
    MANIFEST,
    check_manifest,
    manifest_digest,
    replacing_folder,
)
from secondguess._files.outputs import check_output, only_writer_of, private_folder
from secondguess._files.reading import (
    MAX_DEPTH,
    MAX_LINE_BYTES,
    Line,
    check_regular,
    parse_json,
    read_document,
    read_json,
    read_lines,
)
from secondguess._files.records import read_record
from secondguess._files.writing import (
    place_beside,
    recover,
    remove_folder,
    replacing,
    write_document,
    write_json,
    write_text,
)

__all__ = [
    "MANIFEST",
    "MAX_DEPTH",
    "MAX_LINE_BYTES",
    "Line",
    "check_manifest",
    "check_output",
    "check_regular",
    "manifest_digest",
    "only_writer_of",
    "parse_json",
    "place_beside",
    "private_folder",
    "read_document",
    "read_json",
    "read_lines",
    "read_record",
    "recover",
    "remove_folder",
    "replacing",
    "replacing_folder",
    "write_document",
    "write_json",
    "write_text",
]
