"""The experiment in parts: training, answers to cues that were not trained on, and their judgement.

The model is any causal language model; `quick` is a look at a few cues, `cpu` the run that the page
reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.experiments.associations.claims import association_claims
from secondguess.experiments.associations.evaluation import (
    OURS,
    PROMPTED,
    prediction_of,
    predictions,
    recalibration_of,
    table,
)
from secondguess.experiments.associations.examples import examples
from secondguess.experiments.associations.norms import Cue, Split, find_norms, read_cues, split
from secondguess.experiments.associations.page import association_section
from secondguess.experiments.associations.prompting import prompted_scores
from secondguess.experiments.associations.scoring import (
    ScoredAnswers,
    Vocabulary,
    score_answers,
)
from secondguess.experiments.associations.training import AssociationTraining, train_model
from secondguess.experiments.runner import Part, PartResult, check_known, run_experiment
from secondguess.experiments.sequence_models import MODEL_PART
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration_fit import RULE
from secondguess.theory.records import SelfCheatScores


@dataclass(frozen=True, kw_only=True)
class AssociationsConfig:
    """The size of a run.

    Attributes:
        training: how the model is trained.
        sizes: cues to train on, to recalibrate on, and to judge.
        num_answers: answers to each cue that are judged, the most probable ones.
        num_prompted: cues to be judged that the pretrained model is asked about.
        seed: of the cues, and of the training.
    """

    training: AssociationTraining
    sizes: tuple[int, int, int] = (4000, 300, 500)
    num_answers: int = 15
    num_prompted: int = 100
    seed: int = 0


PRESETS = {
    "quick": AssociationsConfig(
        training=AssociationTraining(model=""), sizes=(240, 60, 60), num_answers=10, num_prompted=10
    ),
    "cpu": AssociationsConfig(
        training=AssociationTraining(model="", cues_per_step=8, lora_layers=15)
    ),
}
EXPERIMENT = "associations"


def run_associations(
    *,
    preset: str,
    out: Path,
    seed: int = 0,
    model: str,
    data_dir: Path | None = None,
    cues: Sequence[Cue] | None = None,
) -> Path:
    """Run or resume one seed, and return the directory of its results.

    Args:
        preset: `quick` or `cpu`.
        out: where results of all experiments are.
        seed: of this run.
        model: the pretrained model.
        data_dir: the norms, or the folder they are in; the variable SECONDGUESS_DATA if None.
        cues: cues with their answers, in place of those of the norms.
    """
    check_known("preset", [preset], PRESETS)
    small = PRESETS[preset]
    config = replace(small, training=replace(small.training, model=model, seed=seed), seed=seed)
    parts = split(
        read_cues(find_norms(data_dir)) if cues is None else cues, config.sizes, seed=seed
    )
    return run_experiment(
        experiment=EXPERIMENT,
        preset=preset,
        seed=seed,
        config=asdict(config),
        parts=association_parts(config, parts),
        claims=association_claims,
        draw=lambda done, directory: None,
        describe=association_section,
        out=out,
    )


def association_parts(config: AssociationsConfig, cues: Split) -> list[Part]:
    """The parts of a run, in the order they need each other."""
    everything = asdict(config)
    trained = {"training": everything["training"], "num_cues": config.sizes[0]}
    scored = trained | {"sizes": config.sizes, "num_answers": config.num_answers}

    def train(directory: Path, _: object) -> PartResult:
        model, history = train_model(
            cues.training, config.training, checkpoint_dir=directory / "checkpoints"
        )
        model.save(directory / "model")
        return PartResult(
            metrics={
                "num_steps": len(history.losses),
                "first_loss": float(history.losses[:20].mean()),
                "last_loss": float(history.losses[-20:].mean()),
            },
            arrays={"losses": history.losses},
        )

    def answers(which: Sequence[Cue], directory: Path) -> PartResult:
        model = PairLanguageModel.load(directory.parent / MODEL_PART / "model")
        vocabulary = Vocabulary(cues.training, model.formatter)
        found = score_answers(model, which, vocabulary, num_answers=config.num_answers)
        own = found[found.proposed]
        return PartResult(
            metrics={
                "num_cues": len(which),
                "num_words": len(vocabulary.words),
                "share_of_people_proposed": float(own.people.sum() / _asked(which)),
                "share_of_people_recorded": float(found.people.sum() / _asked(which)),
                "probability_proposed": float(np.exp(own.scores.log_marginal).sum() / len(which)),
            },
            arrays=found.arrays(),
        )

    def prompt(directory: Path, done: Mapping[str, PartResult]) -> PartResult:
        found = ScoredAnswers.from_arrays(done["test"].arrays)
        own = found[found.proposed & (found.cues < config.num_prompted)]
        scores, passes = prompted_scores(config.training.model, cues.test, own)
        return PartResult(
            metrics={"num_cues": config.num_prompted, "passes_per_cue": passes},
            arrays={
                "log_marginal": scores.log_marginal,
                "log_self_conditional": scores.log_self_conditional,
            },
        )

    return [
        Part(name=MODEL_PART, config=trained, compute=train, effort=10.0),
        Part(
            name="held-out",
            config=scored,
            compute=lambda directory, _: answers(cues.recalibration, directory),
        ),
        Part(
            name="test",
            config=scored,
            compute=lambda directory, _: answers(cues.test, directory),
            effort=2.0,
        ),
        Part(name="prompting", config=everything, compute=prompt),
        Part(
            name="scores",
            config=everything | {"lines": RULE},
            compute=lambda _, done: _judge(config, cues.test, done),
            effort=0.2,
        ),
    ]


def _asked(cues: Sequence[Cue]) -> int:
    return sum(cue.participants for cue in cues)


def _judge(
    config: AssociationsConfig, cues: Sequence[Cue], done: Mapping[str, PartResult]
) -> PartResult:
    """The tables: of answers that the model proposed, and of those that people gave."""
    held_out, found = (
        ScoredAnswers.from_arrays(done[name].arrays) for name in ("held-out", "test")
    )
    correct = recalibration_of(held_out)
    rng = np.random.default_rng([config.seed, 1])
    own, other = found[found.proposed], held_out[held_out.proposed]
    methods = predictions(own, other, correct)
    metrics: dict[str, Any] = {
        "recalibration": asdict(correct),
        "num_events": len(own.cues),
        "methods": table(methods, own, rng=rng),
    }
    asked = own[own.cues < config.num_prompted]
    arrays = done["prompting"].arrays
    prompted = SelfCheatScores(arrays["log_marginal"], arrays["log_self_conditional"])
    metrics["prompted"] = table(
        {**predictions(asked, other, correct), PROMPTED: prediction_of(prompted)}, asked, rng=rng
    )
    given = found[found.people > 0]
    metrics["given"] = table(predictions(given, other, correct), given, rng=rng)
    metrics["examples"] = examples(methods[OURS], own, cues)
    return PartResult(metrics=metrics)
