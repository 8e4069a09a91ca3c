"""`secondguess recalibrate`: correct the scores of a pair model on held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secondguess._files import only_writer_of
from secondguess.cli.errors import say, user_errors
from secondguess.cli.rows import (
    BatchSizeOption,
    MeaningOption,
    ModelArgument,
    SkipOption,
    load_model,
    quiet_state,
)


def recalibrate(
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(help='Held-out JSON lines {"prompt": "...", "responses": ["...", "..."]}.'),
    ],
    meaning: MeaningOption = None,
    num_samples: Annotated[
        int, typer.Option(min=2, help="Pairs drawn per prompt (with --meaning).")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the responses that are drawn.")] = 0,
    batch_size: BatchSizeOption = 32,
    skip_bad: SkipOption = False,
) -> None:
    """Correct the scores of a pair model on held-out pairs, and keep the correction in its folder.

    Three numbers are corrected, each by a line on the logit scale: p(y|y,x), by how often y2
    repeats y1; p(y|x) and the confidence C, by how far they tell people's responses from those that
    the model draws. Few pairs cannot tell an error from chance, so lines stay near the identity
    until pairs show better; where every pair repeats, p(y|y,x) becomes one number close to 1. The
    weights stay as they are. Use pairs that were not trained on, and other ones again for
    'secondguess check'.
    """
    with user_errors():
        import numpy as np

        from secondguess.cli.inspection import held_out
        from secondguess.language import recalibrating
        from secondguess.language.meaning_functions import meaning_from

        if not file.is_file():
            raise ValueError(f"{file} is not a file; expected held-out JSON lines.")
        means = None if meaning is None else meaning_from(meaning)
        with only_writer_of(model):
            pair_model = load_model(model, quiet_state())
            rows, _, num_skipped = held_out(file, pair_model, None, skip_bad=skip_bad)
            better = recalibrating.recalibrate(
                pair_model,
                rows,
                rng=np.random.default_rng(seed),
                meaning=means,
                num_samples=num_samples,
                batch_size=batch_size,
            )
            better.save(model)
        found = better.recalibration
        assert found is not None
        skipped = f" ({num_skipped:,} lines skipped)" if num_skipped else ""
        say(f"{found.num_pairs:,} held-out pairs{skipped}")
        for name, line in zip(
            ("p(y|x)", "p(y|y,x)", "C"), (found.first, found.repeat, found.confidence), strict=True
        ):
            say(f"logit {name} becomes {line.slope:.3f} times itself {line.offset:+.3f}")
        say(f"wrote {model}; next: secondguess check {model} OTHER_HELD_OUT_FILE")
