"""Names for networks and tokenizers that do not depend on where they are stored."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from transformers import PreTrainedModel


def digest_of_weights(network: PreTrainedModel) -> str:
    """A name for the weights and the settings of a network."""
    digest = hashlib.blake2b(digest_size=16)
    settings = network.config.to_dict()
    for volatile in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        settings.pop(volatile, None)
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def digest_of_tokenizer(tokenizer: Any) -> str:
    """A name for the rules and the special tokens of a tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    for volatile in ("padding", "truncation"):  # set by whoever called it last
        rules.pop(volatile, None)
    named = [rules, tokenizer.special_tokens_map, tokenizer.chat_template]
    text = json.dumps(named, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
