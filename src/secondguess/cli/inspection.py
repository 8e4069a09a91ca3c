"""`secondguess check`: is a model calibrated on pairs?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.errors import say, tell, user_errors
from secondguess.cli.rows import (
    BatchSizeOption,
    ModelArgument,
    SkipOption,
    load_model,
    quiet_state,
)

if TYPE_CHECKING:
    from secondguess._arrays import FloatArray
    from secondguess.language.checking import Control, PairCheck
    from secondguess.language.findings import CheckFinding
    from secondguess.language.formatting import EncodedRow
    from secondguess.language.jsonl import Row
    from secondguess.language.model import PairLanguageModel
    from secondguess.language.properties import PropertyRate

WINDOW_SIZE = 1024
"""Lines of a held-out file that are parsed together."""


def check(
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(help='Held-out JSON lines {"prompt": "...", "responses": ["...", "..."]}.'),
    ],
    property_column: Annotated[
        str | None,
        typer.Option("--property", help="Column with true or false for each response."),
    ] = None,
    failure_rate: Annotated[
        float, typer.Option(help="How often the property's guarantee may fail.")
    ] = 0.05,
    miss_rate: Annotated[
        float, typer.Option(help="The share of prompts whose property rate may lie outside.")
    ] = 0.1,
    min_variance: Annotated[
        float, typer.Option(help="Least variance of the property's interval.")
    ] = 0.01,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the responses that the check draws.")
    ] = 0,
    batch_size: BatchSizeOption = 32,
    skip_bad: SkipOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at held-out pairs for signs that a model is not calibrated on pairs.

    The first two responses of a line are the pair. Every bound printed says what it rests on. The
    verdict and the resolution are kept in MODEL.check.json, where 'secondguess answer' finds them.
    """
    with user_errors():
        import numpy as np

        from secondguess.language import checking
        from secondguess.language.findings import CheckFinding
        from secondguess.language.properties import property_rate

        if not file.is_file():
            raise ValueError(f"{file} is not a file; expected held-out JSON lines.")
        pair_model = load_model(model, quiet_state())
        rows, flags, num_skipped = held_out(file, pair_model, property_column, skip_bad=skip_bad)
        rng = np.random.default_rng(seed)
        result = checking.check(pair_model, rows, rng=rng, batch_size=batch_size)
        _keep(CheckFinding.of(result, pair_model), model)
        rate = None
        if property_column is not None:
            rate = property_rate(
                np.array(flags),
                min_variance=min_variance,
                failure_rate=failure_rate,
                miss_rate=miss_rate,
            )
    if as_json:
        typer.echo(json.dumps(_as_record(result, rate, num_skipped), allow_nan=False))
    else:
        for line in _report(result, rate, num_skipped, property_column):
            tell(line)


def _keep(finding: CheckFinding, model: Path) -> None:
    """Keep the finding beside the model, or say why it cannot be: it is printed all the same."""
    try:
        finding.save_beside(model)
    except (OSError, ValueError) as error:
        say(f"the finding is not kept, so 'secondguess answer' will not know it: {error}")


def held_out(
    file: Path, model: PairLanguageModel, property_column: str | None, *, skip_bad: bool
) -> tuple[list[EncodedRow], list[list[bool]], int]:
    """Rows, the property of their first two responses, and how many lines were skipped."""
    from secondguess.language.jsonl import parse_rows, read_windows

    def checked(row: Row) -> tuple[EncodedRow, list[bool]]:
        encoded = model.formatter.encode(row)
        return encoded, _flags(row, property_column, len(encoded.responses))[:2]

    rows: list[EncodedRow] = []
    flags: list[list[bool]] = []
    num_skipped = 0
    for window in read_windows(file, WINDOW_SIZE):
        for _, _, found in parse_rows(window, checked, skip_bad=skip_bad):
            if isinstance(found, str):
                num_skipped += 1
            else:
                rows.append(found[0])
                flags.append(found[1])
    if len(rows) < 2:
        raise ValueError(f"{file} has {len(rows)} pair(s); expected at least 2.")
    return rows, flags, num_skipped


def _flags(row: Row, column: str | None, count: int) -> list[bool]:
    from secondguess.language.formatting import FormatError

    if column is None:
        return []
    flags = row.get(column)
    if not isinstance(flags, list) or len(flags) != count:
        raise FormatError(
            f"{column} is {flags!r}; expected a list with true or false for each of the {count} "
            f"responses."
        )
    if not all(flag in (0, 1) for flag in flags):
        raise FormatError(f"{column} is {flags!r}; expected true or false only.")
    return flags


