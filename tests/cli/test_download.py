"""`secondguess download` passes the folder on and says what went wrong."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.experiments.cifar10h import download


def test_the_folder_is_filled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    filled: list[Path] = []
    monkeypatch.setattr(download, "download", filled.append)
    result = CliRunner().invoke(app, ["download", "cifar10h", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert filled == [tmp_path]
    assert "is complete and checked" in result.output


def test_bytes_that_are_not_the_official_ones_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "other.npy"
    source.write_bytes(b"something else")
    wrong = download.OfficialFile(url=source.as_uri(), sha256="0" * 64)
    monkeypatch.setattr(download, "IMAGES", wrong)
    result = CliRunner().invoke(app, ["download", "cifar10h", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert "expected 000" in result.output
    assert not (tmp_path / "data").exists()
