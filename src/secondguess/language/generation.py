"""Sample a response and score it in one go; answer or abstain.

While a response is sampled, the log-probabilities of its tokens and the model's cache are kept, so
that its confidence costs one further parallel pass over it. However the tokens are chosen
(temperature, cut-offs), scores are those of the model itself, at temperature 1: Theorem 4.5 holds
for every decoder that sees the prompt only through the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

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
from secondguess.language.formatting import Prompt, pad
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import (
    DEFAULT_BATCH_SIZE,
    Prefix,
    ScoredResponse,
    Tokens,
    at_least_float32,
    chunks,
    log_prob_of,
    score_tokens,
    select_rows,
    totals,
)
from secondguess.theory.decoding import decode_rejection, decode_selective, decode_top1
from secondguess.theory.records import Decision, GapKind

Strategy = Literal["selective", "rejection", "top1"]


class Rule(TypedDict):
    """What all decoders are told."""

    max_hallucination_rate: float
    gap: GapKind


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
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature!r}; expected a number above 0 (top_k=1 is "
                f"greedy)."
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
    prompts: Sequence[Prompt],
    *,
    rng: np.random.Generator,
    sampling: Sampling | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[ScoredResponse]:
    """Draw one response a prompt from p(y1|x), with its scores.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> [one] = sample(tiny_pair_model(), ["flip"], rng=np.random.default_rng(0))
    >>> one.log_marginal.shape == one.log_self_conditional.shape == (len(one.tokens),)
    True

    Responses have at least one token besides their end, and one that is not over at the last of its
    `response_length` positions is ended there, at the price that the model puts on it.

    Args:
        model: a pair model.
        prompts: text, chat messages or tokens; equal prompts are computed once a batch, equal
            responses to one prompt are scored once.
        rng: row i uses the i-th row of `rng.random((len(prompts), response_length))`, whatever
            `batch_size` is.
        sampling: how tokens are chosen; from the model's distribution if None.
        batch_size: how many responses are drawn side by side.
    """
    check_at_least("batch_size", batch_size, 1)
    formatter = model.formatter
    encoded = [formatter.prompt_tokens(prompt) for prompt in prompts]
    uniforms = rng.random((len(prompts), formatter.config.response_length))
    processors = (sampling or Sampling()).processors()
    order = sorted(range(len(prompts)), key=lambda row: (len(encoded[row]), encoded[row], row))
    known: dict[tuple[Tokens, Tokens], FloatArray] = {}
    results: dict[int, ScoredResponse] = {}
    for rows in chunks(order, batch_size):
        asked = [encoded[row] for row in rows]
        drawn = _draw(model, asked, uniforms[rows], processors)
        _score_again(model, asked, drawn, known)
        for row, prompt, tokens, log_marginal in zip(
            rows, asked, drawn.tokens, drawn.log_marginal, strict=True
        ):
            text = formatter.text(tokens)
            results[row] = ScoredResponse(tokens, text, log_marginal, known[prompt, tokens])
    return [results[row] for row in range(len(prompts))]


def answer(
    model: PairLanguageModel,
    prompts: Sequence[Prompt],
    max_hallucination_rate: float,
    *,
    rng: np.random.Generator,
    strategy: Strategy = "selective",
    num_candidates: int = 10,
    sampling: Sampling | None = None,
    gap: GapKind = "absolute",
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[Decision[ScoredResponse]]:
    """Answer each prompt, or abstain where the bound on hallucination is too weak.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> model, rng = tiny_pair_model(), np.random.default_rng(0)
    >>> [decision] = answer(model, ["flip"], 0.9, strategy="rejection", rng=rng)
    >>> decision.abstained, decision.gap <= 0.9, str(decision.bound.rests_on)
    (False, True, 'if calibrated on pairs')

    Args:
        model: a pair model.
        prompts: text, chat messages or tokens.
        max_hallucination_rate: the largest bound that is still answered, in (0, 1).
        rng: the randomness of the samples.
        strategy: `selective` (one sample), `rejection` (sample up to `num_candidates` times) or
            `top1` (the most probable of `num_candidates` samples); see `theory.decoding`.
        num_candidates: how many samples a prompt may cost; not used by `selective`.
        sampling: how tokens are chosen.
        gap: how confidences above 1 are treated; see `SelfCheatScores.confidence_gap`.
        batch_size: how many responses are drawn side by side.
    """
    rule: Rule = {"max_hallucination_rate": max_hallucination_rate, "gap": gap}

    def draw(asked: Sequence[Prompt]) -> list[ScoredResponse]:
        return sample(model, asked, rng=rng, sampling=sampling, batch_size=batch_size)

    check_at_least("num_candidates", num_candidates, 1)
    match strategy:
        case "selective":
            drawn = draw(prompts)
            return decode_selective(drawn, totals(drawn), **rule)
        case "rejection":
            return _answer_by_rejection(prompts, draw, num_candidates, rule)
        case "top1":
            drawn = draw([prompt for prompt in prompts for _ in range(num_candidates)])
            return [
                decode_top1(candidates, totals(candidates), **rule)
                for candidates in chunks(drawn, num_candidates)
            ]
    raise ValueError(f"strategy is {strategy!r}; expected one of {', '.join(get_args(Strategy))}.")


def _answer_by_rejection(
    prompts: Sequence[Prompt],
    draw: Callable[[Sequence[Prompt]], list[ScoredResponse]],
    num_candidates: int,
    rule: Rule,
) -> list[Decision[ScoredResponse]]:
    """One candidate at a time, for the prompts that are still without an answer."""
    candidates: list[list[ScoredResponse]] = [[] for _ in prompts]
    decisions: dict[int, Decision[ScoredResponse]] = {}
    waiting = list(range(len(prompts)))
    for _ in range(num_candidates):
        drawn = draw([prompts[row] for row in waiting]) if waiting else []
        for row, response in zip(waiting, drawn, strict=True):
            candidates[row].append(response)
            decisions[row] = decode_rejection(candidates[row], totals(candidates[row]), **rule)
        waiting = [row for row in waiting if decisions[row].abstained]
    return [decisions[row] for row in range(len(prompts))]


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Responses just drawn, and the cache of the prompts and the responses (without their ends)."""

    tokens: list[Tokens]
    log_marginal: list[FloatArray]
    cache: Any
    attention_mask: Tensor


