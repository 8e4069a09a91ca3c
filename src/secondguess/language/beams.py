"""Beam search: the most probable responses that a pair model can give, found without drawing.

Candidates for `decode_selective` and `decode_top1` (section 4.1), without any randomness. Beams are
extended by their probability alone, p(y1|x) at temperature 1; confidence judges them afterwards.
Sampling is in `generation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from secondguess._arrays import check_at_least
from secondguess.language.formatting import EncodedRow, Prompt
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import Prefix, Tokens, at_least_float32, select_rows
from secondguess.language.recalibration import wordings_only
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, ScoredResponse, score_tokens


@torch.inference_mode()
def beam_search(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    *,
    num_beams: int = 10,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[list[ScoredResponse]]:
    """Up to `num_beams` responses per prompt, the most probable first, with their scores.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> [found] = beam_search(tiny_pair_model(), ["flip"], num_beams=3)
    >>> [round(float(each.scores.log_marginal), 2) for each in found]
    [-3.1, -3.19, -3.21]

    Responses have at least one token besides their end. One that is not over at the last of its
    `response_length` positions is ended there, and says so (`cut_off`) where another token would
    have been more probable. With as many beams as there are responses, none is missed.

    Args:
        model: a pair model.
        prompts: text, chat messages, tokens or encoded rows; searched one after the other.
        num_beams: unfinished responses that are followed at a time.
        batch_size: how many responses are scored side by side.
    """
    check_at_least("num_beams", num_beams, 1)
    encoded = [model.formatter.prompt_tokens(prompt) for prompt in prompts]
    found = {prompt: _search(model, prompt, num_beams) for prompt in dict.fromkeys(encoded)}
    items = [(prompt, y, y) for prompt, ended in found.items() for y in ended]
    scored = dict(zip(items, score_tokens(model, items, batch_size=batch_size), strict=True))
    recalibration = wordings_only(model.recalibration)
    return [
        [
            ScoredResponse(
                y, model.formatter.text(y), *scored[prompt, y, y], cut_off, recalibration
            )
            for y, cut_off in found[prompt].items()
        ]
        for prompt in encoded
    ]


def _search(model: PairLanguageModel, prompt: Tokens, num_beams: int) -> dict[Tokens, bool]:
    """The best responses, with whether they were cut off."""
    end, length = model.formatter.end, model.formatter.config.response_length
    prefix = Prefix.of(model, [prompt])
    mask, logits = prefix.attention_mask, prefix.logits
    beams: list[Tokens] = [()]
    weights = torch.zeros(1, dtype=torch.float64, device=logits.device)
    ended: list[tuple[float, Tokens, bool]] = []
    for step in range(length):
        log_probs = at_least_float32(logits).double().log_softmax(dim=-1)
        totals = weights[:, None] + log_probs
        if step > 0:
            likeliest = log_probs.argmax(dim=-1).tolist()
            for row, total in enumerate(totals[:, end].tolist()):
                cut_off = step == length - 1 and likeliest[row] != end
                ended.append((total, (*beams[row], end), cut_off))
            ended = sorted(ended, key=lambda each: -each[0])[:num_beams]
        if step == length - 1:
            break
        totals[:, end] = -torch.inf
        weights, rows, tokens = _best(totals, num_beams)
        # Going on never raises a probability: what is behind all that has ended stays behind.
        if not rows or (len(ended) == num_beams and float(weights[0]) <= ended[-1][0]):
            break
        beams = [(*beams[row], token) for row, token in zip(rows, tokens, strict=True)]
        select_rows(prefix.cache, rows, logits.device)
        mask = torch.cat([mask[rows], mask.new_ones(len(rows), 1)], dim=1)
        output = model.network(
            input_ids=torch.tensor(tokens, device=logits.device)[:, None],
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=torch.full((len(rows), 1), prefix.starts[0] + step, device=logits.device),
            past_key_values=prefix.cache,
            use_cache=True,
        )
        logits = output.logits[:, -1]
    return {tokens: cut_off for total, tokens, cut_off in ended if total > -torch.inf}


def _best(totals: Tensor, num_beams: int) -> tuple[Tensor, list[int], list[int]]:
    """The largest entries of a table that are possible at all, and their rows and columns."""
    flat = totals.flatten()
    values, places = flat.topk(min(num_beams, len(flat)))
    possible = values > -torch.inf
    values, places = values[possible], places[possible]
    width = totals.shape[1]
    return values, (places // width).tolist(), (places % width).tolist()
