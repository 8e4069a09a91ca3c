"""The experiment in parts: training, recalibration, and answers about facts not trained on.

One answer is drawn per question, and every score judges this same answer: the confidence of its
meaning (recalibrated or not), the confidence of its wording, and rivals. The model is any causal
language model; `quick` is a look at a few questions, `cpu` the run that the page reports.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.cities import cities
from secondguess.experiments.facts.costs import tokens_read
from secondguess.experiments.facts.evaluation import deciles, judged
from secondguess.experiments.facts.questions import (
    THREE_WORDINGS,
    TWELVE_WORDINGS,
    Fact,
    Split,
    Wordings,
    split,
)
from secondguess.experiments.runner import Claim, Part, PartResult, check_known, run_experiment
from secondguess.language.drawing import sample_firsts
from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.generation import sample
from secondguess.language.meanings import DrawnPairs, ScoredMeaning, draw_pairs, judge_pairs
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibrating import recalibrate
from secondguess.language.recalibration import LogitLine, SequenceRecalibration
from secondguess.language.scoring import chunks, score, score_tokens, totals
from secondguess.theory.records import SelfCheatScores


@dataclass(frozen=True, kw_only=True)
class FactsConfig:
    """The size of a run.

    Attributes:
        model: folder, name or GGUF file of a causal language model.
        sizes: questions to train on, to recalibrate on, to mark, and to test on.
        num_wordings: three or twelve ways to word an answer.
        lora_rank: of the adapter.
        learning_rate: the highest one.
        batch_size: pairs per step; training is one pass.
        num_samples: pairs drawn per question.
        seed: of the questions, the wordings, the training and the draws.
    """

    model: str = ""
    sizes: tuple[int, int, int, int] = (4160, 500, 500, 1000)
    num_wordings: int = 3
    lora_rank: int = 16
    learning_rate: float = 1e-3
    batch_size: int = 32
    num_samples: int = 10
    seed: int = 0

    @property
    def wordings(self) -> Wordings:
        """How answers are worded."""
        return Wordings(THREE_WORDINGS if self.num_wordings == 3 else TWELVE_WORDINGS)


PRESETS = {
    "quick": FactsConfig(sizes=(320, 60, 60, 60), batch_size=16, num_samples=4),
    "cpu": FactsConfig(),
}
EXPERIMENT = "facts"
OURS = "confidence of the meaning, recalibrated"
BATCH_SIZE = 128
ASKED_AT_ONCE = 250
TIMED = 24
"""Questions, for the costs."""


def run_facts(
    *,
    preset: str,
    out: Path,
    seed: int = 0,
    model: str,
    num_wordings: int = 3,
    facts: Sequence[Fact] | None = None,
) -> Path:
    """Run or resume one seed, and return the directory of its results.

    Args:
        preset: `quick` or `cpu`.
        out: where results of all experiments are.
        seed: of this run.
        model: the pretrained model.
        num_wordings: three or twelve; the latter is an experiment of its own name.
        facts: questions with their answers; cities if None.
    """
    check_known("preset", [preset], PRESETS)
    config = replace(PRESETS[preset], model=model, num_wordings=num_wordings, seed=seed)
    parts = split(cities() if facts is None else facts, config.sizes, seed=seed)
    return run_experiment(
        experiment=EXPERIMENT if num_wordings == 3 else f"{EXPERIMENT}-{num_wordings}-wordings",
        preset=preset,
        seed=seed,
        config=asdict(config),
        parts=_parts(config, parts),
        claims=_claims,
        draw=lambda done, directory: None,
        out=out,
    )


def _parts(config: FactsConfig, facts: Split) -> list[Part]:
    depends = asdict(config)
    training = {key: depends[key] for key in depends if key != "num_samples"}

    def part(name: str, compute: Any, effort: float) -> Part:
        settings = training if name == "training" else depends
        return Part(name=name, config=settings, compute=compute, effort=effort)

    def train(directory: Path, _: Mapping[str, PartResult]) -> PartResult:
        if (directory / "model").exists():
            return PartResult()
        fitted = fit(
            config.wordings.rows(facts.training, np.random.default_rng([config.seed, 1, 0])),
            config.model,
            lora_rank=config.lora_rank,
            batch_size=config.batch_size,
            config=lambda one_pass: fine_tuning(
                one_pass, learning_rate=config.learning_rate, seed=config.seed
            ),
            checkpoint_dir=directory / "checkpoints",
            progress="training",
        )
        fitted.model.save(directory / "model")
        return PartResult(arrays={"losses": fitted.history.losses})

    def correct(directory: Path, _: Mapping[str, PartResult]) -> PartResult:
        rows = config.wordings.rows(facts.recalibration, np.random.default_rng([config.seed, 1, 1]))
        found = recalibrate(
            _trained(directory),
            rows,
            rng=np.random.default_rng([config.seed, 2]),
            meaning=config.wordings.meaning,
            num_samples=config.num_samples,
            batch_size=BATCH_SIZE,
        ).recalibration
        assert found is not None
        return PartResult(metrics=asdict(found))

    def asked(name: str, questions: Sequence[Fact], stream: int) -> list[Part]:
        """In pieces, each of which is a part to resume at."""

        def ask(directory: Path, some: Sequence[Fact], piece: int) -> PartResult:
            rng = np.random.default_rng([config.seed, 3, stream, piece])
            return _asked(_trained(directory), some, config, rng)

        return [
            part(f"{name}-{piece}", lambda directory, _, a=(some, piece): ask(directory, *a), 0.3)
            for piece, some in enumerate(chunks(questions, ASKED_AT_ONCE))
        ]

    return [
        part("training", train, 10.0),
        part("recalibration", correct, 1.0),
        *asked("marked", facts.labelled, 0),
        *asked("test", facts.test, 1),
        part("cost", lambda directory, _: _costs(_trained(directory), facts.test, config), 0.2),
        part("scores", lambda _, done: _table(done), 0.1),
    ]


def _trained(directory: Path) -> PairLanguageModel:
    return PairLanguageModel.load(directory.parent / "training" / "model")


def _asked(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    config: FactsConfig,
    rng: np.random.Generator,
) -> PartResult:
    """The answer drawn first to each question, whether it is right, and its scores."""
    drawn, found = _judged(model, questions, config, rng)
    given = [meanings[0] for meanings in found]
    rows = [
        {"prompt": fact.prompt, "responses": [answer.text]}
        for fact, answer in zip(questions, given, strict=True)
    ]
    worded = [one for [one] in score(model, rows, batch_size=BATCH_SIZE)]
    wording = totals(worded)
    lengths = np.array([len(each.tokens) for each in worded])
    arrays = {
        "right": np.array(
            [each.meaning == fact.answer for each, fact in zip(given, questions, strict=True)]
        ),
        "meaning_log_marginal": np.array([each.scores.log_marginal for each in given]),
        "meaning_log_self_conditional": np.array(
            [each.scores.log_self_conditional for each in given]
        ),
        "wording_log_marginal": wording.log_marginal,
        "wording_log_self_conditional": wording.log_self_conditional,
        "mean_log_probability": wording.log_marginal / lengths,
        "semantic_entropy": np.array([_entropy(each, model, config) for each in drawn]),
    }
    return PartResult(metrics={"share_right": float(arrays["right"].mean())}, arrays=arrays)


def _judged(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    config: FactsConfig,
    rng: np.random.Generator,
) -> tuple[list[DrawnPairs], list[list[ScoredMeaning]]]:
    """What was drawn for each question, and the meaning that was drawn first, with its scores."""
    meaning = config.wordings.meaning
    drawn = draw_pairs(
        model,
        [fact.prompt for fact in questions],
        meaning,
        rng=rng,
        num_samples=config.num_samples,
        others=[()] * len(questions),
        batch_size=BATCH_SIZE,
    )
    found = judge_pairs(
        drawn,
        meaning,
        model.formatter,
        lambda items: score_tokens(model, items, batch_size=BATCH_SIZE),
        recalibration=None,
    )
    return drawn, found


def _entropy(drawn: DrawnPairs, model: PairLanguageModel, config: FactsConfig) -> float:
    """Of the shares of the draws that the meanings have (Kuhn et al. 2023, discrete form)."""
    meanings = [config.wordings.meaning(model.formatter.text(one)) for one, _ in drawn.pairs]
    shares = np.array([*Counter(meanings).values()]) / len(meanings)
    return float(-np.sum(shares * np.log(shares)))


def _costs(model: PairLanguageModel, questions: Sequence[Fact], config: FactsConfig) -> PartResult:
    """What each score costs per question: tokens read by the network, and seconds."""
    some = questions[:TIMED]
    prompts = [fact.prompt for fact in some]
    ways: dict[str, Callable[[np.random.Generator], object]] = {
        "an answer alone, and its log-probability": lambda rng: sample_firsts(
            model, prompts, rng=rng, batch_size=BATCH_SIZE
        ),
        "confidence of the wording": lambda rng: sample(
            model, prompts, rng=rng, batch_size=BATCH_SIZE
        ),
        "semantic entropy": lambda rng: sample_firsts(
            model,
            [prompt for prompt in prompts for _ in range(config.num_samples)],
            rng=rng,
            batch_size=BATCH_SIZE,
        ),
        "confidence of the meaning": lambda rng: _judged(model, some, config, rng),
    }
    metrics: dict[str, Any] = {}
    for name, compute in ways.items():
        with tokens_read(model.network) as read:
            start = time.process_time()
            compute(np.random.default_rng([config.seed, 4]))
            seconds = time.process_time() - start
        metrics[name] = {
            "tokens": read.tokens / len(some),
            "passes": read.passes / len(some),
            "seconds": seconds / len(some),
        }
    return PartResult(metrics=metrics)


def _scores_of(arrays: Mapping[str, np.ndarray], lines: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Every score by its name, higher for answers to be trusted more."""
    correct = SequenceRecalibration(
        LogitLine(**lines["first"]), LogitLine(**lines["repeat"]), num_pairs=lines["num_pairs"]
    )
    meaning = SelfCheatScores(
        arrays["meaning_log_marginal"], arrays["meaning_log_self_conditional"]
    )
    wording = SelfCheatScores(
        arrays["wording_log_marginal"], arrays["wording_log_self_conditional"]
    )
    return {
        OURS: correct(meaning).epistemic_confidence,
        "confidence of the meaning": meaning.epistemic_confidence,
        "confidence of the wording": wording.epistemic_confidence,
        "confidence gap of the wording": -wording.confidence_gap(),
        "total log-probability": wording.log_marginal,
        "mean log-probability": arrays["mean_log_probability"],
        "semantic entropy": -arrays["semantic_entropy"],
    }


