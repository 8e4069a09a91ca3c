"""A causal language model together with the pair format it was trained in.

The two belong together: a model only understands pairs in its own format, so they are saved and
loaded as one folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from secondguess._files import MANIFEST, check_manifest, replacing_folder
from secondguess.language.adapters import SavedAdapter, has_adapter, load_merged
from secondguess.language.digests import digest_of_tokenizer, digest_of_weights
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.models.transformer import register_transformer
from secondguess.training.checkpoints import told_as_os_error


@dataclass(frozen=True, eq=False)
class PairLanguageModel:
    """A model and its pair format: what scoring and generation work on.

    >>> from secondguess.language.formatting import PairFormat, PairFormatter
    >>> from secondguess.language.tokenizer import word_tokenizer
    >>> from secondguess.models.transformer import (
    ...     SinusoidalTransformerConfig, SinusoidalTransformerForCausalLM
    ... )
    >>> config = SinusoidalTransformerConfig(
    ...     vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=16, max_position_embeddings=16,
    ... )
    >>> network = SinusoidalTransformerForCausalLM(config)
    >>> formatter = PairFormatter(
    ...     word_tokenizer(["flip", "heads", "tails"]), PairFormat(response_length=2),
    ...     context_length=context_length(network.config),
    ... )
    >>> PairLanguageModel(network, formatter).formatter.max_prompt_length
    12

    Attributes:
        network: any causal language model of `transformers` that takes `position_ids` and keeps an
            attention cache; put it in evaluation mode and on its device yourself.
        formatter: the tokenizer and the format.
        adapter: for a network that is a base model with an adapter folded in, the adapter, which is
            then saved in place of the weights.
        recalibration: how scores are corrected, if the model was recalibrated on held-out pairs.
    """

    network: PreTrainedModel
    formatter: PairFormatter
    adapter: SavedAdapter | None = None
    recalibration: SequenceRecalibration | None = None

    def __post_init__(self) -> None:
        check_network(self.network)
        num_tokens = self.network.get_input_embeddings().weight.shape[0]  # pyright: ignore
        last = max(self.formatter.tokenizer.get_vocab().values(), default=0)
        if max(len(self.formatter.tokenizer), last + 1) > num_tokens:
            raise ValueError(
                f"the tokenizer has {len(self.formatter.tokenizer)} tokens up to number {last} but "
                f"the model only {num_tokens}; pass the model's own tokenizer."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this model from any other: digests of weights and tokenizer, and the format.

        It does not depend on where the model is stored. Unfinished work is only resumed with a
        model of the same identity.
        """
        return {
            "weights": digest_of_weights(self.network),
            "tokenizer": digest_of_tokenizer(self.formatter.tokenizer),
            "format": asdict(self.formatter.config),
            **({} if self.recalibration is None else {"recalibration": asdict(self.recalibration)}),
        }

    def save(self, directory: Path | str) -> None:
        """Write weights (safetensors), tokenizer and format as one folder, whole or not at all.

        Of a model with an adapter, the adapter is written in place of the weights.

        A model that was saved there before is replaced at once; a manifest is written with it.
        """
        with replacing_folder(Path(directory)) as unfinished, told_as_os_error():
            if self.adapter is None:
                self.network.save_pretrained(unfinished)
            else:
                self.adapter.save(unfinished)
            self.formatter.tokenizer.save_pretrained(unfinished)
            self.formatter.config.save(unfinished)
            if self.recalibration is not None:
                self.recalibration.save(unfinished)

    @classmethod
    def load(
        cls,
        source: Path | str,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        base: Path | str | None = None,
    ) -> PairLanguageModel:
        """Read what `save` wrote, ready to score.

        A folder with a manifest must be as it was saved. One without, from a trainer of your own,
        is taken as it is.

        Args:
            source: the folder.
            dtype: of the weights.
            device: where the network is put.
            base: where the base model of an adapter is, if it was moved since.
        """
        config = PairFormat.load(source)
        if Path(source, MANIFEST).is_file():
            check_manifest(Path(source))
        adapter = None
        if has_adapter(source):
            # An adapter is merged in the precision that it was trained in.
            network, adapter = load_merged(
                Path(source),
                base=base,
                load=load_network,
            )
            network = network.to(dtype)  # pyright: ignore[reportArgumentType]
            with _loading(source):
                tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        else:
            network, tokenizer = load_network(source, dtype=dtype)
        formatter = PairFormatter(tokenizer, config, context_length=context_length(network.config))
        network = network.to(device).eval()  # pyright: ignore[reportArgumentType]
        return cls(network, formatter, adapter, SequenceRecalibration.load(source))


