import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training.training_world import CONFIG, batch_at, loss, make_model, run

from secondguess.training import loop
from secondguess.training.loop import TrainingConfig, learning_rate_at, train
from secondguess.training.signals import TrainingStopped

PROGRAM = Path(__file__).with_name("training_world.py")


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same_bits(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_takes_the_steps_of_a_loop_written_out() -> None:
    config = TrainingConfig(num_steps=20, learning_rate=0.01, warmup_steps=5, clip_norm=0.5)
    model, expected = make_model(), make_model()
    history = train(model, loss=loss, batch_at=batch_at, config=config)

    optimizer = torch.optim.AdamW(expected.parameters(), weight_decay=config.weight_decay)
    losses = []
    for step in range(20):
        value = loss(expected, batch_at(step))
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(expected.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = learning_rate_at(config, step)
        optimizer.step()
        losses.append(value.item())
    np.testing.assert_allclose(history.losses, losses, rtol=1e-5)
    for (name, got), want in zip(model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6, msg=name)


def test_accumulation_gives_the_gradient_of_the_whole_batch() -> None:
    whole, whole_history = run(accumulation_steps=1)
    parts, parts_history = run(accumulation_steps=4)
    np.testing.assert_allclose(parts_history.losses, whole_history.losses, rtol=1e-4)
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=1e-3, atol=1e-5)


def test_dropout_depends_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    first, _ = run(dropout=0.5)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    second, _ = run(dropout=0.5)
    other, _ = run(dropout=0.5, seed=4)
    assert_same_bits(weights_of(first), weights_of(second))
    assert not torch.equal(first[0].head_out.weight, other[0].head_out.weight)  # pyright: ignore
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1)), "the caller's generator was touched"


class Stop(Exception):
    pass


@pytest.mark.parametrize("stopped_at", [1, 4, 27, 59])
@pytest.mark.parametrize("optimizers", [{}, {"matrix_learning_rate": 0.02}])
def test_a_stopped_training_goes_on_to_the_same_bits(
    tmp_path: Path, stopped_at: int, optimizers: dict[str, Any]
) -> None:
    expected, expected_history = run(dropout=0.3, **optimizers)

    def stop(step: int) -> None:
        if step == stopped_at:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path, dropout=0.3, before_step=stop, **optimizers)
    resumed, history = run(tmp_path, dropout=0.3, **optimizers)
    assert_same_bits(weights_of(resumed), weights_of(expected))
    for field in ("losses", "validation_steps", "validation_losses"):
        np.testing.assert_array_equal(getattr(history, field), getattr(expected_history, field))


def test_a_finished_training_only_loads_its_weights(tmp_path: Path) -> None:
    first, first_history = run(tmp_path)

    def never(step: int) -> None:
        raise AssertionError("a batch was asked for")

    again = make_model()
    history = train(
        again,
        loss=loss,
        batch_at=never,
        config=TrainingConfig(**CONFIG),
        validate=never,  # pyright: ignore[reportArgumentType]
        checkpoint_dir=tmp_path,
    )
    assert_same_bits(weights_of(again), weights_of(first))
    np.testing.assert_array_equal(history.losses, first_history.losses)


def test_two_trainings_cannot_write_to_one_directory_at_a_time(tmp_path: Path) -> None:
    refused = []

    def meanwhile(step: int) -> dict[str, torch.Tensor]:
        if step == 10:
            with pytest.raises(BlockingIOError, match="another process is writing") as error:
                run(tmp_path)
            refused.append(str(error.value))
        return batch_at(step)

    model, undisturbed = make_model(), make_model()
    config = TrainingConfig(num_steps=20)
    train(model, loss=loss, batch_at=meanwhile, config=config, checkpoint_dir=tmp_path)
    train(undisturbed, loss=loss, batch_at=batch_at, config=config)
    assert len(refused) == 1
    assert str(tmp_path) in refused[0]
    assert_same_bits(weights_of(model), weights_of(undisturbed))


def test_a_truncated_checkpoint_costs_steps_not_the_result(tmp_path: Path) -> None:
    expected, _ = run(tmp_path)
    newest = max(tmp_path.glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(RuntimeWarning, match="Resuming from step 56"):
        resumed, _ = run(tmp_path)
    assert_same_bits(weights_of(resumed), weights_of(expected))


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ValueError, match=r"config.learning_rate: 0.01 .*, 0.02 now"):
        run(tmp_path, learning_rate=0.02)


def test_early_stopping_keeps_the_weights_of_the_best_validation() -> None:
    seen: list[dict[str, torch.Tensor]] = []
    values = iter([3.0, 1.0, 2.0, 1.5, 0.0])

    def validate(model: nn.Module) -> float:
        assert not model.training
        seen.append(weights_of(model))
        return next(values)

    model = make_model()
    config = TrainingConfig(num_steps=50, validate_every=10, patience=2)
    history = train(model, loss=loss, batch_at=batch_at, config=config, validate=validate)
    assert history.best_step == 20
    assert len(history.losses) == 40
    assert history.validation_losses.tolist() == [3.0, 1.0, 2.0, 1.5]
    assert_same_bits(weights_of(model), seen[1])


