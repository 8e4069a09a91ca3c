"""The pair model of the experiment: a pretrained network, fine-tuned on people's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from secondguess.experiments.associations.norms import Cue
from secondguess.experiments.associations.pairs import (
    association_batches,
    response_length,
    soft_pair_loss,
)
from secondguess.language.fitting import LORA_LEARNING_RATE, fine_tuning
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel, context_length, load_network
from secondguess.language.tuning import tune
from secondguess.training.loop import TrainingHistory


@dataclass(frozen=True, kw_only=True)
class AssociationTraining:
    """How a model is trained.

    Attributes:
        model: folder, name or GGUF file of a causal language model.
        num_passes: how often a cue is seen. In one pass every cue is new to the model when it
            learns how far it knows it.
        cues_per_step: cues of a batch.
        pairs_per_cue: first answers drawn for each of them: how much one answer says about the
            next is learned from several to the same cue, whose prompt is read once.
        lora_rank: of the adapter.
        lora_layers: how many of the last layers it is for; all if None.
        learning_rate: the highest one.
        seed: of the draws and of the adapter.
    """

    model: str
    num_passes: float = 1.0
    cues_per_step: int = 16
    pairs_per_cue: int = 1
    lora_rank: int = 16
    lora_layers: int | None = None
    learning_rate: float = LORA_LEARNING_RATE
    seed: int = 0


def train_model(
    cues: Sequence[Cue], config: AssociationTraining, *, checkpoint_dir: Path
) -> tuple[PairLanguageModel, TrainingHistory]:
    """Train on all pairs of answers to these cues, or resume from the checkpoints."""
    network, tokenizer = load_network(config.model)
    formatter = PairFormatter(
        tokenizer,
        PairFormat(response_length=response_length(cues, tokenizer)),
        context_length=context_length(network.config),
    )
    model = PairLanguageModel(network, formatter)
    num_steps = max(1, round(config.num_passes * len(cues) / config.cues_per_step))
    return tune(
        model,
        batch_at=association_batches(
            cues,
            formatter,
            cues_per_step=config.cues_per_step,
            pairs_per_cue=config.pairs_per_cue,
            seed=config.seed,
        ),
        loss=soft_pair_loss,
        config=fine_tuning(num_steps, learning_rate=config.learning_rate, seed=config.seed),
        base=config.model,
        lora_rank=config.lora_rank,
        lora_layers=config.lora_layers,
        checkpoint_dir=checkpoint_dir,
        identity={"experiment": "associations", **model.identity},
        progress="training",
    )