def _as_record(check: PairCheck, rate: PropertyRate | None, num_skipped: int) -> dict[str, Any]:
    from secondguess.theory.records import RestsOn

    record: dict[str, Any] = {
        "num_pairs": len(check),
        "num_skipped": num_skipped,
        "verdict": str(check.verdict),
        "resolution": check.resolution,
        "mean_log_first": _mean(check.log_first),
        "mean_log_second": _mean(check.log_second),
        "gain": _mean(check.gain),
        "implied_gain": _mean(check.drawn_gain),
        "controls": {
            name: {"mean": control.mean, "error": control.error, "allowed": control.allowed}
            for name, _, control in _controls(check)
        },
        "recalibrated": check.recalibrated,
        "root_mean_square_asymmetry": check.root_mean_square_asymmetry,
        "gain_of_both_orders": check.gain_of_both_orders,
        "share_above_one": check.share_above_one,
        "bounds_rest_on": str(RestsOn.CALIBRATED_PAIRS),
    }
    if rate is not None:
        record["property"] = {
            "rate": rate.rate,
            "lower": float(rate.interval.lower[0]),
            "upper": float(rate.interval.upper[0]),
            "miss_rate": rate.miss_rate,
            "failure_rate": rate.inflation.failure_rate,
            "num_calibration_rows": rate.inflation.num_rows,
            "rests_on": str(rate.interval.rests_on),
        }
    return record


def _controls(check: PairCheck) -> list[tuple[str, str, Control]]:
    """Name in JSON, name in print, and value of each control."""
    return [
        ("surprise", "first guesses: log p(y1|x) - that of own draws", check.surprise),
        ("gain_excess", "gain of peeking - what own second guesses imply", check.gain_excess),
        ("repeat_excess", "repeats y2 = y1, observed - predicted", check.repeat_excess),
        ("overlap_excess", "words shared by y1 and y2, observed - drawn", check.overlap_excess),
        ("guess_excess", "own draws y = y1, observed - predicted", check.guess_excess),
        ("marginal_difference", "second guesses - first guesses", check.marginal_difference),
    ]


def _mean(values: FloatArray) -> float | None:
    from secondguess.language.windows import number

    return number(float(values.mean()))


def _report(
    check: PairCheck, rate: PropertyRate | None, num_skipped: int, property_column: str | None
) -> Iterator[str]:
    from secondguess.language.checking import Verdict
    from secondguess.theory.records import RestsOn

    skipped = f" ({num_skipped:,} lines skipped)" if num_skipped else ""
    recalibrated = "; the model is recalibrated" if check.recalibrated else ""
    yield f"{len(check):,} held-out pairs{skipped}{recalibrated}"
    yield f"{'':<58}{'observed':>10}  if calibrated"
    for name, label, control in _controls(check):
        if name == "guess_excess" and not check.recalibrated:
            continue  # nothing is judged by it
        mark = "  <-" if control.side else ""
        yield f"{label:<58}{control.mean:>+10.4f}  0 (± {control.allowed:.4f}){mark}"
    other = check.use_of_first
    yield f"{'y1 helps with y2, more than the y1 of another row':<58}{other.mean:>+10.4f}"
    asymmetry = check.root_mean_square_asymmetry
    yield f"{'asymmetry of the two orders, root mean square':<58}{asymmetry:>10.4f}  0"
    yield f"{'share of confidences above 1':<58}{check.share_above_one:>10.2%}  0 %"
    yield f"verdict: {check.verdict}"
    yield f"resolution: {check.resolution:.3f} (smaller bounds drown in the model's own noise)"
    hold = f"bounds of score and answer hold {RestsOn.CALIBRATED_PAIRS}"
    if check.verdict is Verdict.NO_SIGN:
        yield f"{hold} (no sign is no proof)."
    else:
        yield f"{hold}: do not rely on them."
        if check.recalibrated:
            yield "remedy: train further, or recalibrate on more pairs (secondguess recalibrate)."
        else:
            yield "remedy: secondguess recalibrate, on other held-out pairs; then check again."
    if rate is not None:
        lower, upper = float(rate.interval.lower[0]), float(rate.interval.upper[0])
        yield (
            f"{property_column}: p({property_column}|x) is in [{lower:.3f}, {upper:.3f}] for at "
            f"least {1 - rate.miss_rate:.0%} of prompts, {rate.interval.rests_on} "
            f"({rate.inflation.num_rows:,} rows, failure rate {rate.inflation.failure_rate:g})."
        )
