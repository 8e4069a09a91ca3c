"""Rows are predicted in chunks of bounded memory, and chunks change nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from secondguess.classification.heads import HeadName, PairModel, build_head
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import (
    held_out_loss,
    joint_of,
    joints_of,
    mean_loss,
    read_joints,
)

HEADS: list[HeadName] = ["mixture", "symmetric", "binary"]

PEAK = """
import resource
import numpy as np
from secondguess.classification.estimators import PairClassifier

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(6_000, 2)), rng.integers(100, size=(6_000, 2))
model = PairClassifier(
    "responses", backbone="mlp", head="symmetric", width=8, num_steps=1, classes=range(100)
).fit(X[:150], Y[:150])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.score(X, Y)
model.calibrate(X, Y, min_variance=0.05)
model.predict_confidence(X)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def _model(head: HeadName, num_classes: int = 4) -> PairModel:
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(3, 5)
    model = PairModel(layer, build_head(head, 5, num_classes, generator=generator)).double()
    return model.eval()


@pytest.mark.parametrize("head", HEADS)
def test_chunks_change_nothing(head) -> None:
    rng = np.random.default_rng(0)
    model, inputs = _model(head), torch.from_numpy(rng.normal(size=(100, 3)))
    data = PairData.from_responses(rng.integers(4, size=(100, 3)), classes=range(4))
    whole = joint_of(model, inputs)
    one_chunk = mean_loss(model, inputs, data)
    assert one_chunk == held_out_loss(whole, data)
    model.rows_at_once = 7
    assert [rows.stop for rows, _ in joints_of(model, inputs)][-2:] == [98, 100]
    variance = read_joints(
        joints_of(model, inputs), len(inputs), lambda joint: joint.prediction().variance
    )
    np.testing.assert_allclose(variance, whole.epistemic_variance, rtol=1e-9)
    assert mean_loss(model, inputs, data) == pytest.approx(one_chunk, rel=1e-12)


def test_chunks_shrink_with_what_is_made_of_a_row() -> None:
    inputs = torch.zeros(10_000, 3, dtype=torch.float64)
    sizes = {
        values: next(joints_of(_model("binary"), inputs, values_per_row=values))[0].stop
        for values in (0, 2**12, 2**30)
    }
    assert sizes == {0: 4096, 2**12: 512, 2**30: 1}


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_a_hundred_classes_need_little_memory() -> None:
    # The tables of all rows are 480 MB. A chunk of them is 17 MB, of which several live at a time.
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 250_000
