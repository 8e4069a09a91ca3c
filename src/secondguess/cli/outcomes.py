"""What `reproduce` says of experiments before they run and when they have ended."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from secondguess.cli.errors import say, tell
from secondguess.experiments.needs import NEEDS
from secondguess.experiments.processes import Outcome
from secondguess.report.files import RESULT_FILE, read_claims
from secondguess.report.sections import Claim, tally

_VERDICTS = {"holds": "holds", "fails": "FAILS", "needs": "     "}


def announce(name: str, preset: str) -> None:
    """Say, before anything runs, which claims the preset is too small for."""
    if (needs := NEEDS.get((name, preset))) is not None:
        claims = ", ".join(f"'{beginning.strip()} ...'" for beginning in needs.claims)
        tell(
            f"{name}: claims {claims} need --preset {needs.preset} and are not judged: "
            f"{needs.why}.\n"
        )


def print_result(outcome: Outcome) -> None:
    """Every claim of the seeds of a job, and where their results are."""
    if outcome.error is not None:
        _print_crash(outcome)
    for directory in dict.fromkeys(outcome.directories):
        for claim in read_claims(directory):
            tell(f"{_VERDICTS[claim.verdict]}  {_words(claim)}")
        tell(f"{directory / RESULT_FILE}, figures in {directory / 'figures'}")


def print_verdict(outcome: Outcome) -> None:
    """How many claims of a job hold, and those that do not."""
    if outcome.error is not None:
        _print_crash(outcome)
        return
    tell(f"{outcome.job.title}: {tally(outcome.claims)}")
    for claim in outcome.claims:
        if claim.verdict == "fails":
            tell(f"    does not hold: {_words(claim)}")


def _words(claim: Claim) -> str:
    value, bound = (
        "no number" if number is None else f"{number:.4g}" for number in (claim.value, claim.bound)
    )
    needs = f", needs {claim.needs}" if claim.needs else ""
    return f"{claim.name}: {value} ({bound}{needs})"


def _print_crash(outcome: Outcome) -> None:
    job = outcome.job
    said = outcome.mistake or f"{outcome.error} (all of it is in {job.log})"
    say(f"{job.title} CRASHED: {said}")


def conclude(outcomes: Sequence[Outcome], *, strict: bool) -> None:
    """Exit with 1 when an experiment crashed, and with 3 when it is strict and a claim fails."""
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(1)
    if strict and any(claim.verdict == "fails" for each in outcomes for claim in each.claims):
        raise typer.Exit(3)