def _joined(done: Mapping[str, PartResult], name: str) -> dict[str, np.ndarray]:
    """The arrays of all pieces of one kind."""
    pieces = [each.arrays for part, each in done.items() if part.startswith(f"{name}-")]
    return {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}


def _table(done: Mapping[str, PartResult]) -> PartResult:
    lines = done["recalibration"].metrics
    marked, test = _joined(done, "marked"), _joined(done, "test")
    marked_scores, scores = _scores_of(marked, lines), _scores_of(test, lines)
    right, marked_right = test["right"].astype(bool), marked["right"].astype(bool)
    metrics: dict[str, Any] = {
        name: judged(values, right, marked_scores[name], marked_right)
        for name, values in scores.items()
    }
    for name in (OURS, "confidence of the meaning", "confidence of the wording"):
        metrics[name]["deciles"] = deciles(scores[name], right)
    return PartResult(metrics=metrics)


def _claims(done: Mapping[str, PartResult]) -> list[Claim]:
    table = done["scores"].metrics
    ours = table[OURS]
    rivals = ("total log-probability", "mean log-probability", "semantic entropy")
    largest = max(abs(confidence - share) for confidence, share in ours["deciles"])
    return [
        Claim.at_most(
            f"{OURS}: largest difference from the share right, by deciles", largest, 0.05
        ),
        Claim.at_most(
            f"{OURS}: wrong among the tenth most trusted", ours["wrong_among_trusted"], 0.04
        ),
        Claim.at_least(f"{OURS}: AUROC", ours["auroc"], 0.94),
        Claim.at_least(
            f"{OURS}: AUROC, against the best rival",
            ours["auroc"],
            max(table[name]["auroc"] for name in rivals),
        ),
    ]