def _draw(
    model: PairLanguageModel,
    prompts: Sequence[Tokens],
    uniforms: FloatArray,
    processors: LogitsProcessorList,
) -> _Drawn:
    distinct = list(dict.fromkeys(prompts))
    prefix = Prefix.of(model, distinct)
    if len(distinct) < len(prompts):
        prefix = prefix.select([distinct.index(prompt) for prompt in prompts])
    end, device = model.formatter.end, prefix.logits.device
    last = model.formatter.config.response_length - 1
    positions = torch.tensor(prefix.lengths, device=device)
    running = torch.ones(len(prompts), dtype=torch.bool, device=device)
    mask, logits = prefix.attention_mask, prefix.logits
    has_holes = not bool(mask.all())
    chosen: list[Tensor] = []
    log_probs: list[FloatArray] = []
    ids = torch.empty(len(prompts), 0, dtype=torch.long, device=device)  # no processor reads them
    end_index = torch.tensor([end], device=device)
    # A finished row keeps its place in the batch and reads masked end tokens.
    for step in range(last + 1):
        if step == last:
            token = torch.full_like(positions, end)
        else:
            allowed = at_least_float32(logits)
            if step == 0:
                allowed = allowed.index_fill(1, end_index, -torch.inf)
            weights = processors(ids, allowed).softmax(dim=-1)  # pyright: ignore[reportArgumentType]
            token = _invert_cumulative(weights, torch.from_numpy(uniforms[:, step]).to(device))
            token = torch.where(running, token, end)
        chosen.append(token)
        log_probs.append(log_prob_of(logits, token))
        running = running & (token != end)
        if not running.any():
            break
        has_holes = has_holes or not bool(running.all())
        mask = torch.cat([mask, running[:, None].to(mask.dtype)], dim=1)
        output = model.network(
            input_ids=token[:, None],
            attention_mask=mask if has_holes else None,
            position_ids=(positions + step)[:, None],
            past_key_values=prefix.cache,
            use_cache=True,
        )
        logits = output.logits[:, -1]
    table, log_prob_table = torch.stack(chosen, dim=1).tolist(), np.stack(log_probs, axis=1)
    tokens = [tuple(row[: row.index(end) + 1]) for row in table]
    log_marginal = [log_prob_table[row, : len(each)] for row, each in enumerate(tokens)]
    return _Drawn(tokens, log_marginal, prefix.cache, mask)


def _invert_cumulative(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The token at which the cumulative probability first exceeds each uniform number."""
    cumulative = weights.double().cumsum(dim=-1)
    thresholds = uniforms[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, thresholds, right=True).squeeze(-1)


def _score_again(
    model: PairLanguageModel,
    prompts: Sequence[Tokens],
    drawn: _Drawn,
    known: dict[tuple[Tokens, Tokens], FloatArray],
) -> None:
    """Add log p(y_t | x, y, y_<t) of each drawn response to what is known, in one pass."""
    fresh: dict[tuple[Tokens, Tokens], int] = {}
    for row, item in enumerate(zip(prompts, drawn.tokens, strict=True)):
        if item not in known:
            fresh.setdefault(item, row)
    if not fresh:
        return
    if any(getattr(layer, "is_sliding", False) for layer in drawn.cache.layers):
        # Masked end tokens of rows that ended early would push real ones out of the window.
        items = [(prompt, tokens, tokens) for prompt, tokens in fresh]
        scored = score_tokens(model, items, batch_size=len(items))
        known.update(zip(fresh, (second for _, second in scored), strict=True))
        return
    rows, device = list(fresh.values()), drawn.attention_mask.device
    mask = drawn.attention_mask
    if len(rows) < len(prompts):
        select_rows(drawn.cache, rows, device)
        mask = mask[torch.tensor(rows, device=device)]
    inputs, positions, first_predictors = [], [], []
    for prompt, tokens in fresh:
        laid_out = model.formatter.lay_out_responses(len(prompt), tokens, tokens)
        # The cache holds y without its end; what follows starts with that end token.
        inputs.append(laid_out.tokens[len(tokens) - 1 : -1])
        positions.append(laid_out.positions[len(tokens) - 1 : -1])
        first_predictors.append(len(inputs[-1]) - len(tokens))
    read = pad([[1] * len(each) for each in inputs], 0, "right").to(device)
    output = model.network(
        input_ids=pad(inputs, model.formatter.end, "right").to(device),
        attention_mask=torch.cat([mask, read], dim=1),
        position_ids=pad(positions, 0, "right").to(device),
        past_key_values=drawn.cache,
        use_cache=True,
    )
    # Row by row, the logits that predict y_1 .. y_n, end, and nothing else.
    targets = pad([tokens for _, tokens in fresh], model.formatter.end, "right").to(device)
    offsets = torch.tensor(first_predictors, device=device)[:, None]
    index = (offsets + torch.arange(targets.shape[1], device=device)).clamp(max=read.shape[1] - 1)
    log_probs = log_prob_of(output.logits.take_along_dim(index[..., None], dim=1), targets)
    for row, item in enumerate(fresh):
        known[item] = log_probs[row, : len(item[1])]
