"""Sample first responses with their scores, and second responses behind given first ones.

While a response is sampled, the log-probabilities of its tokens and the model's cache are kept, so
that its confidence costs one further parallel pass over it. However the tokens are chosen
(temperature, cut-offs), scores are those of the model itself, at temperature 1: Theorem 4.5 holds
for every decoder that sees the prompt only through the model. Decoders are in `answering`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from secondguess._arrays import FloatArray, check_at_least
from secondguess.language.collating import pad
from secondguess.language.drawing import uniform_numbers
from secondguess.language.formatting import EncodedRow, Prompt
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import (
    Prefix,
    at_least_float32,
    check_numbers,
    log_prob_of,
    select_rows,
)
from secondguess.language.recalibration import wordings_only
from secondguess.language.scoring import (
    DEFAULT_BATCH_SIZE,
    ScoredResponse,
    Tokens,
    chunks,
    score_tokens,
)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen, in the order and with the meaning of `transformers`.

    >>> Sampling(temperature=0.9, min_probability=0.005)
    Sampling(temperature=0.9, top_k=None, top_p=None, min_probability=0.005)

    Attributes:
        temperature: logits are divided by it.
        top_k: only the k most likely tokens (1 is greedy).
        top_p: only the most likely tokens that together reach this probability.
        min_probability: no token less likely than this (`epsilon_cutoff` of `transformers`).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_probability: float | None = None

    def __post_init__(self) -> None:
        # Beyond these ends, logits in single precision are all alike or not numbers.
        if not 1e-3 <= self.temperature <= 1e3:
            raise ValueError(
                f"temperature is {self.temperature!r}; expected a number from 0.001 to 1000 "
                f"(top_k=1 is greedy)."
            )
        if self.top_k is not None:
            check_at_least("top_k", self.top_k, 1)
        for name in ("top_p", "min_probability"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} is {value!r}; expected a number between 0 and 1.")

    def processors(self) -> LogitsProcessorList:
        """The processors of `transformers` that do it."""
        processors = LogitsProcessorList()
        if self.temperature != 1.0:
            processors.append(TemperatureLogitsWarper(self.temperature))
        if self.top_k is not None:
            processors.append(TopKLogitsWarper(self.top_k))
        if self.top_p is not None:
            processors.append(TopPLogitsWarper(self.top_p))
        if self.min_probability is not None:
            processors.append(EpsilonLogitsWarper(self.min_probability))
        return processors


@torch.inference_mode()
def sample(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    *,
    rng: np.random.Generator | Sequence[np.random.Generator],
    sampling: Sampling | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[ScoredResponse]:
    """Draw one response per prompt from p(y1|x), with its scores.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> [one] = sample(tiny_pair_model(), ["flip"], rng=np.random.default_rng(0))
    >>> one.log_marginal.shape == one.log_self_conditional.shape == (len(one.tokens),)
    True

    Responses have at least one token besides their end, and one that is not over at the last of its
    `response_length` positions is ended there, at the price that the model puts on it, and says so
    (`cut_off`).

    Args:
        model: a pair model.
        prompts: text, chat messages, tokens or encoded rows; equal prompts are computed once per
            batch, equal responses to one prompt are scored once.
        rng: row i uses the i-th row of `rng.random((len(prompts), response_length))`, whatever
            `batch_size` is; or one generator per prompt.
        sampling: how tokens are chosen; from the model's distribution if None.
        batch_size: how many responses are drawn side by side.
    """
    encoded = [model.formatter.prompt_tokens(prompt) for prompt in prompts]
    known: dict[tuple[Tokens, Tokens], FloatArray] = {}
    results: dict[int, ScoredResponse] = {}
    for rows, drawn in _draw_all(model, encoded, rng, sampling, batch_size):
        asked = [encoded[row] for row in rows]
        _score_again(model, asked, drawn, known)
        for place, (row, prompt) in enumerate(zip(rows, asked, strict=True)):
            tokens = drawn.tokens[place]
            results[row] = ScoredResponse(
                tokens,
                model.formatter.text(tokens),
                drawn.log_probs[place],
                known[prompt, tokens],
                drawn.cut_off[place],
                wordings_only(model.recalibration),
            )
    return [results[row] for row in range(len(prompts))]


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Responses just drawn, and the cache of what stands before them and of themselves.

    The cache has no end tokens. Lists have one entry per row.
    """

    tokens: list[Tokens]
    log_probs: list[FloatArray]
    cut_off: list[bool]
    cache: Any
    attention_mask: Tensor


def _draw_all(
    model: PairLanguageModel,
    prompts: Sequence[Tokens],
    rng: np.random.Generator | Sequence[np.random.Generator],
    sampling: Sampling | None,
    batch_size: int,
) -> Iterator[tuple[list[int], _Drawn]]:
    """Rows and what was drawn for them, batch by batch; prompts of like length go together."""
    check_at_least("batch_size", batch_size, 1)
    uniforms = uniform_numbers(rng, len(prompts), model.formatter.config.response_length)
    processors = (sampling or Sampling()).processors()
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row]), prompts[row], row))
    for rows in chunks(order, batch_size):
        batch = [prompts[row] for row in rows]
        yield list(rows), _draw(model, batch, uniforms[rows], processors)


