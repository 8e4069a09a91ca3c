"""Tuning: whatever the loss, an adapter is trained, saved and merged as `fit` does it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from language.models import pair_model, pair_rows

from secondguess.language.collating import Batch, PairCollator
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import score_pairs
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tuning import tune
from secondguess.training.loop import TrainingConfig


@pytest.mark.parametrize("lora_layers", [None, 1])
def test_the_loss_is_the_callers_and_the_adapter_comes_back_with_the_model(
    tmp_path: Path, lora_layers: int | None
) -> None:
    base = pair_model("llama")
    base.network.save_pretrained(tmp_path / "base")
    base.formatter.tokenizer.save_pretrained(tmp_path / "base")
    rows = pair_rows(["w1", "w2"], ["w3", "w4"], ["w3", "w5"])
    batch = PairCollator(base.formatter)(rows)
    seen: list[int] = []

    def counted_loss(network: torch.nn.Module, given: Batch) -> torch.Tensor:
        seen.append(int(given["extra"][0]))
        return pair_loss(network, {name: given[name] for name in given if name != "extra"})

    trained, history = tune(
        base,
        batch_at=lambda step: {**batch, "extra": torch.full((2,), step)},
        loss=counted_loss,
        config=TrainingConfig(num_steps=5, learning_rate=0.01, warmup_steps=1),
        base=tmp_path / "base",
        lora_rank=2,
        lora_layers=lora_layers,
    )
    assert seen == [0, 1, 2, 3, 4]
    assert history.losses[-1] < history.losses[0]
    assert trained.adapter is not None
    layers = {name.split(".layers.")[1][0] for name in trained.adapter.tensors}
    assert layers == ({"0", "1"} if lora_layers is None else {"1"})
    trained.save(tmp_path / "tuned")
    assert not (tmp_path / "tuned" / "model.safetensors").exists()
    again = PairLanguageModel.load(tmp_path / "tuned")
    for one, two in zip(score_pairs(trained, rows), score_pairs(again, rows), strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(two), atol=1e-5, rtol=0)