def test_without_keep_best_validations_are_only_looks(tmp_path: Path) -> None:
    values = iter([3.0, 1.0, 2.0])
    looked_at, undisturbed = make_model(), make_model()
    config = TrainingConfig(num_steps=30, validate_every=10, keep_best=False)
    arguments = {"loss": loss, "batch_at": batch_at, "config": config}
    history = train(
        looked_at, validate=lambda model: next(values), checkpoint_dir=tmp_path, **arguments
    )
    train(undisturbed, **arguments)
    assert history.best_step == 30
    assert history.validation_losses.tolist() == [3.0, 1.0, 2.0]
    assert_same_bits(weights_of(looked_at), weights_of(undisturbed))
    again = make_model()
    train(again, validate=lambda model: 0.0, checkpoint_dir=tmp_path, **arguments)
    assert_same_bits(weights_of(again), weights_of(undisturbed))


def test_averaged_weights_are_the_recursion_over_those_of_each_step() -> None:
    trajectory: list[torch.Tensor] = []

    def watching(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        trajectory.append(model[0].head_out.weight.detach().clone())  # pyright: ignore
        return loss(model, batch)

    config = {"num_steps": 30, "learning_rate": 0.01, "warmup_steps": 0}
    last = make_model()
    train(last, loss=watching, batch_at=batch_at, config=TrainingConfig(**config))
    trajectory.append(last[0].head_out.weight.detach())  # pyright: ignore
    model = make_model()
    train(model, loss=loss, batch_at=batch_at, config=TrainingConfig(**config, average_decay=0.8))
    average = trajectory[0]
    for step, weight in enumerate(trajectory[1:], start=1):
        decay = min(0.8, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weight
    torch.testing.assert_close(model[0].head_out.weight.detach(), average)  # pyright: ignore


def test_bfloat16_computes_in_bfloat16_and_keeps_weights_in_float32() -> None:
    dtypes = set()

    def watching(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        output = model(batch["inputs"])
        dtypes.add(output.dtype)
        return (output.float() - batch["targets"]).square().mean()

    model = make_model()
    config = TrainingConfig(num_steps=60, learning_rate=0.01, precision="bfloat16")
    history = train(model, loss=watching, batch_at=batch_at, config=config)
    assert dtypes == {torch.bfloat16}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert history.losses[-10:].mean() < 0.6 * history.losses[:10].mean()


def test_tied_weights_are_saved_once_and_restored(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        generator = torch.Generator().manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
        for parameter in model.parameters():
            nn.init.normal_(parameter, generator=generator)
        model[1].weight = model[0].weight
        return model

    config = TrainingConfig(num_steps=5)
    for _ in range(2):
        model = tied()
        train(model, loss=loss, batch_at=batch_at, config=config, checkpoint_dir=tmp_path)
        assert model[1].weight is model[0].weight  # pyright: ignore
    assert "weights/1.weight" not in load_file(next(tmp_path.glob("*.safetensors")))


def test_a_loss_that_is_not_finite_stops_the_training_and_spares_the_checkpoint(
    tmp_path: Path,
) -> None:
    def breaking(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return loss(model, batch) * batch["factor"]

    def batches(step: int) -> dict[str, torch.Tensor]:
        return batch_at(step) | {"factor": torch.tensor(float("nan") if step == 7 else 1.0)}

    with pytest.raises(FloatingPointError, match="the loss is nan at step 7"):
        train(
            make_model(),
            loss=breaking,
            batch_at=batches,
            config=TrainingConfig(num_steps=20),
            checkpoint_dir=tmp_path,
            checkpoint_every=5,
        )
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000005.safetensors"]


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ValueError, match="32 rows; expected a multiple of 5"):
        run(accumulation_steps=5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", 0),
        ("patience", 0),
        ("precision", "float16"),
        ("average_decay", 1.0),
        ("learning_rate", -1.0),
        ("learning_rate", float("nan")),
        ("matrix_learning_rate", 0.0),
        ("clip_norm", 0.0),
        ("weight_decay", -1e-4),
    ],
)
def test_bad_settings_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        TrainingConfig(**({"num_steps": 5} | {field: value}))  # pyright: ignore


def test_the_loss_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[float, float | None, str]] = []

    @contextmanager
    def listening(label: str | None) -> Iterator[Callable[..., None]]:
        assert label == "a small world"
        yield lambda done, total, note: shown.append((done, total, note))

    monkeypatch.setattr(loop, "shown_progress", listening)
    config = TrainingConfig(num_steps=25)
    history = train(
        make_model(), loss=loss, batch_at=batch_at, config=config, progress="a small world"
    )
    recent = [history.losses[start:stop].mean() for start, stop in ((0, 10), (10, 20), (15, 25))]
    assert shown == [
        (step, 25, f"loss {value:.4f}") for step, value in zip((10, 20, 25), recent, strict=True)
    ]


def test_checkpoints_come_by_time_as_well(tmp_path: Path) -> None:
    expected, _ = run()
    arguments = {"loss": loss, "config": TrainingConfig(**CONFIG), "checkpoint_dir": tmp_path}
    arguments["validate"] = lambda model: float(loss(model, batch_at(-1)))

    def stopping(step: int) -> dict[str, torch.Tensor]:
        if step == 7:
            raise Stop
        return batch_at(step)

    with pytest.raises(Stop):
        train(make_model(), batch_at=stopping, checkpoint_seconds=0.0, **arguments)
    assert max(tmp_path.glob("*.safetensors")).name == "step-000000007.safetensors"
    model = make_model()
    train(model, batch_at=batch_at, **arguments)
    assert_same_bits(weights_of(model), weights_of(expected))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_its_step_with_a_checkpoint(tmp_path: Path, number: int) -> None:
    expected, _ = run(dropout=0.3)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    model = make_model()
    model[1].p = 0.3  # pyright: ignore

    def disturbed(step: int) -> dict[str, torch.Tensor]:
        if step == 6:
            signal.raise_signal(number)
        return batch_at(step)

    with pytest.raises(TrainingStopped, match=r"after step 7, with a checkpoint") as stopped:
        train(
            model,
            loss=loss,
            batch_at=disturbed,
            config=TrainingConfig(**CONFIG),
            validate=lambda model: float(loss(model, batch_at(-1))),
            checkpoint_dir=tmp_path,
        )
    assert stopped.value.signal == number
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000007.safetensors"]
    resumed, _ = run(tmp_path, dropout=0.3)
    assert_same_bits(weights_of(resumed), weights_of(expected))


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    def disturbed(step: int) -> dict[str, torch.Tensor]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was not obeyed")

    config = TrainingConfig(**CONFIG)
    # Jobs that a shell starts in the background ignore SIGINT; here it is heard all the same.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as ended:
            train(
                make_model(), loss=loss, batch_at=disturbed, config=config, checkpoint_dir=tmp_path
            )
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert not isinstance(ended.value, TrainingStopped)


def start(tmp_path: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, PROGRAM, tmp_path / "checkpoints", tmp_path / "out.safetensors"]
    return subprocess.Popen([*map(str, command), *options], env=_environment())


def _environment() -> dict[str, str]:
    source = Path(__file__).parents[2] / "src"
    return os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def kill_when(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
    """SIGKILL as soon as `is_time()`, unless the process has ended by then."""
    while process.poll() is None and not is_time():
        time.sleep(0.001)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()


def kill_and_resume(tmp_path: Path, *, num_kills: int, num_steps: int, seed: int) -> None:
    """Kill one training again and again at random moments after its next checkpoint, then let it
    end: the weights must be those of an undisturbed training."""
    rng = np.random.default_rng(seed)
    options = (f"num_steps={num_steps}", "dropout=0.3", "pause=0.005")
    checkpoints = tmp_path / "killed" / "checkpoints"
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    killed_at = []
    for _ in range(num_kills):
        before = max(checkpoints.glob("*.safetensors"), default=None)
        process = start(tmp_path / "killed", *options)
        delay = rng.uniform(0, 0.1)
        moment: list[float] = []

        def is_time(
            before: Path | None = before, delay: float = delay, moment: list[float] = moment
        ) -> bool:
            newest = max(checkpoints.glob("*.safetensors"), default=None)
            if newest != before and not moment:
                moment.append(time.monotonic() + delay)
            return bool(moment) and time.monotonic() >= moment[0]

        kill_when(process, is_time)
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        killed_at.append(max(checkpoints.glob("*.safetensors")).name)
    assert len(set(killed_at)) == num_kills, "no progress between two kills"
    for name in ("killed", "whole"):
        assert start(tmp_path / name, *options).wait() == 0
    assert_same_bits(
        load_file(tmp_path / "killed" / "out.safetensors"),
        load_file(tmp_path / "whole" / "out.safetensors"),
    )


def test_killed_at_random_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, num_kills=3, num_steps=100, seed=0)


@pytest.mark.slow
def test_killed_at_twenty_moments_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, num_kills=20, num_steps=400, seed=1)


def test_two_processes_give_the_losses_of_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert start(one).wait() == 0
    # gloo on the CPU through the multi-process launcher; the flag's name speaks of GPUs alone.
    launch = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
    options = ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]
    files = [two / "checkpoints", two / "out.safetensors", "num_processes=2"]
    command = [sys.executable, "-m", *launch, *options, PROGRAM, *files]
    environment = _environment() | {"ACCELERATE_USE_CPU": "true"}
    subprocess.run([str(part) for part in command], env=environment, check=True, timeout=120)
    first, second = (load_file(path / "out.safetensors") for path in (one, two))
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=1e-4, atol=1e-6, msg=name)
