"""Responses drawn from the model's own distribution: what is equal so far is computed once.

Ten draws for one prompt share their first tokens, and a model that is sure gives few different
ones. So the passes run over the distinct beginnings, not over the draws, and a response that has
ended is in no further pass. `generation.sample` draws in other ways, and scores what it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from secondguess._arrays import FloatArray, check_at_least
from secondguess.language.formatting import AnyRow, EncodedRow, Prompt
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import Prefix, at_least_float32, check_numbers, select_rows
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, Tokens, chunks


class DrawnResponse(NamedTuple):
    """A response that was drawn.

    Attributes:
        tokens: the tokens, with the end token.
        log_probs: `(tokens,)`, the log-probability of each token given those before it.
        cut_off: whether it had not ended at the last of its positions, and was ended there.
    """

    tokens: Tokens
    log_probs: FloatArray
    cut_off: bool


def sample_seconds(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    rng: np.random.Generator | Sequence[np.random.Generator],
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[tuple[Tokens, FloatArray]]:
    """Draw y2 from p(y2|y1,x), y1 being the first response of each row.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads"]}]
    >>> rng = np.random.default_rng(0)
    >>> [(tokens, log_probs)] = sample_seconds(tiny_pair_model(), rows, rng=rng)
    >>> len(tokens) == len(log_probs)
    True

    Args:
        model: a pair model.
        rows: prompts with one response or more, of which the first counts.
        rng: used as in `generation.sample`.
        batch_size: how many responses are drawn side by side.

    Returns:
        The tokens of each y2, and log p(y2_t | x, y1, y2_<t), `(tokens,)`.
    """
    encoded = [model.formatter.encode(row, min_responses=1) for row in rows]
    contexts = [_Context(row.prompt, row.responses[0]) for row in encoded]
    uniforms = uniform_numbers(rng, len(rows), model.formatter.config.response_length)
    drawn = _draw_all(model, contexts, uniforms, batch_size=batch_size)
    return [(each.tokens, each.log_probs) for each in drawn]


def sample_firsts(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    *,
    rng: np.random.Generator | Sequence[np.random.Generator],
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[DrawnResponse]:
    """Draw y1 from p(y1|x) for each prompt, without the score that needs a second look.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rng = np.random.default_rng(0)
    >>> [one, two] = sample_firsts(tiny_pair_model(), ["flip", "flip"], rng=rng)
    >>> len(one.tokens) == len(one.log_probs)
    True

    Args:
        model: a pair model.
        prompts: text, chat messages, tokens or encoded rows.
        rng: used as in `generation.sample`.
        batch_size: how many responses are drawn side by side.
    """
    contexts = [_Context(model.formatter.prompt_tokens(prompt)) for prompt in prompts]
    uniforms = uniform_numbers(rng, len(contexts), model.formatter.config.response_length)
    return _draw_all(model, contexts, uniforms, batch_size=batch_size)


def uniform_numbers(
    rng: np.random.Generator | Sequence[np.random.Generator], num_rows: int, length: int
) -> FloatArray:
    """`(num_rows, length)` uniform numbers."""
    if isinstance(rng, np.random.Generator):
        return rng.random((num_rows, length))
    if len(rng) != num_rows:
        raise ValueError(
            f"there are {len(rng)} generators for {num_rows} prompts; expected as many."
        )
    return np.array([each.random(length) for each in rng]).reshape(num_rows, length)


class _Context(NamedTuple):
    """What stands before a response.

    Attributes:
        prompt: its tokens.
        first: the response that is known already, if a second one is to be drawn.
    """

    prompt: Tokens
    first: Tokens | None = None


@torch.inference_mode()
def _draw_all(
    model: PairLanguageModel,
    contexts: Sequence[_Context],
    uniforms: FloatArray,
    *,
    batch_size: int,
) -> list[DrawnResponse]:
    """One response per context, chosen by the uniform numbers `(contexts, response_length)`.

    Args:
        model: a pair model.
        contexts: equal ones are read once; those with a first response must all have one.
        uniforms: the randomness of each row.
        batch_size: how many responses are drawn side by side.
    """
    check_at_least("batch_size", batch_size, 1)
    results: dict[int, DrawnResponse] = {}
    order = sorted(
        range(len(contexts)), key=lambda row: (len(contexts[row].prompt), contexts[row], row)
    )
    for rows in chunks(order, batch_size):
        batch = [contexts[row] for row in rows]
        distinct = list(dict.fromkeys(batch))
        place = {each: index for index, each in enumerate(distinct)}
        prefix = _read(model, distinct)
        drawn = _draw(model, prefix, [place[each] for each in batch], uniforms[rows])
        results.update(zip(rows, drawn, strict=True))
    return [results[row] for row in range(len(contexts))]


def _read(model: PairLanguageModel, contexts: Sequence[_Context]) -> Prefix:
    """Read each prompt once, and first responses behind it."""
    prompts = list(dict.fromkeys(each.prompt for each in contexts))
    prefix = Prefix.of(model, prompts)
    firsts = [each.first for each in contexts if each.first is not None]
    if not firsts:
        return prefix
    if prefix.slides:  # holes between tokens would push real ones out of the window
        whole = [model.formatter.lay_out(each.prompt, each.first or (), ()) for each in contexts]
        return Prefix.of(model, [each.tokens for each in whole], [each.positions for each in whole])
    place = {prompt: index for index, prompt in enumerate(prompts)}
    return prefix.select([place[each.prompt] for each in contexts]).behind(model, firsts)[0]


def _draw(
    model: PairLanguageModel, prefix: Prefix, beginnings: Sequence[int], uniforms: FloatArray
) -> list[DrawnResponse]:
    """Draw row i behind row `beginnings[i]` of a prefix, which is used up."""
    end, device = model.formatter.end, prefix.logits.device
    tokens: list[list[int]] = [[] for _ in beginnings]
    log_probs: list[list[float]] = [[] for _ in beginnings]
    cut_off = np.zeros(len(beginnings), dtype=bool)
    running, beginning = np.arange(len(beginnings)), np.array(beginnings)
    cache, mask, logits = prefix.cache, prefix.attention_mask, prefix.logits
    positions = torch.tensor(prefix.starts, device=device)
    last_step = uniforms.shape[1] - 1
    for step in range(uniforms.shape[1]):
        scores = at_least_float32(logits)
        chosen = _choose(scores, beginning, uniforms[running, step], None if step else end)
        if step == last_step:
            cut_off[running] = chosen != end
            chosen = np.full_like(chosen, end)
        index = torch.from_numpy(np.stack([beginning, chosen])).to(device)
        found = scores[index[0], index[1]] - scores.logsumexp(dim=-1)[index[0]]
        for row, token, log_prob in zip(running, chosen, found.double().tolist(), strict=True):
            tokens[row].append(int(token))
            log_probs[row].append(log_prob)
        goes_on = chosen != end
        running = running[goes_on]
        if not len(running):
            break
        grown, beginning = np.unique(
            np.stack([beginning[goes_on], chosen[goes_on]]), axis=1, return_inverse=True
        )
        parents = torch.from_numpy(grown[0]).to(device)
        select_rows(cache, grown[0].tolist(), device)
        mask = torch.cat([mask[parents], torch.ones_like(mask[parents, :1])], dim=1)
        positions = positions[parents]
        logits = model.network(
            input_ids=torch.from_numpy(grown[1]).to(device)[:, None],
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=(positions + step)[:, None],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
    return [
        DrawnResponse(tuple(each), np.array(logs), bool(cut))
        for each, logs, cut in zip(tokens, log_probs, cut_off, strict=True)
    ]


def _choose(
    logits: Tensor, beginning: np.ndarray, uniforms: FloatArray, forbidden: int | None
) -> np.ndarray:
    """One token per draw: where the cumulative probability of its beginning exceeds its number."""
    if forbidden is not None:
        logits = logits.index_fill(1, torch.tensor([forbidden], device=logits.device), -torch.inf)
    cumulative = logits.softmax(dim=-1).double().cumsum(dim=-1)
    check_numbers(cumulative[:, -1].cpu().numpy())
    # One column per draw of the beginning that has the most of them.
    place = np.array([np.sum(beginning[:row] == each) for row, each in enumerate(beginning)])
    wanted = np.zeros((len(logits), int(place.max()) + 1))
    wanted[beginning, place] = uniforms
    levels = torch.from_numpy(wanted).to(logits.device) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, levels, right=True).cpu().numpy()[beginning, place]