def load_network(
    source: Path | str, *, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, Any]:
    """A causal language model and its tokenizer, from a folder, a name or a GGUF file."""
    register_transformer()
    path = Path(source)
    options: dict[str, Any] = {}
    if path.suffix == ".gguf":
        source, options = path.parent, {"gguf_file": path.name}
    unpacking = _gguf_unpacking() if options else {}
    with _loading(source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        if config.is_encoder_decoder:
            raise ValueError(
                f"it is an encoder-decoder model ({config.model_type}); expected a causal language "
                f"model, which sees prompt, y1 and y2 as one sequence"
            )
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by name
            **options,
            **unpacking,
        )
        network, loading = loaded
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    if not unpacking:  # names in a GGUF file are translated, and tied weights are left out
        _check_loading(source, network, loading)
    else:
        # The weights are dense now, but transformers refuses to save what still has a quantizer.
        network.hf_quantizer = None  # pyright: ignore[reportArgumentType]
    check_network(network)
    return network, tokenizer


@contextmanager
def _loading(source: Path | str) -> Iterator[None]:
    """Whatever goes wrong is told as one line about the model."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except Exception as error:  # a damaged folder makes `transformers` raise anything
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"cannot load the model {source}: {said[0].rstrip('.')}.") from None


def _check_loading(
    source: Path | str, network: PreTrainedModel, loading: Mapping[str, Any]
) -> None:
    """Refuse weights that are not the model's: what is missing would be filled at random."""
    kinds = {
        "missing": loading.get("missing_keys"),
        "unexpected": loading.get("unexpected_keys"),
        "misshapen": [name for name, *_ in loading.get("mismatched_keys") or ()],
        "not finite": [
            name
            for name, weights in network.state_dict().items()
            if weights.is_floating_point() and not bool(weights.isfinite().all())
        ],
    }
    problems = [
        f"{kind}: {', '.join(sorted(names)[:3])}{' and more' if len(names) > 3 else ''}"
        for kind, names in kinds.items()
        if names
    ]
    if problems:
        raise ValueError(
            f"the weights of {source} are not those of its model ({'; '.join(problems)}); copy the "
            f"whole folder again from where it came from."
        )


def _gguf_unpacking() -> dict[str, Any]:
    """Dense weights from a GGUF file: packed ones can be neither trained nor saved."""
    from transformers import GgufConfig

    return {"quantization_config": GgufConfig(dequantize=True)}


def check_network(network: PreTrainedModel) -> None:
    """Refuse models that cannot be trained or scored on pairs."""
    name = type(network).__name__
    if network.config.is_encoder_decoder:
        raise ValueError(
            f"{name} is an encoder-decoder model; expected a causal language model, which sees "
            f"prompt, y1 and y2 as one sequence."
        )
    if "position_ids" not in inspect.signature(network.forward).parameters:
        raise ValueError(
            f"{name} takes no position_ids, so the second response cannot start at a constant "
            f"position; use a model that takes them (GPT-2, Llama, Qwen and most others do)."
        )
    if "flash" in str(getattr(network.config, "_attn_implementation", None)):
        raise ValueError(
            f"{name} uses flash attention, which takes a jump in position_ids for the border of "
            f"two packed sequences; load the model with attn_implementation='sdpa'."
        )


def context_length(config: PreTrainedConfig) -> int | None:
    """How many positions a model has, or None if it states no limit."""
    length = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(
            f"max_position_embeddings of the model is {length!r}; expected a whole number above 0."
        )
    return length
