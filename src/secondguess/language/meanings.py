"""The confidence of what an answer means, whichever way it is worded.

Let f give each response its meaning. Pairs of meanings (f(Y1), f(Y2)) are pairs of independent
responses too, and a model that is calibrated on pairs is calibrated on them: summed over the
wordings, E[p(y1|X) p(y2|X) | group] is E[p(m1|X) p(m2|X) | group]. So every theorem holds for
meanings, with p(m|x) and p(m, m|x) in the place of p(y|x) and p(y, y|x).

These are sums over all wordings. Each draw is a y1 from p(y|x) and a y2 from p(y|y1,x). What was
drawn is summed exactly, by scoring every pair of drawn wordings of one meaning; what was not drawn
is estimated. `ScoredMeaning` has both: an estimate, and bounds with the sampling error inside.

Functions f are in `meaning_functions`, the sums in `meaning_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from secondguess._arrays import FloatArray, check_at_least, check_rate
from secondguess.language.drawing import sample_firsts, sample_seconds
from secondguess.language.formatting import EncodedRow, PairFormatter, Prompt
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meaning_sums import DrawnPair, Draws
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, Tokens, chunks, score_tokens
from secondguess.theory.records import SelfCheatScores

TokenScores = list[tuple[FloatArray, FloatArray]]

FAILURE_RATE = 0.01
"""How often cautious scores of a prompt may not be cautious enough."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredMeaning:
    """A meaning, how it was worded, and how likely it is with and without peeking.

    Two scored meanings are equal if their meanings are.

    Attributes:
        meaning: what f gave.
        text: the most probable wording that was drawn.
        num_draws: how many of the first responses had this meaning.
        scores: estimates of log p(m|x) and log p(m|m,x), shape `()`; given that m was drawn, those
            of p(m|x) and p(m, m|x) are unbiased.
        cautious: scores whose confidence is at most the true one of the model, shape `()`, except
            with the probability `failure_rate` of the call: for bounds.
        cut_off: whether the wording was ended at the length limit, not by the model.
        num_tokens: of the responses with this meaning and of those drawn behind them, together.
    """

    meaning: Hashable
    text: str
    num_draws: int
    scores: SelfCheatScores
    cautious: SelfCheatScores
    cut_off: bool = False
    num_tokens: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoredMeaning) and self.meaning == other.meaning

    def __hash__(self) -> int:
        return hash(self.meaning)


