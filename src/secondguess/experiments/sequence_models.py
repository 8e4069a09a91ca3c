"""The networks of the two sequence experiments: made from a seed, trained by a part, loaded again.

Data, losses, recipes and evaluations are each experiment's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from secondguess.language.formatting import PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)
from secondguess.training.loop import TrainingConfig

MODEL_PART = "training"
"""The part of a run that trains the network."""


def fresh_transformer(
    formatter: PairFormatter,
    *,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    num_positions: int,
    seed: int,
    initializer_range: float = 0.02,
) -> PairLanguageModel:
    """An untrained model; its weights depend on these arguments alone.

    Args:
        formatter: of its pairs; it has the vocabulary.
        hidden_size: width of the transformer; its MLPs are four times as wide.
        num_layers: its blocks.
        num_heads: attention heads of a block.
        num_positions: the most tokens of a pair.
        seed: of the weights.
        initializer_range: standard deviation of the first weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SinusoidalTransformerForCausalLM(
            SinusoidalTransformerConfig(
                vocab_size=len(formatter.tokenizer),
                hidden_size=hidden_size,
                num_hidden_layers=num_layers,
                num_attention_heads=num_heads,
                intermediate_size=4 * hidden_size,
                initializer_range=initializer_range,
                max_position_embeddings=num_positions,
                eos_token_id=formatter.end,
            )
        )
    return PairLanguageModel(network, formatter)


def training_config(config: Any, **others: Any) -> TrainingConfig:
    """How a run is trained: what its own config says, and what is the same in all of its presets.

    The paper states AdamW, its highest rate, the warm-up and the cosine decay. The weight decay,
    here that of PyTorch, and the betas, which each experiment names, it does not state: both are
    ours, in the preset `paper` too.

    Args:
        config: of the experiment; `PiConfig` and `LakeConfig` share the names below.
        others: settings that its presets do not change.
    """
    names = ("num_steps", "learning_rate", "matrix_learning_rate", "warmup_steps", "clip_norm")
    given = {name: getattr(config, name) for name in (*names, "average_decay", "seed")}
    return TrainingConfig(weight_decay=0.01, **given, **others)


def model_directory(run_directory: Path) -> Path:
    """Where a run keeps its trained model."""
    return run_directory / "parts" / MODEL_PART / "model"


def load_model(run_directory: Path) -> PairLanguageModel:
    """The trained model of a run."""
    return PairLanguageModel.load(model_directory(run_directory))
