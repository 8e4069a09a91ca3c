from pathlib import Path

import pytest
import torch

from secondguess.training.checkpoints import Checkpoint, read_checkpoint, write_checkpoint

IDENTITY = {"config": {"num_steps": 10, "seed": 0}}


def write(directory: Path, step: int) -> None:
    tensors = {"weights/w": torch.full((3,), float(step)), "weights/n": torch.tensor(step)}
    write_checkpoint(directory, Checkpoint(step, tensors, {"note": step}), identity=IDENTITY)


def test_the_newest_two_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        write(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000004.safetensors",
        "step-000000006.safetensors",
    ]
    found = read_checkpoint(tmp_path, identity=IDENTITY)
    assert found is not None
    assert (found.step, found.state) == (6, {"note": 6})
    assert found.tensors["weights/w"].tolist() == [6.0, 6.0, 6.0]


def test_an_empty_or_missing_directory_holds_none(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "missing", identity=IDENTITY) is None


@pytest.mark.parametrize("kept_bytes", [0, 4, 100, -1])
def test_a_truncated_one_is_passed_over_and_named(tmp_path: Path, kept_bytes: int) -> None:
    write(tmp_path, 2)
    write(tmp_path, 4)
    newest = tmp_path / "step-000000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:kept_bytes])
    with pytest.warns(RuntimeWarning, match=r"step-000000004.*damaged.*Resuming from step 2"):
        found = read_checkpoint(tmp_path, identity=IDENTITY)
    assert found is not None
    assert found.step == 2


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 2)
    write(tmp_path, 4)
    newest = tmp_path / "step-000000004.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="checksum"):
        found = read_checkpoint(tmp_path, identity=IDENTITY)
    assert found is not None
    assert found.step == 2


def test_a_damaged_one_does_not_outlive_a_later_good_one(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "step-000000009.safetensors").write_bytes(b"not a checkpoint")
    write(tmp_path, 4)
    found = read_checkpoint(tmp_path, identity=IDENTITY)
    assert found is not None
    assert found.step == 4


def test_it_starts_anew_when_none_is_good_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "step-000000002.safetensors").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="starting from step 0"):
        assert read_checkpoint(tmp_path, identity=IDENTITY) is None


def test_an_unfinished_file_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "step-000000004.unfinished").write_bytes(b"half of a checkpoint")
    found = read_checkpoint(tmp_path, identity=IDENTITY)
    assert found is not None
    assert found.step == 2


def test_another_identity_is_refused_with_the_differences(tmp_path: Path) -> None:
    write(tmp_path, 2)
    with pytest.raises(ValueError, match=r"config.seed: 0 in the checkpoint, 1 now"):
        read_checkpoint(tmp_path, identity={"config": {"num_steps": 10, "seed": 1}})