def score_meanings(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    meaning: Meaning,
    *,
    rng: np.random.Generator | Sequence[np.random.Generator],
    num_samples: int = 10,
    others: Sequence[Collection[Hashable]] | None = None,
    failure_rate: float = FAILURE_RATE,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[list[ScoredMeaning]]:
    """The meanings of sampled answers to each prompt, in the order in which they were drawn first.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> [meanings] = score_meanings(
    ...     tiny_pair_model(), ["flip"], lambda text: text.split()[0],
    ...     rng=np.random.default_rng(0), num_samples=20,
    ... )
    >>> {each.meaning for each in meanings} <= {"flip", "heads", "tails", "<BOS>"}
    True
    >>> sum(each.num_draws for each in meanings)
    20

    It costs `num_samples` first responses and a second one behind each that is judged, and one
    score for each pair of distinct wordings of one meaning: k² for k wordings, of which at most 12
    are looked at. Whatever begins alike is computed once. Where
    wordings repeat, a few samples are enough, because drawn wordings are summed exactly. Where no
    wording is drawn twice, as in long answers, everything is counted, and cautious scores need a
    hundred samples or more.

    Args:
        model: a pair model.
        prompts: text, chat messages, tokens or encoded rows.
        meaning: f, a function of the text; see `normalised`, `by_pattern`, `by_json_field` and
            `by_embedding`.
        rng: the randomness of the samples; or one generator per prompt, so that what is drawn for a
            prompt does not depend on the others.
        num_samples: pairs drawn per prompt, at least 2.
        others: for each prompt, which meanings are judged besides the one that is drawn first, if
            they are drawn; all that are drawn if None.
        failure_rate: how often cautious scores of a prompt may not be cautious enough; the bound
            that they give is to be read with this added.
        batch_size: how many responses are drawn side by side.
    """
    check_rate("failure_rate", failure_rate)
    drawn = draw_pairs(
        model,
        prompts,
        meaning,
        rng=rng,
        num_samples=num_samples,
        others=others,
        batch_size=batch_size,
    )
    return judge_pairs(
        drawn,
        meaning,
        model.formatter,
        lambda items: score_tokens(model, items, batch_size=batch_size),
        recalibration=model.recalibration,
        failure_rate=failure_rate,
    )


class DrawnPairs(NamedTuple):
    """What was drawn for a prompt.

    Attributes:
        prompt: its tokens.
        pairs: each a y1 from p(y|x) and a y2 from p(y|y1,x), if the meaning of y1 is judged.
        cut_off: responses that were ended at the length limit.
        log_marginal: log p(y|x) of responses that was seen while they were drawn.
    """

    prompt: Tokens
    pairs: Sequence[DrawnPair]
    cut_off: frozenset[Tokens]
    log_marginal: Mapping[Tokens, float] = {}


def draw_pairs(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    meaning: Meaning,
    *,
    rng: np.random.Generator | Sequence[np.random.Generator],
    num_samples: int,
    others: Sequence[Collection[Hashable]] | None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[DrawnPairs]:
    """The draws that `score_meanings` judges; see there."""
    check_at_least("num_samples", num_samples, 2)
    encoded = [EncodedRow(model.formatter.prompt_tokens(prompt)) for prompt in prompts]
    asked = [row for row in encoded for _ in range(num_samples)]
    each_rng = None
    if not isinstance(rng, np.random.Generator):
        rng = each_rng = [each for each in rng for _ in range(num_samples)]
    firsts = sample_firsts(model, asked, rng=rng, batch_size=batch_size)
    chosen = range(len(firsts))
    if others is not None:
        means = [meaning(model.formatter.text(each.tokens)) for each in firsts]
        chosen = [
            row
            for row, name in enumerate(means)
            if name == means[row - row % num_samples] or name in others[row // num_samples]
        ]
    seconds = sample_seconds(
        model,
        [EncodedRow(asked[row].prompt, (firsts[row].tokens,)) for row in chosen],
        rng=rng if each_rng is None else [each_rng[row] for row in chosen],
        batch_size=batch_size,
    )
    second_of = {row: tokens for row, (tokens, _) in zip(chosen, seconds, strict=True)}
    pairs = [(each.tokens, second_of.get(row)) for row, each in enumerate(firsts)]
    return [
        DrawnPairs(
            row.prompt,
            list(some),
            frozenset(y.tokens for y in own if y.cut_off),
            {y.tokens: float(y.log_probs.sum()) for y in own},
        )
        for row, some, own in zip(
            encoded, chunks(pairs, num_samples), chunks(firsts, num_samples), strict=True
        )
    ]


def judge_pairs(
    drawn: Sequence[DrawnPairs],
    meaning: Meaning,
    formatter: PairFormatter,
    score_pairs: Callable[[list[tuple[Tokens, Tokens, Tokens]]], TokenScores],
    *,
    recalibration: SequenceRecalibration | None,
    failure_rate: float = FAILURE_RATE,
) -> list[list[ScoredMeaning]]:
    """The meanings of pairs that were drawn, wherever the model is.

    Args:
        drawn: the pairs of each prompt.
        meaning: f, a function of the text.
        formatter: of the model.
        score_pairs: per-token log-probabilities of y1 and of y2 after it, for items (x, y1, y2).
        recalibration: of the model; it counts if it is about meanings.
        failure_rate: as in `score_meanings`.
    """
    sums = [Draws.of(each.pairs, lambda tokens: meaning(formatter.text(tokens))) for each in drawn]
    items = []
    for each, draws in zip(drawn, sums, strict=True):
        judged = set(draws.judged)
        for name in draws.drawn:
            group = draws.scored(name)
            if name in judged:
                items += [(each.prompt, one, two) for one in group for two in group]
            else:
                items += [(each.prompt, y, y) for y in group if y not in each.log_marginal]
    log_probs = {
        (each.prompt, y, y): (log_prob, 0.0)
        for each in drawn
        for y, log_prob in each.log_marginal.items()
    }
    log_probs |= {
        item: (float(first.sum()), float(second.sum()))
        for item, (first, second) in zip(items, score_pairs(items), strict=True)
    }
    correct = recalibration if recalibration and recalibration.of_meanings else _unchanged
    results = []
    for each, draws in zip(drawn, sums, strict=True):
        summed = draws.summed(
            lambda one, two, prompt=each.prompt: np.exp(log_probs[prompt, one, two]),
            failure_rate=failure_rate,
        )
        results.append(
            [
                ScoredMeaning(
                    name,
                    formatter.text(found.best),
                    found.num_draws,
                    correct(found.scores(cautious=False)),
                    correct(found.scores(cautious=True)),
                    found.best in each.cut_off,
                    draws.num_tokens(name),
                )
                for name, found in summed.items()
            ]
        )
    return results


def _unchanged(scores: SelfCheatScores) -> SelfCheatScores:
    return scores
