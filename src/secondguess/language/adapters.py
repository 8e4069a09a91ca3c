"""Low-rank adapters (LoRA) through PEFT: train a small part of a pretrained model.

An adapter adds a product of two thin matrices to every linear layer but the last, and only these
matrices are trained, checkpointed and saved. A pair model always computes with merged weights: an
adapter is folded into its base when training ends and when it is loaded, so nothing downstream
knows of it. In a folder it is `adapter_config.json` and `adapter_model.safetensors`, as PEFT writes
them, beside `base_model.json`, which says whose adapter it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from secondguess._arrays import check_at_least
from secondguess._files import read_document, read_record, write_document
from secondguess.language.digests import digest_of_weights

_BASE = "base_model.json"
_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_KIND, _FORMAT = "secondguess base model", 1


@dataclass(frozen=True)
class _Base:
    """Whose adapter it is: what `base_model.json` says."""

    source: str
    weights: str


@dataclass(frozen=True, eq=False)
class SavedAdapter:
    """What is written in place of the weights of a model that is a base and an adapter.

    Attributes:
        config: PEFT's settings of the adapter.
        tensors: its matrices, by PEFT's names.
        base: folder, name or GGUF file of the base model.
        base_weights: the digest of the base model's weights.
    """

    config: Any
    tensors: dict[str, Tensor]
    base: str
    base_weights: str

    def save(self, folder: Path) -> None:
        """Write the adapter and whose it is."""
        self.config.save_pretrained(folder)
        save_file(self.tensors, folder / _WEIGHTS, metadata={"format": "pt"})
        base = _Base(source=self.base, weights=self.base_weights)
        write_document(folder / _BASE, _KIND, _FORMAT, asdict(base))


class Adapter(nn.Module):
    """A network whose low-rank matrices are trained; its state is these matrices only.

    Args:
        network: a causal model; its own weights are frozen, and its linear layers wrapped.
        rank: columns of the thin matrices.
        base: folder, name or GGUF file of the network, to be written beside the adapter.
        seed: of their initial values.
        num_layers: how many of the last layers get an adapter; all if None. Below the first of
            them nothing needs a gradient, so half of the layers cost two thirds of the time.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        rank: int,
        *,
        base: str,
        seed: int,
        num_layers: int | None = None,
    ) -> None:
        super().__init__()
        # An adapter must find its base from wherever it is loaded.
        self._base = str(Path(base).resolve()) if Path(base).exists() else base
        self._base_weights = digest_of_weights(network)
        peft = _peft()
        config = peft.LoraConfig(
            r=check_at_least("lora_rank", rank, 1),
            # The product is scaled by alpha / rank; with a constant alpha the best learning rate
            # hardly depends on the rank.
            lora_alpha=32,
            target_modules="all-linear" if num_layers is None else _in_last(network, num_layers),
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.wrapped: Any = peft.get_peft_model(network, config)
        self.network = network

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The trained matrices: what a checkpoint holds."""
        everything = super().state_dict(*args, **{**kwargs, "keep_vars": True})
        keep = kwargs.get("keep_vars", False)
        return {
            name: tensor if keep else tensor.detach()
            for name, tensor in everything.items()
            if tensor.requires_grad and name.startswith("wrapped.")
        }

    def saved(self) -> SavedAdapter:
        """A copy of the adapter as it is now."""
        config = self.wrapped.peft_config["default"]
        config.base_model_name_or_path = self._base
        config.inference_mode = True
        # PEFT turns the names of layers into a set, whose order differs between processes.
        config.target_modules = sorted(config.target_modules)
        return SavedAdapter(config, _tensors_of(self.wrapped), self._base, self._base_weights)

    def merge(self) -> PreTrainedModel:
        """The network with the adapter folded into its weights, as if trained whole."""
        return self.wrapped.merge_and_unload()


def _in_last(network: PreTrainedModel, num_layers: int) -> list[str]:
    """The linear layers inside the last layers of a network, by name."""
    total = network.config.get_text_config(decoder=True).num_hidden_layers
    first = total - check_at_least("num_layers", num_layers, 1)
    linear = (name for name, each in network.named_modules() if isinstance(each, nn.Linear))
    numbered = ((name, re.search(r"\.(\d+)\.", name)) for name in linear)
    return [name for name, found in numbered if found and int(found[1]) >= first]


def has_adapter(source: Path | str) -> bool:
    """Whether a folder holds an adapter in place of a model's weights."""
    return Path(source, _CONFIG).is_file()


def load_merged(
    folder: Path,
    *,
    base: Path | str | None,
    load: Callable[[str], tuple[PreTrainedModel, Any]],
) -> tuple[PreTrainedModel, SavedAdapter]:
    """The base model with the adapter of a folder folded in, and the adapter.

    Args:
        folder: what `SavedAdapter.save` wrote.
        base: where the base model is now, if it was moved.
        load: loads a network and its tokenizer.
    """
    peft = _peft()
    try:
        content = read_document(folder / _BASE, _KIND, _FORMAT, what="whose adapter it is")
        named = read_record(_Base, content, _BASE)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder / _BASE} is missing or damaged; it says which model the adapter belongs to "
            f"({error}). Copy the whole folder again from where it came from."
        ) from None
    source, weights = named.source, named.weights
    try:
        network, _ = load(str(base or source))
    except ValueError as error:
        raise ValueError(
            f"{folder} holds an adapter to {base or source}: {error} If the base model was moved, "
            f"load the adapter with base=, and save it again."
        ) from None
    if digest_of_weights(network) != weights:
        raise ValueError(
            f"{folder} holds an adapter to {source}, but {base or source} has other weights now; "
            f"expected those that the adapter was trained on."
        )
    wrapped: Any = peft.PeftModel.from_pretrained(network, folder)
    config = wrapped.peft_config["default"]
    config.target_modules = sorted(config.target_modules)
    config.base_model_name_or_path = str(base or source)
    adapter = SavedAdapter(config, _tensors_of(wrapped), str(base or source), weights)
    return wrapped.merge_and_unload(), adapter


def _tensors_of(wrapped: Any) -> dict[str, Tensor]:
    # Otherwise PEFT looks for the base model's vocabulary, if need be on the network.
    found = _peft().get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ImportError(
            "low-rank adapters need PEFT; install it with `pip install 'secondguess[language]'`."
        ) from None
    return peft
