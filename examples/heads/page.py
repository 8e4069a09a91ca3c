"""The page docs/heads.md, made from the result of `compare.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "binary": "`binary` (mean, correlation)",
    "symmetric": "`symmetric`",
    "mixture": "`mixture`",
}

PAGE = """# Choosing a head

A head turns features into a joint p(y1, y2|x). There are four, and they differ in what they can
say and in what they cost:

| head | outputs for K classes | epistemic variance | good for |
|---|---|---|---|
| `BinaryPairHead` | 2 | never negative | two classes |
| `ClasswisePairHead` | 2 K | never negative | many classes, each on its own; no joint table |
| `SymmetricPairHead` | K^2 | may come out negative | the paper's choice; dozens of classes |
| `MixturePairHead` | R (K + 1) | never negative | the default; up to ten thousand classes |

`PairClassifier(head="binary")` takes the first for two classes and the second for more.

## Calibration in a known world

A world whose truth is known (`examples/heads/hidden_world.py`): an input is a point in a square and
one of four contexts, and the model sees the point only. All heads sit on the same small residual
MLP and get fresh pairs for 600 steps of 1024. On {num_test:,} test inputs the mean epistemic
variance should equal the true squared error of the probabilities (the grouping error), and ECE-2
should be close to zero. Ranges are over {num_seeds} seeds; the plain classifiers ran with one.

{known}

The pair heads state how wrong they are. The naive variance of a plain classifier counts all
disagreement as ignorance, and an ensemble sees hardly any ignorance at all, because all of its
members agree on what the points alone can tell.

## Mixture against symmetric with few rows

The same world with limited rows of two responses, 400 steps with early stopping on held-out pairs
(a fifth as many), and 20,000 test inputs. `loss` is the mean -log p(y1, y2|x), lower is better;
ECE-2 is given as a share of the grouping error, before and after `fit_recalibration`.

{limited}

One seed each, so small differences mean nothing. As trained, the mixture has the lower loss in
every setting, clearly so with many classes, and its variances are never negative; on small sets the
symmetric head gets a third of them below zero. More than ten components bring nothing here, and
fewer cost calibration, which is why ten is the most that the default takes. The symmetric head is
not always behind: with few rows its ECE-2, as trained, is the smaller one, and with ten
classes and 1,000 rows recalibration gives it the lower loss. But it then makes its ECE-2 much
worse, while it helps that of the mixture everywhere. With plenty of rows and ten classes the two
are alike.

## Cost

A training step (forward, loss, backward) on 128 features with a batch of 64, on one thread
(`python benchmarks/heads.py --plot docs/pictures/heads-cost.png`):

![Milliseconds and memory of a step against the number of classes, for a plain softmax head and the
four pair heads: the symmetric ones grow with the square of K, the others in proportion to
K.](pictures/heads-cost.png)

A mixture step costs a few plain ones at ten classes and some thirty at ten thousand, where a table
of pairs no longer fits at all.

---

Made by `{command}` (torch {torch}, {machine}) from `docs/results/heads.json`.
"""


def render(result: dict[str, Any]) -> str:
    """The page as text."""
    return PAGE.format(
        num_test=result["num_test"],
        num_seeds=1 + max(row["seed"] for row in result["known"]),
        known=_known_table(result["known"]),
        limited=_limited_table(result["limited"]),
        command=result["command"],
        torch=result["versions"]["torch"],
        machine=result["machine"],
    )


def write_page(result: dict[str, Any], path: Path) -> None:
    """Write the page."""
    path.write_text(render(result))


def _known_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| classes | method | grouping error | mean variance / error | ECE-2 / error |",
        "|---|---|---|---|---|",
    ]
    for num_classes in sorted({row["num_classes"] for row in rows}):
        here = [row for row in rows if row["num_classes"] == num_classes]
        for method in dict.fromkeys(row["method"] for row in here):
            runs = [row for row in here if row["method"] == method]
            errors = np.array([run["grouping_error"] for run in runs])
            variance = np.array([run["mean_variance"] for run in runs]) / errors
            calibration = np.array([run["second_order_ece"] for run in runs]) / errors
            lines.append(
                f"| {num_classes} | {NAMES.get(method, method)} | {errors.mean():.4f} | "
                f"{_range(variance)} | {_range(calibration)} |"
            )
    return "\n".join(lines)


def _limited_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| classes | rows | head | R | loss | loss, recalibrated | ECE-2 / error | recalibrated | "
        "negative variances |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        raw, better = row["raw"], row["recalibrated"]
        lines.append(
            f"| {row['num_classes']} | {row['num_rows']:,} | {row['head']} | "
            f"{row['num_components'] or ''} | {row['pair_loss']:.3f} | "
            f"{row['pair_loss_recalibrated']:.3f} | "
            f"{raw['second_order_ece'] / raw['grouping_error']:.2f} | "
            f"{better['second_order_ece'] / better['grouping_error']:.2f} | "
            f"{raw['negative_variances']:.1%} |"
        )
    return "\n".join(lines)


def _range(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.2f}" if len(values) == 1 else f"{low:.2f} to {high:.2f}"
