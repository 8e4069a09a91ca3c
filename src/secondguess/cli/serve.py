"""`secondguess serve`: an OpenAI-compatible server whose answers carry a bound."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from secondguess.cli.errors import tell, user_errors
from secondguess.cli.language import GapName, StrategyName
from secondguess.cli.rows import (
    EngineOption,
    FailureOption,
    LabelledOption,
    MaxErrorOption,
    MeaningOption,
    ModelArgument,
    heed_check,
    open_engine,
    quiet_state,
    say,
)

if TYPE_CHECKING:
    from fastapi import FastAPI


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Language models")(serve)


def serve(
    model: ModelArgument,
    engine: EngineOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="What clients call the model. Default: the folder's name.")
    ] = None,
    max_hallucination_rate: Annotated[
        float | None,
        typer.Option(help="The largest bound that is still answered. Default: 0.1."),
    ] = None,
    labelled: LabelledOption = None,
    max_error_rate: MaxErrorOption = 0.05,
    failure_rate: FailureOption = 0.05,
    meaning: MeaningOption = None,
    strategy: Annotated[
        StrategyName, typer.Option(help="As in 'secondguess answer'.")
    ] = StrategyName.rejection,
    num_candidates: Annotated[
        int, typer.Option(min=1, max=64, help="Most samples per answer (rejection, top1).")
    ] = 10,
    min_probability: Annotated[
        float | None, typer.Option(help="No token less likely than this is sampled.")
    ] = None,
    gap: Annotated[
        GapName, typer.Option(help="How confidences above 1 are treated.")
    ] = GapName.absolute,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--text",
            help="Messages go through the chat template, or the one message is the prompt as it "
            "is; serve as you trained. Default: --chat if the tokenizer has a template.",
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Responses computed side by side.")] = 64,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Requests in line; one more gets status 429.")
    ] = 256,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a request may take.")] = 120.0,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="SECONDGUESS_API_KEY",
            show_envvar=True,
            help="What clients must send; better set by the environment.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A site whose pages may call this server; repeatable.")
    ] = None,
    ignore_check: Annotated[
        bool,
        typer.Option(
            "--ignore-check", help="Serve even where 'secondguess check' speaks against the rate."
        ),
    ] = False,
) -> None:
    """Serve a pair model to OpenAI clients, with a page to play with at /.

    An answer carries its bound; where no candidate has one that is small enough, the model
    abstains (content null, with a refusal). Stop it with Ctrl-C: accepted requests are finished.
    """
    with user_errors():
        from secondguess._arrays import check_rate
        from secondguess._files import manifest_digest
        from secondguess.language.engines import LocalEngine
        from secondguess.language.findings import CheckFinding
        from secondguess.language.generation import Sampling
        from secondguess.language.marked import read_marked
        from secondguess.language.meaning_functions import meaning_from
        from secondguess.language.windows import AnswerSettings
        from secondguess.serving.app import create_app
        from secondguess.serving.config import Defaults, ServerConfig

        if labelled is not None and max_hallucination_rate is not None:
            raise ValueError("expected either --max-hallucination-rate or --labelled.")
        rate = 0.1 if max_hallucination_rate is None else max_hallucination_rate
        check_rate("max_hallucination_rate", rate)
        if meaning is not None:
            meaning_from(meaning)
            if min_probability is not None:
                raise ValueError(
                    "--meaning judges the model's own draws; expected no --min-probability."
                )
        opened = open_engine(model, engine, quiet_state(), max_batch)
        pair_model = opened.model if isinstance(opened, LocalEngine) else None
        marked = None
        if labelled is None:
            finding = heed_check(model, pair_model, rate, ignore=ignore_check, tell=True)
        else:
            answers = AnswerSettings(
                max_hallucination_rate=rate,
                strategy=strategy.value,
                num_candidates=num_candidates,
                sampling=Sampling(min_probability=min_probability),
                gap=gap.value,
                meaning=meaning,
                model=manifest_digest(model),
            )
            marked = read_marked(
                labelled, answers, max_error_rate=max_error_rate, failure_rate=failure_rate
            )
            # The promise holds for any model; requests that leave it fall back on the check.
            finding = None if ignore_check else CheckFinding.load_beside(model, pair_model)
            rate = min(max(marked.max_gap, 1e-12), 1 - 1e-12)
            say(f"{labelled}: {marked.threshold}; the score is minus the gap")
        defaults = Defaults(
            max_hallucination_rate=rate,
            strategy=strategy.value,
            num_candidates=num_candidates,
            min_probability=min_probability,
            gap=gap.value,
        )
        config = ServerConfig(
            model_name=name or Path(model).resolve().name,
            defaults=defaults,
            chat=chat,
            meaning=meaning,
            marked=marked,
            finding=finding,
            max_batch=max_batch,
            max_waiting=max_waiting,
            timeout=timeout,
            api_key=api_key,
            cors_origins=tuple(cors_origin or ()),
        )
        _listen(create_app(opened, config), config.model_name, host, port)


def _listen(app: FastAPI, name: str, host: str, port: int) -> None:
    """Answer requests until a signal comes; then finish what was taken."""
    import uvicorn

    settings = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        server_header=False,
        lifespan="on",
        # Longer than clients keep an idle connection: whoever closes it first must not be us,
        # or a request that is on its way is lost.
        timeout_keep_alive=75,
    )
    with socket.create_server((host, port), family=_family(host), backlog=2048) as listener:
        address = f"[{host}]" if ":" in host else host
        port = listener.getsockname()[1]
        tell(f"serving {name} on http://{address}:{port} (page at /)")
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn finishes what it took, then sends itself the signal again.
            signal.signal(number, _end)
        try:
            uvicorn.Server(settings).run(sockets=[listener])
        finally:
            counters = app.state.counters
            tell(f"answered {counters.answered:,} of {counters.taken:,} requests")


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
