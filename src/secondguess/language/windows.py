"""What is computed for a window of a file of JSON lines: scores, or answers.

`jsonl` reads windows and writes results; here is what happens between. A window's rows depend on
nothing but its lines and the settings, so that it does not matter which process computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secondguess.language.answering import Strategy, answer
from secondguess.language.engine_answers import answer_with
from secondguess.language.engines import Engine, LocalEngine
from secondguess.language.formatting import EncodedRow, PairFormatter
from secondguess.language.generation import Sampling
from secondguess.language.jsonl import SKIPPED, Row, Window, parse_rows
from secondguess.language.meaning_functions import meaning_from
from secondguess.language.meanings import ScoredMeaning
from secondguess.language.scoring import ScoredResponse
from secondguess.theory.decoding import withheld
from secondguess.theory.records import Decision, GapKind

WindowWork = Callable[[Window], list[Row]]
"""From a window to its output rows."""


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """How the prompts of a file are answered; see `answer`.

    Attributes:
        max_hallucination_rate: the largest bound that is still answered.
        strategy: `selective`, `rejection` or `top1`.
        num_candidates: the most samples drawn per prompt.
        sampling: how tokens are chosen.
        gap: how confidences above 1 are treated.
        meaning: what answers mean, in the words of `meaning_from`; None to judge their wording.
        max_gap: answers are chosen at `max_hallucination_rate`, and withheld if their gap exceeds
            this; see `marked`.
        model: a digest of the model's folder, for those who read the answers.
        seed: with the number of a window's first line, the seed of its samples.
    """

    max_hallucination_rate: float
    strategy: Strategy = "selective"
    num_candidates: int = 10
    sampling: Sampling = field(default_factory=Sampling)
    gap: GapKind = "absolute"
    meaning: str | None = None
    max_gap: float | None = None
    model: str | None = None
    seed: int = 0

    def decided_by(self) -> dict[str, Any]:
        """How an answer was chosen, whatever the seed and whether it was withheld or not."""
        alone = self.strategy == "selective" and self.meaning is None
        return {
            "model": self.model,
            "max_hallucination_rate": self.max_hallucination_rate,
            "strategy": self.strategy,
            "num_candidates": 1 if alone else self.num_candidates,
            "sampling": repr(self.sampling),
            "gap": self.gap,
            "meaning": self.meaning,
        }

    def as_record(self) -> dict[str, Any]:
        """What an unfinished job must repeat to be resumed."""
        return {"decided_by": self.decided_by(), "max_gap": self.max_gap, "seed": self.seed}


def scoring_work(engine: Engine, *, skip_bad: bool = False) -> WindowWork:
    """Score the responses of every line.

    >>> from pathlib import Path
    >>> from secondguess._files import Line
    >>> from secondguess.language.examples import tiny_pair_model
    >>> work = scoring_work(LocalEngine(tiny_pair_model()))
    >>> text = b'{"prompt": "flip", "responses": ["heads"]}'
    >>> [row] = work(Window(Path("coins.jsonl"), 0, 1, (Line(1, 0, text, len(text)),)))
    >>> row["line"], row["input"]["prompt"], [each["text"] for each in row["responses"]]
    (1, 'flip', ['heads'])
    """

    def encode(row: Row) -> EncodedRow:
        return engine.formatter.encode(row, min_responses=1)

    def work(rows: list[EncodedRow], window: Window) -> list[Row]:
        scored = iter(engine.score([(row.prompt, y) for row in rows for y in row.responses]))
        return [
            {"responses": [describe(engine.formatter, next(scored)) for _ in row.responses]}
            for row in rows
        ]

    return _by_window(encode, work, skip_bad=skip_bad)


def answering_work(
    engine: Engine, settings: AnswerSettings, *, skip_bad: bool = False
) -> WindowWork:
    """Answer the prompt of every line, or abstain."""
    options: dict[str, Any] = {
        "strategy": settings.strategy,
        "num_candidates": settings.num_candidates,
        "gap": settings.gap,
    }
    rate, sampling = settings.max_hallucination_rate, settings.sampling
    means = None if settings.meaning is None else meaning_from(settings.meaning)
    local = engine if isinstance(engine, LocalEngine) else None
    decided_by = {"settings": settings.decided_by()}
    if means is not None and sampling != Sampling():
        raise ValueError(
            "a meaning is judged by draws from the model itself; expected no option on how tokens "
            "are chosen."
        )

    def decide(rows: list[EncodedRow], window: Window) -> list[Any]:
        place = [settings.seed, window.first_line]
        if local is None:
            prompts = [row.prompt for row in rows]
            there = {**options, "sampling": sampling, "meaning": means}
            return answer_with(engine, prompts, rate, seed=place, **there)
        here = {**options, "rng": np.random.default_rng(place), "batch_size": local.batch_size}
        if means is not None:
            return answer(local.model, rows, rate, meaning=means, **here)
        return answer(local.model, rows, rate, sampling=sampling, **here)

    def work(rows: list[EncodedRow], window: Window) -> list[Row]:
        decided = (withheld(each, settings.max_gap) for each in decide(rows, window))
        if means is not None:
            return [describe_meaning(each) | decided_by for each in decided]
        return [describe_decision(engine.formatter, each) | decided_by for each in decided]

    return _by_window(engine.formatter.encode_prompt, work, skip_bad=skip_bad)


def _by_window(
    encode: Callable[[Row], EncodedRow],
    work: Callable[[list[EncodedRow], Window], list[Row]],
    *,
    skip_bad: bool,
) -> WindowWork:
    """Output rows of a window: its line number, the row as it came under `input`, and the results.

    Args:
        encode: turns a row into tokens; a row that it refuses is a bad line.
        work: one dictionary per row, for all good rows of a window at once.
        skip_bad: whether a bad line becomes a row with the reason.
    """

    def rows_of(window: Window) -> list[Row]:
        parsed = list(parse_rows(window, encode, skip_bad=skip_bad))
        good = [encoded for _, _, encoded in parsed if not isinstance(encoded, str)]
        added = iter(work(good, window))
        return [
            {"line": line, SKIPPED: encoded}
            if isinstance(encoded, str)
            else {"line": line, "input": row, **next(added)}
            for line, row, encoded in parsed
        ]

    return rows_of


def describe(formatter: PairFormatter, response: ScoredResponse) -> Row:
    """A scored response as JSON: totals, then one entry per token."""
    scores = response.scores
    return {
        "text": response.text,
        "cut_off": response.cut_off,
        "log_marginal": float(scores.log_marginal),
        "log_self_conditional": float(scores.log_self_conditional),
        "epistemic_confidence": number(float(scores.epistemic_confidence)),
        "epistemic_variance": number(float(scores.epistemic_variance)),
        "tokens": formatter.pieces(response.tokens),
        "token_log_marginal": response.log_marginal.tolist(),
        "token_log_self_conditional": response.log_self_conditional.tolist(),
        "cheating": response.cheating.tolist(),
    }


def describe_decision(formatter: PairFormatter, decision: Decision[ScoredResponse]) -> Row:
    """An answer, or an abstention, as JSON."""
    given, bound = decision.response, decision.bound
    return {
        "answer": None if given is None else given.text,
        "abstained": decision.abstained,
        "gap": number(decision.gap),
        # A gap outside the theorem is not called a bound.
        "bound": None if bound is None else number(float(bound.value)),
        "rests_on": None if bound is None else str(bound.rests_on),
        "outside_theorem": bound is not None and bool(bound.outside_theorem),
        "cut_off": decision.cut_off,
        "num_candidates": decision.num_candidates,
        "response": None if given is None else describe(formatter, given),
    }


def describe_meaning(decision: Decision[ScoredMeaning]) -> Row:
    """An answer that was judged by its meaning, or an abstention, as JSON."""
    given, bound = decision.response, decision.bound
    estimate = None if given is None else float(given.scores.epistemic_confidence)
    return {
        "answer": None if given is None else given.text,
        "meaning": None if given is None else str(given.meaning),
        "abstained": decision.abstained,
        "gap": number(decision.gap),
        "bound": None if bound is None else number(float(bound.value)),
        "rests_on": None if bound is None else str(bound.rests_on),
        "outside_theorem": bound is not None and bool(bound.outside_theorem),
        "epistemic_confidence": number(estimate),
        "cut_off": decision.cut_off,
        "num_candidates": decision.num_candidates,
    }


def number(value: float | None) -> float | None:
    """JSON has no infinity; the logarithms beside it say the same."""
    return value if value is not None and math.isfinite(value) else None
