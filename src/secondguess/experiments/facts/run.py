"""The experiment in parts: training, recalibration, and answers about facts not trained on.

One answer is drawn per question, and every score judges this same answer: the confidence of its
meaning (recalibrated or not), the confidence of its wording, and rivals. The model is any causal
language model; `quick` is a look at a few questions, `cpu` the run that the page reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.cities import cities
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
from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.meanings import ScoredMeaning, score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibrating import recalibrate
from secondguess.language.recalibration import LogitLine, SequenceRecalibration
from secondguess.language.scoring import score, totals
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
        ).recalibration
        assert found is not None
        return PartResult(metrics=asdict(found))

    def ask(directory: Path, questions: Sequence[Fact], stream: int) -> PartResult:
        rng = np.random.default_rng([config.seed, 3, stream])
        return _asked(_trained(directory), questions, config, rng)

    return [
        part("training", train, 10.0),
        part("recalibration", correct, 1.0),
        part("marked", lambda directory, _: ask(directory, facts.labelled, 0), 1.0),
        part("test", lambda directory, _: ask(directory, facts.test, 1), 2.0),
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
    prompts = [fact.prompt for fact in questions]
    meaning = config.wordings.meaning
    found = score_meanings(model, prompts, meaning, rng=rng, num_samples=config.num_samples)
    given = [meanings[0] for meanings in found]
    rows = [
        {"prompt": prompt, "responses": [answer.text]}
        for prompt, answer in zip(prompts, given, strict=True)
    ]
    worded = [one for [one] in score(model, rows)]
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
        "semantic_entropy": np.array([_entropy(meanings) for meanings in found]),
    }
    return PartResult(metrics={"share_right": float(arrays["right"].mean())}, arrays=arrays)


def _entropy(meanings: Sequence[ScoredMeaning]) -> float:
    """Of the shares of the draws that the meanings have (Kuhn et al. 2023, discrete form)."""
    shares = np.array([each.num_draws for each in meanings]) / sum(m.num_draws for m in meanings)
    return float(-np.sum(shares * np.log(shares)))


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


def _table(done: Mapping[str, PartResult]) -> PartResult:
    lines = done["recalibration"].metrics
    marked, test = done["marked"].arrays, done["test"].arrays
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
