"""`secondguess fit`: train a causal language model on pairs of responses."""

from __future__ import annotations

import hashlib
import math
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli.errors import user_errors
from secondguess.cli.rows import SkipOption, quiet_state, say


class LayoutName(StrEnum):
    """How y2 gets a constant start."""

    positions = "positions"
    padded = "padded"


class PrecisionName(StrEnum):
    """What training computes in."""

    float32 = "float32"
    bfloat16 = "bfloat16"


def fit(
    data: Annotated[
        Path, typer.Argument(help='JSON lines {"prompt": "...", "responses": ["...", "..."]}.')
    ],
    model: Annotated[str, typer.Option(help="Folder, name or GGUF file of a causal model.")],
    out: Annotated[Path, typer.Option(help="Folder for the pair model.")],
    response_length: Annotated[
        int | None,
        typer.Option(min=2, help="Positions a response owns. Default: the longest in the data."),
    ] = None,
    layout: Annotated[
        LayoutName, typer.Option(help="How y2 gets a constant start.")
    ] = LayoutName.positions,
    separator: Annotated[str, typer.Option(help="Text before each response.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(min=1, help="Pairs a step, over all processes.")] = 32,
    accumulation_steps: Annotated[
        int, typer.Option(min=1, help="Parts of a batch, one after the other, to save memory.")
    ] = 1,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-5,
    warmup_steps: Annotated[
        int | None, typer.Option(min=0, help="Default: a tenth of the steps, at most 1000.")
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.")] = 1e-4,
    clip_norm: Annotated[float, typer.Option(help="Largest norm of the gradient.")] = 1.0,
    precision: Annotated[
        PrecisionName, typer.Option(help="bfloat16 computes under autocast.")
    ] = PrecisionName.float32,
    seed: Annotated[int, typer.Option(help="Order of the rows and draws of the pairs.")] = 0,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    skip_bad: SkipOption = False,
) -> None:
    """Train a causal language model on pairs of responses.

    A line of the data has a prompt (text, or a list of chat messages) and two or more independent
    responses to it. Killed and started again with the same options, it goes on from its last
    checkpoint. Run it under 'accelerate launch -m secondguess.cli fit ...' for several processes.
    """
    with user_errors():
        from accelerate import PartialState

        from secondguess.language.fitting import RowFile, pair_batches, pair_loss
        from secondguess.language.formatting import FormatError, PairFormat, PairFormatter
        from secondguess.language.model import PairLanguageModel, context_length, load_network
        from secondguess.training.loop import TrainingConfig, train

        state = quiet_state()
        if (out / "pair_format.json").exists():
            raise ValueError(f"{out} holds a trained pair model; name another folder.")
        if not data.is_file():
            raise ValueError(f"{data} is not a file; expected one of JSON lines.")
        network, tokenizer = load_network(model)
        context = context_length(network)
        # The longest response is found while the rows are checked, in a format with any room.
        widest = PairFormat(
            response_length=response_length or _widest(context),
            layout=layout.value,
            separator=separator,
        )
        checker = PairFormatter(tokenizer, widest)
        limit = math.inf if context is None else context - len(checker.separator)
        longest_response = longest_prompt = 0

        def check(row: Any) -> None:
            nonlocal longest_response, longest_prompt
            encoded = checker.encode(row)
            longest = max(map(len, encoded.responses))
            owned = response_length or longest
            if len(encoded.prompt) + 2 * owned > limit:
                raise FormatError(
                    f"the prompt has {len(encoded.prompt)} tokens, which leaves no room for two "
                    f"responses of {owned} in the model's context of {context}."
                )
            longest_response = max(longest_response, longest)
            longest_prompt = max(longest_prompt, len(encoded.prompt))

        rows = RowFile(data, check=check, skip_bad=skip_bad)
        config = PairFormat(
            response_length=response_length or longest_response,
            layout=layout.value,
            separator=separator,
        )
        formatter = PairFormatter(tokenizer, config, context_length=context)
        if formatter.max_prompt_length is not None and longest_prompt > formatter.max_prompt_length:
            raise ValueError(
                f"the longest prompt ({longest_prompt} tokens) and two of the longest response "
                f"({config.response_length}) do not fit the model's context of {context}; lower "
                f"--response-length, and --skip-bad what is longer."
            )
        pair_model = PairLanguageModel(network, formatter)
        if state.is_main_process:
            out.mkdir(parents=True, exist_ok=True)
            skipped = f", {rows.num_skipped:,} lines skipped" if rows.num_skipped else ""
            say(f"{len(rows):,} rows{skipped}; responses own {config.response_length} positions")
        state.wait_for_everyone()
        training = TrainingConfig(
            num_steps=steps,
            learning_rate=learning_rate,
            warmup_steps=min(1000, steps // 10) if warmup_steps is None else warmup_steps,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            accumulation_steps=accumulation_steps,
            precision=precision.value,
            seed=seed,
        )
        history = train(
            network,
            loss=pair_loss,
            batch_at=pair_batches(rows, formatter, batch_size=batch_size, seed=seed),
            config=training,
            checkpoint_dir=out / "checkpoints",
            checkpoint_every=checkpoint_every,
            identity={"model": model, "data": _digest(data), "batch_size": batch_size},
            progress="fit",
        )
        if state.is_main_process:
            pair_model.save(out)
            shutil.rmtree(out / "checkpoints")
            recent = history.losses[-max(1, steps // 10) :].mean()
            say(
                f"wrote {out}: {recent:.4f} nats a pair over the last steps; next: "
                f"secondguess check {out} HELD_OUT_FILE"
            )
        PartialState().wait_for_everyone()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def _widest(context: int | None) -> int:
    return 1 << 20 if context is None else context
