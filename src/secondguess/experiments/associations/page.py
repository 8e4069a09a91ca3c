"""What the report says of a run on free associations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secondguess.experiments.associations.evaluation import OURS
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import number, percent
from secondguess.report.sections import Section, Table

_COLUMNS = {
    "first_order_ece": "ECE-1",
    "grouping_error": "Grouping error",
    "mean_variance": "Mean variance",
    "second_order_ece": "ECE-2",
    "floor": "Floor of ECE-2",
    "share_of_grouping_error": "ECE-2 / grouping error",
    "cue_correlation": "Rank correlation with the error, by cue",
}


def association_section(done: Mapping[str, PartResult]) -> Section:
    """Tables for a whole run."""
    scores = done["scores"].metrics
    test = done["test"].metrics
    return Section(
        title="Free associations",
        paper_section="4.1",
        claim=(
            "People name the first word that comes to mind. They differ, and a model that was "
            "trained on pairs of their answers should know how far its p(answer|cue) is from the "
            "true shares, for cues that it was not trained on."
        ),
        notes=(
            f"{test['num_cues']:,} cues were judged, {scores['num_events']:,} events: the most "
            f"probable answers to each cue by the model, which hold "
            f"{percent(test['share_of_people_proposed'])} of the people. Answers of one person "
            f"only are not in the data; those people count as having given a response of their "
            f"own kind, so all shares are of everybody who was asked.",
        ),
        tables=(
            _methods("Variance of p(answer|cue) and squared error", scores["methods"]),
            _methods(
                "The same on the cues that the pretrained model was asked", scores["prompted"]
            ),
            _methods(
                "The same on the answers that people gave, which are chosen by the truth",
                scores["given"],
            ),
            _examples("People differ, and the model knows", scores["examples"]["known"]),
            _examples("The model does not know this cue", scores["examples"]["unknown"]),
        ),
    )


def _methods(title: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    return Table(
        title=title,
        columns=("Method", *_COLUMNS.values()),
        rows=tuple(
            (name, *(number(row[column]) for column in _COLUMNS)) for name, row in rows.items()
        ),
        note="Sums of squares are per event. The floor is what a calibrated predictor of this "
        "spread would measure on as many events and people.",
    )


def _examples(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        title=title,
        columns=("Cue", "The model's answers", "People's answers", "Expected error", "Error"),
        rows=tuple(
            (
                row["cue"],
                _words(row["model"]),
                _words(row["people"]),
                number(row["expected_error"]),
                number(row["error"]),
            )
            for row in rows
        ),
        note=f"Chosen by what the {OURS} says alone. Errors are roots of sums over the answers.",
    )


def _words(answers: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{word} {percent(share)}" for word, share in answers)
