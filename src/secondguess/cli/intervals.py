"""`secondguess calibrate` and `secondguess intervals`: certified intervals, files of any size."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from secondguess._files import check_output, only_writer_of
from secondguess.cli.errors import OverwriteOption, tell, user_errors

if TYPE_CHECKING:
    from secondguess.cli.calibration_file import CalibrationFile
    from secondguess.theory.calibration.count_stream import CountIntervals
    from secondguess.theory.calibration.inflation import VarianceInflation
    from secondguess.theory.calibration.interval_plan import IntervalMethod
    from secondguess.theory.calibration.means import MeanMethod

PredictorOption = Annotated[
    Path | None,
    typer.Option(help="The model's file or folder: intervals are then for its predictions only."),
]
_MOST_WORKERS = 256


class Method(StrEnum):
    """What is certified: pairs of responses, counts of them, or whichever is narrower."""

    pairs = "pairs"
    counts = "counts"
    auto = "auto"


class MeanBound(StrEnum):
    """How the mean is bounded."""

    betting = "betting"
    bernstein = "bernstein"
    hoeffding = "hoeffding"


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    for command in (calibrate, intervals):
        app.command(rich_help_panel="Intervals for any predictor")(command)


def calibrate(
    file: Annotated[
        Path,
        typer.Argument(help="Parquet, CSV, a folder of <column>.npy, or .npy with named fields."),
    ],
    probs_col: Annotated[str, typer.Option(help="Predicted probability of response 1.")],
    variance_col: Annotated[str, typer.Option(help="Its stated variance; may be negative.")],
    response_cols: Annotated[
        str | None,
        typer.Option(help="Two or more columns of responses, 0 or 1, comma-separated: y1,y2."),
    ] = None,
    count_cols: Annotated[
        str | None,
        typer.Option(
            help="Instead of responses: how many are 1, and how many there are, which may differ "
            "from row to row: ones,total."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the calibration.")] = Path(
        "calibration.json"
    ),
    min_variance: Annotated[
        float | None,
        typer.Option(help="Least variance of an interval. Default: chosen on a random fifth."),
    ] = None,
    failure_rate: Annotated[
        float, typer.Option(help="How often, over calibration sets, the guarantee may fail.")
    ] = 0.05,
    miss_rate: Annotated[
        float | None,
        typer.Option(
            help="The share of inputs that may be missed. Name it to get the narrowest intervals "
            "for it; without it every one is certified, by pairs."
        ),
    ] = None,
    method: Annotated[
        Method | None,
        typer.Option(
            help="Default: auto where --miss-rate or --count-cols is named and nothing asks for "
            "pairs, else pairs."
        ),
    ] = None,
    bound: Annotated[
        MeanBound, typer.Option(help="How the mean is bounded, by pairs.")
    ] = MeanBound.betting,
    group_col: Annotated[
        str | None,
        typer.Option(help="Rows with the same value here are not independent: one unit per group."),
    ] = None,
    annotator_cols: Annotated[
        str | None,
        typer.Option(help="Who gave each response, one column per response column: a1,a2."),
    ] = None,
    fixed_annotators: Annotated[
        bool, typer.Option("--fixed-annotators", help="Each response column is one person.")
    ] = False,
    predictor: PredictorOption = None,
    workers: Annotated[
        int, typer.Option(min=1, max=_MOST_WORKERS, help="Processes that read the file.")
    ] = 1,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> None:
    """Certify intervals for the true probability from responses to held-out inputs.

    The file has a row for each held-out input: a predicted probability, its variance, and two or
    more independent responses. The intervals that follow ('secondguess intervals') hold the true
    probability for all but the miss rate of new inputs, whatever the predictor. Rows are numbered
    from 0 in messages.
    """
    with user_errors(), only_writer_of(out):
        from secondguess.cli.calibration_file import CalibrationFile
        from secondguess.cli.calibration_set import CalibrationSet
        from secondguess.cli.columns import open_columns, require
        from secondguess.theory.calibration.inflation import VarianceInflation

        check_output(out, [file, *([predictor] if predictor else [])], overwrite=overwrite)
        responses, counts = _columns(response_cols, count_cols)
        annotators = None
        if annotator_cols is not None:
            annotators = _names("--annotator-cols", annotator_cols, len(responses))
            if len(annotators) != len(responses) or fixed_annotators:
                raise ValueError(
                    f"--annotator-cols is {annotator_cols!r}; expected one column per response "
                    f"column, and no --fixed-annotators."
                )
        columns = open_columns(file)
        labels = [*(annotators or []), *([group_col] if group_col else [])]
        require(columns, [probs_col, variance_col, *responses, *counts, *labels])
        table = CalibrationSet(
            columns=columns,
            probs=probs_col,
            variance=variance_col,
            responses=responses,
            counts=counts,
            group=group_col,
        )
        by_pairs = [
            name
            for name, given in (
                ("--min-variance", min_variance is not None),
                ("--annotator-cols", annotators is not None),
                ("--fixed-annotators", fixed_annotators),
                ("--bound", bound is not MeanBound.betting),
            )
            if given
        ]
        chosen = _method(method, by_pairs, one_rate=bool(counts) or miss_rate is not None)
        rate = 0.1 if miss_rate is None else miss_rate
        certified: CountIntervals | VarianceInflation
        if chosen == "pairs" and responses:
            from secondguess.cli.calibration_job import CalibrationJob

            certified = CalibrationJob(
                table=table,
                method=cast("MeanMethod", bound.value),
                annotators=annotators,
                fixed_annotators=fixed_annotators,
            ).run(min_variance, failure_rate, rate, workers)
        else:
            from secondguess.cli.count_job import CountJob

            certified = CountJob(table=table, method=chosen).run(failure_rate, rate, workers)
        pairs = isinstance(certified, VarianceInflation)
        calibration = CalibrationFile(
            probs=probs_col,
            variance=variance_col,
            inflation=certified if pairs else None,
            counts=None if pairs else certified,
            predictor=CalibrationFile.digest_of(predictor),
        )
        calibration.save(out)
    if as_json:
        typer.echo(json.dumps(calibration.as_document()))
    else:
        tell(
            f"{_summary(calibration)}\n"
            f"wrote {out}; next: secondguess intervals FILE --calibration {out}"
        )


def _columns(response_cols: str | None, count_cols: str | None) -> tuple[list[str], list[str]]:
    """The columns of responses, or those of counts."""
    if (response_cols is None) == (count_cols is None):
        raise ValueError(
            "expected --response-cols y1,y2 or --count-cols ones,total, one of the two."
        )
    if response_cols is not None:
        return _names("--response-cols", response_cols, 2), []
    counts = _names("--count-cols", count_cols or "", 2)
    if len(counts) != 2:
        raise ValueError(
            f"--count-cols is {count_cols!r}; expected two columns, how many responses are 1 and "
            f"how many there are: ones,total."
        )
    return [], counts


def _method(method: Method | None, by_pairs: list[str], *, one_rate: bool) -> IntervalMethod:
    """What was asked for, or `auto` where one miss rate is to be certified."""
    if method is None:
        return "auto" if one_rate and not by_pairs else "pairs"
    if method is not Method.pairs and by_pairs:
        raise ValueError(
            f"--method {method} came with {by_pairs[0]}, which is for pairs of responses; expected "
            f"--method pairs, or none."
        )
    return cast("IntervalMethod", method.value)


def _summary(calibration: CalibrationFile) -> str:
    inflation, counts = calibration.inflation, calibration.counts
    if inflation is not None:
        groups = "" if inflation.num_groups is None else f" in {inflation.num_groups:,} groups"
        return (
            f"variance inflation {inflation.value:.6g} (estimate {inflation.mean:.6g}), "
            f"min variance {inflation.min_variance:.6g}\n"
            f"from {inflation.num_rows:,} rows{groups} with {inflation.num_responses} responses "
            f"each, {inflation.method}, failure rate {inflation.failure_rate:g}\n"
            f"{inflation.num_negative_variances:,} negative variances were raised to the minimum"
        )
    assert counts is not None
    return (
        f"{counts.family.kind} intervals of radius {counts.radius:.6g}, min variance "
        f"{counts.family.min_variance:.6g}\n"
        f"from counts of {counts.num_rows:,} rows, {counts.num_misses:,} of them called a miss at "
        f"detection rate {counts.detection_rate:g}\n"
        f"certified for miss rate {counts.miss_rate:g}, failure rate {counts.failure_rate:g}"
    )


def _names(option: str, text: str, least: int) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) < least or len(set(names)) < len(names):
        raise ValueError(
            f"{option} is {text!r}; expected {'two' if least == 2 else least} or more columns, "
            f"each once: y1,y2."
        )
    return names


def intervals(
    file: Annotated[Path, typer.Argument(help="Parquet, CSV or .npy columns, as for calibrate.")],
    calibration: Annotated[Path, typer.Option(help="What 'secondguess calibrate' wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file with the added columns. Default: the input's name with .intervals."
        ),
    ] = None,
    miss_rate: Annotated[
        float | None,
        typer.Option(
            help="The share of inputs whose probability may lie outside. Default: as certified, "
            "or 0.1."
        ),
    ] = None,
    probs_col: Annotated[
        str | None, typer.Option(help="Predicted probability. Default: as calibrated.")
    ] = None,
    variance_col: Annotated[
        str | None, typer.Option(help="Its stated variance. Default: as calibrated.")
    ] = None,
    lower_col: Annotated[str, typer.Option(help="Name of the column of lower ends.")] = "lower",
    upper_col: Annotated[str, typer.Option(help="Name of the column of upper ends.")] = "upper",
    predictor: PredictorOption = None,
    overwrite: OverwriteOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Add guaranteed intervals for the true probability to a file of predictions.

    The guarantee is that of the calibration, so the inputs must be drawn as those of its file were.
    """
    with user_errors():
        from secondguess.cli.added_columns import write_added
        from secondguess.cli.calibration_file import CalibrationFile
        from secondguess.cli.column_values import Chunk
        from secondguess.cli.columns import open_columns, require
        from secondguess.theory.records import RestsOn

        found = CalibrationFile.load(calibration)
        found.check_predictor(calibration, predictor)
        rate = found.miss_rate(miss_rate)
        needed = [probs_col or found.probs, variance_col or found.variance]
        columns = open_columns(file)
        require(columns, needed)

        def compute(chunk: Chunk, row: int) -> Chunk:
            _check_predictions(columns.path, chunk, needed, row)
            interval = found.interval(chunk[needed[0]], chunk[needed[1]], rate)
            return {lower_col: interval.lower, upper_col: interval.upper}

        out = out or file.with_name(f"{file.stem}.intervals{file.suffix}")
        with only_writer_of(out):
            inputs = [file, calibration, *([predictor] if predictor else [])]
            check_output(out, inputs, overwrite=overwrite, folder=columns.in_folder)
            num_rows = write_added(columns, out, needed, [lower_col, upper_col], compute)
    if as_json:
        record = {
            "out": str(out),
            "num_rows": num_rows,
            "miss_rate": rate,
            "failure_rate": found.failure_rate,
            "rests_on": str(RestsOn.CALIBRATION_SET),
        }
        typer.echo(json.dumps(record))
    else:
        tell(
            f"wrote {out}: {num_rows:,} rows with intervals at miss rate {rate:g}, "
            f"{RestsOn.CALIBRATION_SET}"
        )


def _check_predictions(path: Path, chunk: dict[str, Any], needed: list[str], row: int) -> None:
    import numpy as np

    probs, variance = (np.asarray(chunk[name], dtype=np.float64) for name in needed)
    checks = [
        (needed[0], probs, ~((probs >= 0) & (probs <= 1)), "a probability in [0, 1]"),
        (needed[1], variance, ~np.isfinite(variance), "a finite number"),
    ]
    for name, values, bad, expected in checks:
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"{path}: column {name!r}, row {row + at} is {values[at].item()!r}; "
                f"expected {expected}."
            )
