"""Sums over the wordings of a meaning, from a few draws: estimates and bounds.

Wordings that were drawn are summed exactly, from their probabilities; the rest is estimated without
bias, and bounded twice: by all the mass that was not summed, and by counting. Nothing here runs a
model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from secondguess._arrays import FloatArray
from secondguess.theory.records import SelfCheatScores

Tokens = tuple[int, ...]

_NOT_DRAWN: Hashable = object()
"""What a second response that nobody drew means: nothing else."""

MOST_WORDINGS = 10
"""Wordings of one meaning that are summed exactly; of more, the others are counted."""


DrawnPair = tuple[Tokens, Tokens | None]
"""A y1, and a y2 behind it if one was drawn."""


@dataclass(frozen=True, slots=True)
class MeaningSums:
    """Estimates and bounds of p(m|x) and p(m, m|x)."""

    best: Tokens
    num_draws: int
    probability: float
    joint: float
    least_probability: float
    most_joint: float

    def scores(self, *, cautious: bool) -> SelfCheatScores:
        """The estimates, or the bounds, as scores of shape `()`."""
        marginal = self.least_probability if cautious else self.probability
        joint = self.most_joint if cautious else self.joint
        with np.errstate(divide="ignore"):
            log_marginal = np.log(min(1.0, marginal))
            # p(m, m|x) is at most p(m|x), for every pair of laws.
            log_conditional = min(0.0, np.log(joint) - log_marginal) if marginal > 0 else 0.0
        return SelfCheatScores(np.array(log_marginal), np.array(log_conditional))


@dataclass(frozen=True, slots=True)
class Draws:
    """The pairs that were drawn for one prompt.

    Attributes:
        pairs: y1 and y2 of each draw; no y2 where the meaning of y1 is not judged.
        meanings: their meanings.
        drawn: for each meaning, for each of its wordings, where it came up: 0 for y1 or 1 for y2,
            and the number of the draw. All y1 count as drawn before the first y2.
    """

    pairs: Sequence[DrawnPair]
    meanings: list[tuple[Hashable, Hashable]]
    drawn: dict[Hashable, dict[Tokens, list[tuple[int, int]]]]

    @classmethod
    def of(cls, pairs: Sequence[DrawnPair], meaning: Callable[[Tokens], Hashable]) -> Draws:
        """Put draws in order.

        Args:
            pairs: y1 and y2 of each draw, the latter for all draws of a meaning or for none.
            meaning: called once for each distinct wording.
        """
        meaning_of: dict[Tokens, Hashable] = {}
        drawn: dict[Hashable, dict[Tokens, list[tuple[int, int]]]] = {}
        for place in (0, 1):
            for draw, pair in enumerate(pairs):
                tokens = pair[place]
                if tokens is None:
                    continue
                if tokens not in meaning_of:
                    meaning_of[tokens] = meaning(tokens)
                wordings = drawn.setdefault(meaning_of[tokens], {})
                wordings.setdefault(tokens, []).append((place, draw))
        meanings = [
            (meaning_of[one], _NOT_DRAWN if two is None else meaning_of[two]) for one, two in pairs
        ]
        return cls(pairs, meanings, drawn)

    @property
    def judged(self) -> list[Hashable]:
        """The meanings of first responses with second ones, in the order of their first draws."""
        return list(
            dict.fromkeys(first for first, second in self.meanings if second is not _NOT_DRAWN)
        )

    def num_tokens(self, name: Hashable) -> int:
        """Of all draws whose first response means this."""
        return sum(
            len(one) + len(two or ())
            for (first, _), (one, two) in zip(self.meanings, self.pairs, strict=True)
            if first == name
        )

    def scored(self, name: Hashable) -> list[Tokens]:
        """The wordings whose probabilities are needed: those that any of the sums may run over."""
        # Leaving out one draw takes away at most two of the first wordings.
        return list(self.drawn[name])[: MOST_WORDINGS + 2]

    def summed(
        self, probs: Callable[[Tokens, Tokens], FloatArray], *, failure_rate: float
    ) -> dict[Hashable, MeaningSums]:
        """The sums of each meaning that is judged.

        Args:
            probs: p(y1|x) and p(y2|y1,x) of two scored wordings of one meaning; of meanings that
                are not judged, y1 and y2 are the same, and only p(y1|x) counts.
            failure_rate: for all meanings of this prompt together.
        """
        alone = {
            name: np.array([probs(each, each)[0] for each in self.scored(name)])
            for name in self.drawn
        }
        unseen = max(0.0, 1.0 - sum(float(each.sum()) for each in alone.values()))
        counted = _Counted.of(self.meanings, failure_rate)
        results = {}
        for name in self.judged:
            group = self.scored(name)
            joint = np.array([[float(np.prod(probs(one, two))) for two in group] for one in group])
            probability, both = self.left_one_out(name, alone[name], joint)
            least, most = counted.bounds(name)
            results[name] = MeaningSums(
                best=group[int(alone[name].argmax())],
                num_draws=sum(first == name for first, _ in self.meanings),
                probability=probability,
                joint=both,
                # Wordings that were not summed only add to p(m|x); and pairs with such a wording in
                # the first or in the second place have at most the mass that was not summed, each,
                # because both places of a calibrated model have the same law.
                least_probability=max(float(alone[name].sum()), least),
                most_joint=min(float(joint.sum()) + 2 * unseen, most),
            )
        return results

    def left_one_out(
        self, name: Hashable, alone: FloatArray, joint: FloatArray
    ) -> tuple[float, float]:
        """Unbiased estimates of p(m|x) and p(m, m|x), given that m was drawn.

        A draw i behind the one that named m is independent of the wordings S that the other draws
        came up with first, so the exact sum over S, plus one if draw i means m and is not in S, has
        the right mean, for every such i; and so has the mean over i. Draws up to the one that named
        m do not count so: that it was drawn is why m is looked at. Where every wording was drawn
        twice, it is the exact sum; where the last draw named m, the sum over S is all there is.

        Args:
            name: the meaning m.
            alone: p(y|x) of its scored wordings.
            joint: p(y1, y2|x) of each pair of them.
        """
        place: dict[Tokens | None, int] = {y: index for index, y in enumerate(self.scored(name))}
        probability = both = 0.0
        named = next(draw for draw, (first, _) in enumerate(self.meanings) if first == name)
        behind = range(named + 1, len(self.pairs))
        if not behind:
            known = self._known_without(-1, name)
            return float(alone[known].sum()), float(joint[np.ix_(known, known)].sum())
        for draw in behind:
            one, two = self.pairs[draw]
            known = self._known_without(draw, name)
            probability += float(alone[known].sum())
            both += float(joint[np.ix_(known, known)].sum())
            first, second = self.meanings[draw]
            if first == name:
                probability += place.get(one) not in known
            if first == second == name:
                both += place.get(one) not in known or place.get(two) not in known
        return probability / len(behind), both / len(behind)

    def _known_without(self, draw: int, name: Hashable) -> list[int]:
        """The first wordings that the other draws came up with, by their places in `scored`."""
        came_up = []
        for index, tokens in enumerate(self.scored(name)):
            elsewhere = [each for each in self.drawn[name][tokens] if each[1] != draw]
            if elsewhere:
                came_up.append((elsewhere[0], index))
        return [index for _, index in sorted(came_up)[:MOST_WORDINGS]]


@dataclass(frozen=True, slots=True)
class _Counted:
    """Bounds by counting: the first half of the draws names the meanings, the second counts them.

    Attributes:
        names: meanings of the first half.
        counted: meanings of y1 and y2 in the second half.
        tail: the failure rate of each single bound.
    """

    names: set[Hashable]
    counted: list[tuple[Hashable, Hashable]]
    tail: float

    @classmethod
    def of(cls, meanings: list[tuple[Hashable, Hashable]], failure_rate: float) -> _Counted:
        half = len(meanings) // 2
        names = {first for first, _ in meanings[:half]}
        return cls(names, meanings[half:], failure_rate / (2 * len(names)))

    def bounds(self, name: Hashable) -> tuple[float, float]:
        """At least p(m|x), at most p(m, m|x): Clopper and Pearson's limits."""
        if name not in self.names:
            return 0.0, 1.0
        total = len(self.counted)
        once = sum(first == name for first, _ in self.counted)
        twice = sum(first == second == name for first, second in self.counted)
        least = betaincinv(once, total - once + 1, self.tail) if once else 0.0
        most = betaincinv(twice + 1, total - twice, 1 - self.tail) if twice < total else 1.0
        return float(least), float(most)
