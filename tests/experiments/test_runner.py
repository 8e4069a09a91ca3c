import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from secondguess._files import only_writer_of
from secondguess.experiments.runner import Claim, Part, PartResult, only_parts, run_experiment


class Interrupted(Exception):
    pass


def draw(parts: Mapping[str, PartResult], directory: Path) -> None:
    (directory / "drawn.txt").write_text(" ".join(parts))


class World:
    """Three parts that count how often they are computed; the last one fails when told to."""

    def __init__(self) -> None:
        self.computed: list[str] = []
        self.fails = False
        self.meanwhile: Callable[[], None] = lambda: None

    def parts(self, **config: object) -> list[Part]:
        return [
            Part(
                name=name,
                config=config,
                compute=lambda directory, done, name=name: self(name, done),
            )
            for name in ("one", "two", "three")
        ]

    def __call__(self, name: str, done: Mapping[str, PartResult]) -> PartResult:
        if name == "three" and self.fails:
            raise Interrupted
        self.computed.append(name)
        if name == "three":
            self.meanwhile()
        return PartResult({"before": list(done)}, {"values": np.arange(3.0)})

    def run(self, out: Path, **config: object) -> Path:
        return run_experiment(
            experiment="world",
            preset="tiny",
            seed=7,
            config=config,
            parts=self.parts(**config),
            claims=lambda parts: [Claim(name="all", holds=True, value=len(parts), bound=3)],
            draw=draw,
            out=out,
            report=lambda line: None,
        )


def test_results_have_the_shared_layout(tmp_path: Path) -> None:
    directory = World().run(tmp_path, size=1)
    assert directory == tmp_path / "world" / "tiny" / "seed-7"
    result = json.loads((directory / "result.json").read_text())
    assert result["metrics"]["three"] == {"before": ["one", "two"]}
    [claim] = result["claims"]
    assert claim == {
        "name": "all",
        "holds": True,
        "value": 3,
        "bound": 3,
        "paper": "",
        "needs": "",
    }
    assert {"experiment", "preset", "seed", "config", "versions", "machine", "seconds"} <= set(
        result
    )
    with np.load(directory / "arrays.npz") as arrays:
        assert sorted(arrays) == ["one/values", "three/values", "two/values"]
    assert (directory / "figures" / "drawn.txt").read_text() == "one two three"


def test_a_stopped_run_repeats_nothing_that_was_finished(tmp_path: Path) -> None:
    world = World()
    world.fails = True
    with pytest.raises(Interrupted):
        world.run(tmp_path)
    assert world.computed == ["one", "two"]
    world.fails = False
    world.run(tmp_path)
    assert world.computed == ["one", "two", "three"]


def test_a_finished_run_only_draws_again(tmp_path: Path) -> None:
    world = World()
    directory = world.run(tmp_path)
    (directory / "figures" / "drawn.txt").unlink()
    world.run(tmp_path)
    assert world.computed == ["one", "two", "three"]
    assert (directory / "figures" / "drawn.txt").exists()


def test_a_part_that_was_being_written_is_computed_again(tmp_path: Path) -> None:
    world = World()
    directory = world.run(tmp_path)
    (directory / "parts" / "two" / "result.json").unlink()
    world.run(tmp_path)
    assert world.computed == ["one", "two", "three", "two"]


def test_some_parts_are_computed_without_results(tmp_path: Path) -> None:
    world = World()
    with only_parts(["two"]):
        directory = world.run(tmp_path)
    assert world.computed == ["two"]
    assert not (directory / "result.json").exists()
    world.run(tmp_path)
    assert world.computed == ["two", "one", "three"]
    assert (directory / "figures" / "drawn.txt").read_text() == "one two three"


@pytest.mark.parametrize("other_finishes", [True, False])
def test_what_another_process_computes_is_left_to_it_unless_it_dies(
    tmp_path: Path, other_finishes: bool
) -> None:
    ours, other = World(), World()
    parts = tmp_path / "world" / "tiny" / "seed-7" / "parts"
    parts.mkdir(parents=True)
    with ExitStack() as held:
        held.enter_context(only_writer_of(parts / "two"))

        def ends() -> None:
            held.close()
            if other_finishes:
                with only_parts(["two"]):
                    other.run(tmp_path)

        ours.meanwhile = ends
        with only_parts(["two"]):  # a third one does not wait
            World().run(tmp_path)
        directory = ours.run(tmp_path)
    assert (ours.computed, other.computed) == (
        (["one", "three"], ["two"]) if other_finishes else (["one", "three", "two"], [])
    )
    result = json.loads((directory / "result.json").read_text())
    assert list(result["metrics"]) == ["one", "two", "three"]


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    World().run(tmp_path, size=1)
    with pytest.raises(ValueError, match="size: 1 there, 2 now"):
        World().run(tmp_path, size=2)