def _draw(
    model: PairLanguageModel,
    prompts: Sequence[Tokens],
    uniforms: FloatArray,
    processors: LogitsProcessorList,
) -> _Drawn:
    distinct = list(dict.fromkeys(prompts))
    prefix = Prefix.of(model, distinct)
    if len(distinct) < len(prompts):
        prefix = prefix.select([distinct.index(each) for each in prompts])
    end, device = model.formatter.end, prefix.logits.device
    positions = torch.tensor(prefix.starts, device=device)
    uniform_columns = torch.from_numpy(uniforms.T.copy()).to(device)
    last_step = len(uniform_columns) - 1
    running = torch.ones(len(prompts), dtype=torch.bool, device=device)
    cut_off = torch.zeros_like(running)
    mask, logits = prefix.attention_mask, prefix.logits
    chosen: list[Tensor] = []
    log_probs: list[FloatArray] = []
    # A finished row keeps its place in the batch and reads masked end tokens.
    for step, uniform in enumerate(uniform_columns):
        token = _choose(logits, uniform, processors, forbidden=end if step == 0 else None)
        if step == last_step:
            cut_off = running & (token != end)
            token = torch.full_like(token, end)
        token = torch.where(running, token, end)
        chosen.append(token)
        log_probs.append(log_prob_of(logits, token))
        running = running & (token != end)
        if not running.any():
            break
        mask = torch.cat([mask, running[:, None].to(mask.dtype)], dim=1)
        output = model.network(
            input_ids=token[:, None],
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=(positions + step)[:, None],
            past_key_values=prefix.cache,
            use_cache=True,
        )
        logits = output.logits[:, -1]
    table, log_prob_table = torch.stack(chosen, dim=1).tolist(), np.stack(log_probs, axis=1)
    tokens = [tuple(row[: row.index(end) + 1]) for row in table]
    own_log_probs = [log_prob_table[row, : len(each)] for row, each in enumerate(tokens)]
    return _Drawn(tokens, own_log_probs, cut_off.tolist(), prefix.cache, mask)


def _choose(
    logits: Tensor, uniforms: Tensor, processors: LogitsProcessorList, *, forbidden: int | None
) -> Tensor:
    """One token per row: where the cumulative probability first exceeds the uniform number."""
    allowed = at_least_float32(logits)
    if forbidden is not None:
        allowed = allowed.index_fill(1, torch.tensor([forbidden], device=logits.device), -torch.inf)
    no_tokens: Any = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device)
    processed: Any = processors(no_tokens, allowed)  # pyright: ignore[reportArgumentType]
    cumulative = processed.softmax(dim=-1).double().cumsum(dim=-1)
    check_numbers(cumulative[:, -1].cpu().numpy())
    return torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)[:, 0]


def _score_again(
    model: PairLanguageModel,
    prompts: Sequence[Tokens],
    drawn: _Drawn,
    known: dict[tuple[Tokens, Tokens], FloatArray],
) -> None:
    """Add log p(y_t | x, y, y_<t) of each drawn response to what is known."""
    fresh: dict[tuple[Tokens, Tokens], int] = {}
    for row, item in enumerate(zip(prompts, drawn.tokens, strict=True)):
        if item not in known:
            fresh.setdefault(item, row)
    items, rows = list(fresh), list(fresh.values())
    if not items:
        return
    if any(getattr(layer, "is_sliding", False) for layer in drawn.cache.layers):
        # Masked end tokens of rows that ended early would push real ones out of the window.
        scored = score_tokens(model, [(prompt, y, y) for prompt, y in items], batch_size=len(items))
        known.update(zip(items, (second for _, second in scored), strict=True))
        return
    mask = drawn.attention_mask
    if len(rows) < len(prompts):
        select_rows(drawn.cache, rows, mask.device)
        mask = mask[torch.tensor(rows, device=mask.device)]
    known.update(zip(items, _read_again(model, items, drawn.cache, mask), strict=True))


def _read_again(
    model: PairLanguageModel, items: Sequence[tuple[Tokens, Tokens]], cache: Any, mask: Tensor
) -> list[FloatArray]:
    """Log p of each y after itself, `(tokens,)`, in one pass behind a cache of prompts and ys.

    The cache holds y without its end, so what is read starts with that end token. The logits that
    predict y_1 .. y_n, end are the last ones of each row.
    """
    device, end = mask.device, model.formatter.end
    inputs, positions = [], []
    for prompt, response in items:
        both = model.formatter.lay_out_responses(len(prompt), response, response)
        unread = slice(len(response) - 1, -1)
        inputs.append(both.tokens[unread])
        positions.append(both.positions[unread])
    read = pad([[1] * len(each) for each in inputs], 0, "right").to(device)
    logits = model.network(
        input_ids=pad(inputs, end, "right").to(device),
        attention_mask=torch.cat([mask, read], dim=1),
        position_ids=pad(positions, 0, "right").to(device),
        past_key_values=cache,
        use_cache=True,
    ).logits
    # Row by row: logits of all rows are too many to be copied, or to stay near the processor.
    return [
        log_prob_of(
            logits[row, len(tokens) - len(response) : len(tokens)],
            torch.tensor(response, device=device),
        )
        for row, (tokens, (_, response)) in enumerate(zip(inputs, items, strict=True))
    ]
