"""The experiment in parts: training, recalibration, and answers about facts not trained on.

One answer is drawn per question, and every score judges this same answer: the confidence of its
meaning (recalibrated or not), the confidence of its wording, and rivals. The model is any causal
language model; `quick` is a look at a few questions, `cpu` the run that the page reports, and
`cpu-large` a smaller one, for a model that takes several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.asking import (
    asked,
    costs,
    held_out_scores,
    recalibration_of,
    rivals,
)
from secondguess.experiments.facts.evaluation import (
    area_under_curve,
    deciles,
    judged,
    wrong_among_trusted,
)
from secondguess.experiments.facts.families import FAMILIES
from secondguess.experiments.facts.questions import Fact, Split, Wordings, split
from secondguess.experiments.runner import Claim, Part, PartResult, check_known, run_experiment
from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.logit_lines import LogitLine
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.recalibration_fit import RULE
from secondguess.language.scoring import chunks
from secondguess.theory.records import SelfCheatScores


@dataclass(frozen=True, kw_only=True)
class FactsConfig:
    """The size of a run.

    Attributes:
        model: folder, name or GGUF file of a causal language model.
        sizes: questions to train on, to recalibrate on, to mark, and to test on.
        num_wordings: three or twelve ways to word an answer.
        lora_rank: of the adapter.
        lora_layers: how many of the last layers it is for; all if None.
        learning_rate: the highest one.
        batch_size: pairs per step; training is one pass.
        num_samples: answers drawn per question, for rivals that need them.
        num_for_rivals: test questions that the costly rivals are asked about; 0 to leave them out.
        seed: of the questions, the wordings, the training and the draws.
    """

    model: str = ""
    sizes: tuple[int, int, int, int] = (4800, 1000, 1000, 3900)
    num_wordings: int = 3
    lora_rank: int = 16
    lora_layers: int | None = None
    learning_rate: float = 1e-3
    batch_size: int = 8
    num_samples: int = 10
    num_for_rivals: int = 80
    seed: int = 0


PRESETS = {
    "quick": FactsConfig(sizes=(320, 60, 60, 60), num_samples=4, num_for_rivals=20),
    "cpu": FactsConfig(),
    "cpu-large": FactsConfig(sizes=(3600, 600, 500, 2000), lora_layers=15),
}
EXPERIMENT = "facts"
OURS = "confidence of the meaning, recalibrated"
CONFIDENCES = (OURS, "confidence of the meaning", "confidence of the wording")
LOG_PROBABILITIES = ("total log-probability", "mean log-probability")
"""Rivals that cost nothing, and are asked about all questions."""
ASKED_AT_ONCE = 250
DRAWS_TO_RECALIBRATE = 2


def run_facts(
    *,
    preset: str,
    out: Path,
    seed: int = 0,
    model: str,
    family: str = "cities",
    data_dir: Path | None = None,
    num_wordings: int = 3,
    costly_rivals: bool = True,
    facts: Sequence[Fact] | None = None,
) -> Path:
    """Run or resume one seed, and return the directory of its results.

    Args:
        preset: `quick`, `cpu` or `cpu-large`.
        out: where results of all experiments are.
        seed: of this run.
        model: the pretrained model.
        family: one of `FAMILIES`; all but cities are experiments of their own names.
        data_dir: where the data of a family are that no package has, see its module.
        num_wordings: three or twelve; the latter is an experiment of its own name.
        costly_rivals: whether rivals that need more draws or prompts of their own are asked.
        facts: questions with their answers, in place of those of the family.
    """
    check_known("preset", [preset], PRESETS)
    check_known("family", [family], FAMILIES)
    chosen = FAMILIES[family]
    wordings = chosen.wordings(num_wordings)
    config = replace(PRESETS[preset], model=model, num_wordings=num_wordings, seed=seed)
    if not costly_rivals:
        config = replace(config, num_for_rivals=0)
    parts = split(chosen.facts(data_dir) if facts is None else facts, config.sizes, seed=seed)
    names = [EXPERIMENT, *([family] if family != "cities" else [])]
    names += [f"{num_wordings}-wordings"] if num_wordings != 3 else []
    return run_experiment(
        experiment="-".join(names),
        preset=preset,
        seed=seed,
        config=asdict(config),
        parts=_parts(config, wordings, parts),
        claims=_claims,
        draw=lambda done, directory: None,
        out=out,
    )


def _parts(config: FactsConfig, wordings: Wordings, facts: Split) -> list[Part]:
    depends = asdict(config)
    later = ("num_samples", "num_for_rivals", "sizes")
    training = {key: depends[key] for key in depends if key not in later}
    training["num_training"] = config.sizes[0]

    # More test questions, or rivals, are further parts: those that are finished stay.
    asking = {**training, "sizes": config.sizes[:3]}
    rivals_of = {**asking, **{key: depends[key] for key in ("num_samples", "num_for_rivals")}}

    def part(name: str, compute: Any, effort: float, settings: Any = asking) -> Part:
        return Part(name=name, config=settings, compute=compute, effort=effort)

    def rng_of(*stream: int) -> np.random.Generator:
        return np.random.default_rng([config.seed, *stream])

    def train(directory: Path, _: Mapping[str, PartResult]) -> PartResult:
        fitted = fit(
            wordings.rows(facts.training, rng_of(1, 0)),
            config.model,
            lora_rank=config.lora_rank,
            lora_layers=config.lora_layers,
            batch_size=config.batch_size,
            config=lambda one_pass: fine_tuning(
                one_pass, learning_rate=config.learning_rate, seed=config.seed
            ),
            checkpoint_dir=directory / "checkpoints",
            progress="training",
        )
        fitted.model.save(directory / "model")
        return PartResult(arrays={"losses": fitted.history.losses})

    def hold_out(directory: Path, _: Mapping[str, PartResult]) -> PartResult:
        model, questions = _trained(directory), facts.recalibration
        options: Any = {"num_samples": DRAWS_TO_RECALIBRATE}
        return PartResult(arrays=held_out_scores(model, questions, wordings, rng_of(2), **options))

    def correct(directory: Path, done: Mapping[str, PartResult]) -> PartResult:
        found = recalibration_of(done["held-out"].arrays)
        replace(_trained(directory), recalibration=found).save(directory / "model")
        return PartResult(metrics=asdict(found))

    def compare(directory: Path, done: Mapping[str, PartResult]) -> PartResult:
        some = facts.test[: config.num_for_rivals]
        texts = [str(text) for text in _joined(done, "test")["text"][: len(some)]]
        options: Any = {"num_samples": config.num_samples}
        return rivals(_trained(directory), some, texts, wordings, rng_of(5), **options)

    def pieces(name: str, questions: Sequence[Fact], stream: int) -> list[Part]:
        """In pieces, each of which is a part to resume at."""

        def ask(directory: Path, some: Sequence[Fact], piece: int) -> PartResult:
            return asked(_trained(directory), some, wordings, rng_of(3, stream, piece))

        return [
            part(
                f"{name}-{piece}",
                lambda directory, _, a=(some, piece): ask(directory, *a),
                0.3,
                {**asking, "num_questions": len(some)},
            )
            for piece, some in enumerate(chunks(questions, ASKED_AT_ONCE))
        ]

    return [
        part("training", train, 10.0, training),
        part("held-out", hold_out, 1.0),
        part("recalibration", correct, 0.1, {**asking, "lines": RULE}),
        *pieces("marked", facts.labelled, 0),
        *pieces("test", facts.test, 1),
        part(
            "cost",
            lambda directory, _: costs(_trained(directory), facts.test, wordings, seed=config.seed),
            0.2,
        ),
        *([part("rivals", compare, 1.0, rivals_of)] if config.num_for_rivals else []),
        part("scores", lambda _, done: _table(done), 0.1, {**depends, "lines": RULE}),
    ]


def _trained(directory: Path) -> PairLanguageModel:
    return _loaded(directory.parent / "training" / "model")


@lru_cache(maxsize=1)
def _loaded(folder: Path) -> PairLanguageModel:
    """Once for all parts of a run."""
    return PairLanguageModel.load(folder)


def _scores_of(arrays: Mapping[str, np.ndarray], lines: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Every score by its name, higher for answers to be trusted more."""
    correct = SequenceRecalibration(
        LogitLine(**lines["first"]),
        LogitLine(**lines["repeat"]),
        num_pairs=lines["num_pairs"],
        confidence=LogitLine(**lines["confidence"]),
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
        "mean log-probability": wording.log_marginal / arrays["num_tokens"],
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
    for name in CONFIDENCES:
        metrics[name]["deciles"] = deciles(scores[name], right)
    if "rivals" in done:
        costly = done["rivals"].arrays
        few = len(costly["semantic entropy"])
        for name, values in (costly | {key: each[:few] for key, each in scores.items()}).items():
            metrics.setdefault(name, {})["few"] = {
                "auroc": area_under_curve(values, right[:few]),
                "wrong_among_trusted": wrong_among_trusted(values, right[:few]),
            }
    return PartResult(metrics=metrics)


def _claims(done: Mapping[str, PartResult]) -> list[Claim]:
    table = done["scores"].metrics
    ours = table[OURS]
    largest = max(abs(confidence - share) for confidence, share in ours["deciles"])
    claims = [
        Claim.at_most(
            f"{OURS}: largest difference from the share right, by deciles", largest, 0.05
        ),
        Claim.at_most(
            f"{OURS}: wrong among the tenth most trusted", ours["wrong_among_trusted"], 0.04
        ),
        Claim.at_least(f"{OURS}: AUROC", ours["auroc"], 0.94),
        Claim.at_least(
            f"{OURS}: AUROC, against the better log-probability",
            ours["auroc"],
            max(table[name]["auroc"] for name in LOG_PROBABILITIES),
        ),
    ]
    if "rivals" in done:
        costly = [name for name in done["rivals"].arrays if name not in LOG_PROBABILITIES]
        claims.append(
            Claim.at_least(
                f"{OURS}: AUROC on the first questions, against the best costly rival",
                ours["few"]["auroc"],
                max(table[name]["few"]["auroc"] for name in costly),
            )
        )
    return claims
