"""Compare rivals in `baselines/answers` with lm-polygraph and uqlm on the same draws.

    pip download --no-deps lm-polygraph uqlm
    for wheel in *.whl; do unzip -q $wheel -d PEERS; done
    python docs/tables/rival_peers.py PEERS

Only the modules that compute a score from draws or from log-probabilities are loaded, not what the
packages need beside them: uqlm asks for older versions of NumPy and transformers than ours. It
writes docs/results/rival-peers.json, of which `facts.py` makes a table.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pages import keep

from secondguess._arrays import FloatArray
from secondguess.baselines.answers import log_probability, semantic_entropy
from secondguess.baselines.answers.asking import Asked
from secondguess.language.examples import tiny_pair_model
from secondguess.language.scoring import score

NUM_QUESTIONS = 500
NUM_DRAWS = 10
WORDINGS = ("{}", "{}!", " {} ")
"""That mean the same once punctuation and spaces are gone."""
MEANINGS = tuple("abcdefgh")


def without_opening(peers: Path, *names: str) -> None:
    """Let packages be found without what their `__init__` loads."""
    for name in names:
        package = ModuleType(name)
        package.__path__ = [str(peers / name.replace(".", "/"))]
        sys.modules[name] = package


def drawn(rng: np.random.Generator) -> list[list[str]]:
    """Draws for each question, from one meaning to eight, in several wordings."""
    samples = []
    for _ in range(NUM_QUESTIONS):
        shares = rng.dirichlet(np.full(len(MEANINGS), 0.3))
        chosen = rng.choice(len(MEANINGS), size=NUM_DRAWS, p=shares)
        samples.append(
            [WORDINGS[rng.integers(len(WORDINGS))].format(MEANINGS[each]) for each in chosen]
        )
    return samples


def classes(asked: Asked, question: int) -> tuple[list[list[int]], list[int]]:
    """Which draws each meaning has, and the meaning of each draw, by number."""
    meanings = [asked.meaning(text) for text in asked.samples[question]]
    order = list(dict.fromkeys(meanings))
    of_draw = [order.index(each) for each in meanings]
    return [[i for i, each in enumerate(of_draw) if each == c] for c in range(len(order))], of_draw


def entropies(asked: Asked, polygraph: Any, uqlm: Any) -> dict[str, FloatArray]:
    """Semantic entropy of the same draws in the same classes, by ours and by the peers."""
    grouped = [classes(asked, question) for question in range(len(asked))]
    estimator = polygraph.SemanticEntropy(class_probability_estimation="frequency")
    stats = {
        "sample_texts": asked.samples,
        "semantic_classes_entail": {
            "class_to_sample": [each for each, _ in grouped],
            "sample_to_class": [each for _, each in grouped],
        },
    }
    _, uniform = uqlm.compute_response_probabilities(None, NUM_DRAWS)
    return {
        "ours": -semantic_entropy.score(tiny_pair_model(), asked).values,
        "lm-polygraph": estimator(stats),
        "uqlm": np.array(
            [
                uqlm.compute_semantic_entropy(uqlm.compute_cluster_probabilities(uniform, each))
                for each, _ in grouped
            ]
        ),
    }


def log_probabilities(peers: dict[str, Any]) -> dict[str, dict[str, FloatArray]]:
    """Total and mean log-probability of answers of a small model, with minus signs."""
    model, answers = tiny_pair_model(), ["heads", "tails"]
    asked = Asked(["flip"] * len(answers), answers, [["heads"]] * len(answers))
    (scored,) = score(model, [{"prompt": "flip", "responses": answers}])
    stats = {"greedy_log_likelihoods": [each.log_marginal for each in scored]}
    return {
        "total log-probability": {
            "ours": -log_probability.total(model, asked).values,
            "lm-polygraph": peers["max_probability"].MaximumSequenceProbability()(stats),
        },
        "mean log-probability": {
            "ours": -log_probability.mean_per_token(model, asked).values,
            "lm-polygraph": peers["perplexity"].Perplexity()(stats),
        },
    }


def main() -> None:
    """Compare, and keep the largest differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", type=Path, help="folder with both wheels unzipped")
    folder = parser.parse_args().peers
    start = time.perf_counter()
    without_opening(
        folder, "lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.utils", "uqlm", "uqlm.nli"
    )
    sys.path.insert(0, str(folder))
    names = ("semantic_entropy", "max_probability", "perplexity")
    modules = {name: importlib.import_module(f"lm_polygraph.estimators.{name}") for name in names}
    uqlm = importlib.import_module("uqlm.nli.entropy_utils")
    samples = drawn(np.random.default_rng(0))
    asked = Asked(["flip"] * NUM_QUESTIONS, ["heads"] * NUM_QUESTIONS, samples)
    found = {
        "semantic entropy": entropies(asked, modules["semantic_entropy"], uqlm),
        **log_probabilities(modules),
    }
    versions = {
        path.name.split("-")[0].replace("_", "-"): path.name.split("-")[1].removesuffix(".dist")
        for path in folder.glob("*.dist-info")
    }
    rows = [
        {
            "score": name,
            "peer": f"{peer} {versions[peer]}",
            "answers": len(values["ours"]),
            "lowest": float(values["ours"].min()),
            "highest": float(values["ours"].max()),
            "largest_difference": float(np.abs(values["ours"] - theirs).max()),
        }
        for name, values in found.items()
        for peer, theirs in values.items()
        if peer != "ours"
    ]
    command = "python docs/tables/rival_peers.py PEERS"
    keep("rival-peers", command=command, seconds=time.perf_counter() - start, rows=rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
