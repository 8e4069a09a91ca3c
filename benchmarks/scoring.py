"""Sequences: sampling with scores, scoring and pair training, as ratios against a plain peer.

Run with `make bench`, or `python benchmarks/scoring.py`. The model is a random GPT-2 of 14 million
parameters. Each time is the best of `--repeats` runs (b: one run), in processor time, the two sides
in turn, on the same tokens:

a. `sample` (32 tokens, with scores) against `model.generate` (32 tokens, same settings); beside it
   the least that a score can cost: `generate`, and one bare pass over the tokens that it wrote;
b. `score` of 120 responses of 20 tokens to one prompt of 200 tokens against plain passes over
   prompt + y + y in batches of the same size;
c. tokens per second of a training step on pairs, collation included, against a step of plain
   training on as many tokens;
d. the clustered baseline, 10 samples per prompt with `model.generate`, against one sample.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import best_seconds
from transformers import GPT2Config, GPT2LMHeadModel

from secondguess.language.collating import PairCollator, collate_pairs
from secondguess.language.formatting import EncodedRow, PairFormat, PairFormatter
from secondguess.language.generation import Sampling, sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.rankers import clustered
from secondguess.language.scoring import Tokens, score_tokens
from secondguess.language.tokenizer import word_tokenizer

VOCAB_SIZE = 8192
NEW_TOKENS = 32
PROMPT_LENGTH = 32
SAMPLING = Sampling(temperature=0.9, top_k=50)


def new_network() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_embd=384,
        n_layer=6,
        n_head=6,
        n_positions=512,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def pair_model(network: Any, response_length: int) -> PairLanguageModel:
    tokenizer = word_tokenizer([f"w{index}" for index in range(VOCAB_SIZE - 2)])
    formatter = PairFormatter(
        tokenizer, PairFormat(response_length=response_length), context_length=512
    )
    return PairLanguageModel(network, formatter)


def random_tokens(rng: np.random.Generator, length: int) -> Tokens:
    return tuple(rng.integers(2, VOCAB_SIZE, size=length).tolist())


def sampling_seconds(network: Any, batch_size: int, repeats: int) -> list[float]:
    """Seconds of `generate`, `sample`, a bare pass, and (small batches) of 10 clustered samples."""
    model = pair_model(network, NEW_TOKENS + 1)
    rng = np.random.default_rng(1)
    prompts = [random_tokens(rng, PROMPT_LENGTH) for _ in range(batch_size)]
    ids = torch.tensor(prompts)
    mask = torch.ones_like(ids)

    def generate(copies: int = 1) -> torch.Tensor:
        return network.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=SAMPLING.temperature,
            top_k=SAMPLING.top_k,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            num_return_sequences=copies,
            pad_token_id=0,
        )

    def sample_and_score() -> object:
        return sample(
            model,
            prompts,
            rng=np.random.default_rng(0),
            sampling=SAMPLING,
            batch_size=batch_size,
        )

    with torch.inference_mode():
        read = network(torch.cat([ids, ids], dim=1), use_cache=True).past_key_values

    @torch.inference_mode()
    def bare_pass() -> object:
        """Over as many tokens as were written, behind as many as were read and written."""
        logits = network(ids[:, :NEW_TOKENS], past_key_values=read, use_cache=True).logits
        read.crop(-NEW_TOKENS)
        return logits

    def cluster() -> object:
        texts = generate(10)[:, PROMPT_LENGTH:].tolist()
        return clustered(lambda one, two: one == two, group_size=10)(texts)

    return best_seconds(
        generate,
        sample_and_score,
        bare_pass,
        *([cluster] if batch_size < 64 else []),
        repeats=repeats,
        clock=time.process_time,
        warm_up=repeats > 1,  # a single run is long enough to need none
    )


@torch.inference_mode()
def plain_scores(
    model: PairLanguageModel, items: list[tuple[Tokens, Tokens, Tokens]], size: int
) -> None:
    for start in range(0, len(items), size):
        pairs = [model.formatter.lay_out(*item) for item in items[start : start + size]]
        batch = collate_pairs(pairs, end=model.formatter.end)
        labels = batch.pop("labels")
        logits = model.network(**batch, use_cache=False).logits[:, :-1]
        targets = labels[:, 1:]
        scored = targets >= 0
        logits[scored].log_softmax(dim=-1).gather(-1, targets[scored][:, None])


def scoring_seconds(network: Any, repeats: int, batch_size: int) -> list[float]:
    model = pair_model(network, 21)
    rng = np.random.default_rng(2)
    prompt = random_tokens(rng, 200)
    responses = [(*random_tokens(rng, 19), 0) for _ in range(120)]
    items = [(prompt, response, response) for response in responses]
    return best_seconds(
        lambda: plain_scores(model, items, batch_size),
        lambda: score_tokens(model, items, batch_size=batch_size),
        repeats=repeats,
        clock=time.process_time,
        warm_up=repeats > 1,
    )


def training_tokens_per_second(repeats: int) -> list[float]:
    network = new_network().train()
    model = pair_model(network, 21)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    rng = np.random.default_rng(3)
    rows = [
        EncodedRow(random_tokens(rng, 24), tuple((*random_tokens(rng, 19), 0) for _ in range(3)))
        for _ in range(32)
    ]
    collator = PairCollator(model.formatter)
    num_tokens = 32 * 64
    plain_ids = torch.from_numpy(rng.integers(2, VOCAB_SIZE, size=(32, 64)))

    def step(batch: dict[str, torch.Tensor]) -> None:
        assert batch["input_ids"].numel() == num_tokens
        network(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    plain_batch = {
        "input_ids": plain_ids,
        "attention_mask": torch.ones_like(plain_ids),
        "labels": plain_ids,
    }
    seconds = best_seconds(
        lambda: step(plain_batch),
        lambda: step(collator(rows)),
        repeats=repeats,
        clock=time.process_time,
        warm_up=repeats > 1,
    )
    return [num_tokens / each for each in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    network = new_network()
    size = network.num_parameters() / 1e6
    print(f"GPT-2 of {size:.1f} million parameters, float32, {torch.get_num_threads()} thread(s)")

    print("a. sample with scores / generate; least; d. 10 samples, clustered / generate")
    sampling = []
    for batch_size in (1, 8, 64):
        plain, ours, bare, *clusters = sampling_seconds(network, batch_size, arguments.repeats)
        found = {"sample": ours / plain, "least": 1 + bare / plain}
        if clusters:
            found["clustered"] = clusters[0] / plain
        sampling.append({"batch_size": batch_size, **found})
        ratios = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(f"   batch {batch_size}: {ratios}", flush=True)

    plain, ours = scoring_seconds(network, 1, batch_size=32)
    scoring = plain / ours
    print("b. 120 responses of 20 tokens to one prompt of 200 tokens: plain passes / score")
    print(f"   {scoring:.2f}x", flush=True)

    plain, ours = training_tokens_per_second(arguments.repeats)
    training = ours / plain
    print("c. training, tokens per second (32 rows of 64 tokens): pairs / plain")
    print(f"   {training:.2f}x")
    if arguments.out:
        command = (
            f"python benchmarks/scoring.py --repeats {arguments.repeats} --threads "
            f"{arguments.threads} --out {arguments.out}"
        )
        record = {
            "command": command,
            "parameters": network.num_parameters(),
            "sampling": sampling,
            "scoring": scoring,
            "training": training,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
