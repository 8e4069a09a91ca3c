"""The measurements behind docs/intervals-from-counts.md.

    python docs/tables/intervals_from_counts.py failures|widths|planning [--data-dir DIR]

writes docs/results/intervals-from-counts-<part>.json; then `python docs/tables/counts_page.py` puts
the tables into the page. `widths` reads CIFAR-10H and CEBaB from the data folder and keeps features
and predictions in its folder `counts-cache`; it writes after every row and keeps those that are in
its result already, so that a run that was cut short resumes (delete the file to measure anew).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.theory.calibration.count_stream import CountStream
from secondguess.theory.calibration.counts import NUM_SLOTS, count_scores, uniform_slots
from secondguess.theory.calibration.fit_intervals import fit_intervals
from secondguess.theory.calibration.interval_plan import FAMILIES, IntervalMethod
from secondguess.theory.calibration.nested import NestedFamily, beta_shapes
from secondguess.theory.calibration.planning import plan_width

RESULTS = Path(__file__).parent.parent / "results"
MISS_RATE, FAILURE_RATE = 0.1, 0.05
METHODS: tuple[IntervalMethod, ...] = ("pairs", "counts", "auto")
SYMMETRIC, BETA = NestedFamily("symmetric", 0.0025), NestedFamily("beta", 0.0004)
CLASSIFIER: dict[str, Any] = {
    "backbone": "mlp",
    "recalibrate": "likelihood",
    "width": 64,
    "num_steps": 600,
    "batch_size": 256,
    "random_state": 0,
}
"""The pair classifier on frozen features whose predictions are calibrated."""


@dataclass(frozen=True)
class Kinds:
    """A world of finitely many kinds of rows, so that the true miss rate is a finite sum.

    Attributes:
        weights: `(m,)`, how often each kind occurs.
        truths: `(m,)`, p(1|x).
        probs: `(m,)`, what the predictor says.
        variance: `(m,)`, the variance that it states.
        num_responses: `(m,)`.
    """

    weights: np.ndarray
    truths: np.ndarray
    probs: np.ndarray
    variance: np.ndarray
    num_responses: np.ndarray

    def scores(self, family: NestedFamily, rate: float) -> np.ndarray:
        """The score of every kind, count and draw, `(m, max k + 1, NUM_SLOTS)`."""
        k = self.num_responses[:, None, None]
        counts = np.minimum(np.arange(k.max() + 1)[:, None], k)
        cells = np.broadcast_arrays(
            self.probs[:, None, None], self.variance[:, None, None], counts, k, np.arange(NUM_SLOTS)
        )
        p, v, c, total, slots = (cell.ravel() for cell in cells)
        return count_scores(family, p, v, c, total, slots, rate).reshape(cells[0].shape)

    def draw_kinds(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Random rows: their kinds, and how many of their responses are ones."""
        kind = rng.choice(len(self.weights), size=size, p=self.weights)
        return kind, rng.binomial(self.num_responses[kind], self.truths[kind])

    def draw(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
        """Predictions, ones and numbers of responses of random rows."""
        kind, ones = self.draw_kinds(rng, size)
        return self.probs[kind], self.variance[kind], ones, self.num_responses[kind]

    def missed(self, interval: tuple[np.ndarray, np.ndarray]) -> float:
        """The share of rows whose truth is outside."""
        outside = (self.truths < interval[0] - 1e-12) | (self.truths > interval[1] + 1e-12)
        return float(self.weights @ outside)


def kinds(**columns: Any) -> Kinds:
    """A world from columns of any length, or single numbers."""
    arrays = np.broadcast_arrays(*(np.asarray(value, float) for value in columns.values()))
    named = dict(zip(columns, arrays, strict=True))
    named["weights"] = named["weights"] / named["weights"].sum()
    return Kinds(**{**named, "num_responses": named["num_responses"].astype(np.int64)})


def worlds(family: NestedFamily, k: int) -> dict[str, Kinds]:
    """Worlds that try to have more misses than are seen."""
    radius = 2.0 if family.kind == "symmetric" else 3.0
    lower, upper = (e[0] for e in family.ends(np.array([0.4]), np.array([0.01]), radius))
    ragged = np.array([2, 3, 7, 40, 100])
    spread = np.linspace(0.01, 0.99, 25)
    return {
        "truths just outside the ends, the rest certain": kinds(
            weights=[0.05025, 0.05025, 0.8995],
            truths=[upper + 1e-6, lower - 1e-6, 0.0],
            probs=[0.4, 0.4, 0.0],
            variance=0.01,
            num_responses=k,
        ),
        "truths just outside the upper end, the rest at the mean": kinds(
            weights=[0.1005, 0.8995],
            truths=[upper + 1e-6, 0.4],
            probs=0.4,
            variance=0.01,
            num_responses=k,
        ),
        "truths at 0 and 1": kinds(
            weights=[0.06, 0.06, 0.88],
            truths=[0.0, 1.0, 0.1],
            probs=[0.5, 0.5, 0.1],
            variance=[0.01, 0.01, 0.001],
            num_responses=k,
        ),
        "a rare class": kinds(
            weights=[0.104, 0.896],
            truths=[0.03, 0.0005],
            probs=0.001,
            variance=1e-6,
            num_responses=k,
        ),
        "many truths, stated variance four times too small": kinds(
            weights=np.exp(-0.5 * ((spread - 0.4) / 0.2) ** 2),
            truths=spread,
            probs=0.4,
            variance=0.01,
            num_responses=k,
        ),
        "ragged: 2 to 100 responses, fewest where it misses": kinds(
            weights=[0.07, 0.02, 0.005, 0.005, 0.005, 0.3, 0.3, 0.295],
            truths=[upper + 1e-6] * 5 + [0.0, 0.4, 0.0],
            probs=[0.4] * 5 + [0.0, 0.4, 0.0],
            variance=0.01,
            num_responses=[*ragged, 100, 40, 7],
        ),
    }


def failures(replicates: int) -> list[dict[str, Any]]:
    """How often a certified radius misses more than it says, with family and test fixed."""
    rows = []
    for family in (SYMMETRIC, BETA):
        for k in (2, 5, 20, 100):
            for name, world in worlds(family, k).items():
                if "ragged" in name and k != 2:
                    continue
                for size in (50, 200, 1000, 10_000, 100_000):
                    if size == 100_000 and not ("ends" in name and k in (2, 100)):
                        continue
                    for rate in (0.25, 0.9) if size < 10_000 else (0.5,):
                        rows.append(failure_row(replicates, family, name, world, k, size, rate))
            print(family.kind, k, len(rows), flush=True)
    return rows


def failure_row(
    replicates: int, family: NestedFamily, name: str, world: Kinds, k: int, size: int, rate: float
) -> dict[str, Any]:
    """One cell: many calibration sets of one world."""
    rng = np.random.default_rng([k, size, int(100 * rate), sum(map(ord, name))])
    failed, certified, missed = 0, 0, 0.0
    scores = world.scores(family, rate)
    for replicate in range(replicates):
        stream = CountStream(family, detection_rate=rate, seed=replicate)
        stream.update_scores(
            scores[(*world.draw_kinds(rng, size), uniform_slots(0, size, replicate))]
        )
        radius = stream.result(miss_rate=MISS_RATE, failure_rate=FAILURE_RATE).radius
        miss = world.missed(family.ends(world.probs, world.variance, radius))
        failed += miss > MISS_RATE
        certified += np.isfinite(radius)
        missed += miss
    return {
        "world": name,
        "family": family.kind,
        "num_responses": "2 to 100" if "ragged" in name else k,
        "rows": size,
        "detection_rate": rate,
        "replicates": replicates,
        "failures": int(failed),
        "certified": int(certified),
        "mean_missed": missed / replicates,
    }


def simulated(num_rows: int, k: int, seed: int) -> dict[str, Any]:
    """A calibrated predictor: truths are Beta with the stated mean and variance."""
    rng = np.random.default_rng([seed, k])
    probs = rng.beta(0.6, 1.2, num_rows + 20_000)
    variance = probs * (1 - probs) * rng.choice([0.01, 0.05, 0.2], len(probs))
    truths = rng.beta(*beta_shapes(probs, variance))
    return {
        "probs": probs,
        "variance": variance,
        "counts": rng.binomial(k, truths),
        "totals": np.full(len(probs), k),
        "truths": truths,
        "calibrating": np.arange(num_rows),
        "evaluating": np.arange(num_rows, len(probs)),
    }


def cifar10h(data_dir: Path, *, known: bool, rows: str) -> dict[str, Any]:
    """Images 3,000 to 9,999 of CIFAR-10H; `known` redraws counts from the annotators' shares."""
    path = data_dir / "counts-cache" / "cifar10h-predictions.npz"
    counts = np.load(data_dir / "cifar10h-counts.npy")
    if not path.exists():
        from secondguess.classification.estimators import PairClassifier
        from secondguess.experiments.cifar10h import data
        from secondguess.experiments.cifar10h.frozen import frozen_features

        images = data.load(data_dir).annotated.inputs
        inputs = frozen_features(images, cache_dir=path.parent).numpy()
        model = PairClassifier("counts", classes=list(range(10)), **CLASSIFIER)
        model.fit(inputs[:3000], counts[:3000])
        np.savez(
            path,
            p=model.predict_proba(inputs[3000:]),
            v=model.predict_variance(inputs[3000:]),
        )
    prediction = np.load(path)
    counts = counts[3000:]
    totals = counts.sum(axis=1)
    shares = counts / totals[:, None]
    if known:
        counts = np.random.default_rng(0).multinomial(totals, shares)
    halves = np.random.default_rng(1).permutation(5000) + 2000
    calibrating = np.arange(2000) if rows == "validation" else halves[:2500]
    evaluating = np.arange(2000, 7000) if rows == "validation" else halves[2500:]
    return {
        "probs": prediction["p"],
        "variance": prediction["v"],
        "counts": counts,
        "totals": totals,
        "truths": shares,
        "calibrating": calibrating,
        "evaluating": evaluating,
    }


def cebab(data_dir: Path) -> dict[str, Any]:
    """Reviews with five ratings; texts edited from one review stay together."""
    sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))
    example = importlib.import_module("annotators.reviews")
    reviews = example.load_reviews(data_dir)
    counts = np.stack([(reviews.ratings == star).sum(axis=1) for star in example.STARS], axis=1)
    _, group = np.unique(reviews.groups, return_inverse=True)
    draw = np.random.default_rng(0).random(group.max() + 1)[group]
    training = draw < 0.4
    path = data_dir / "counts-cache" / "cebab-predictions.npz"
    if not path.exists():
        from secondguess.classification.estimators import PairClassifier

        inputs = example.embed(reviews.texts, data_dir / "counts-cache")
        model = PairClassifier("counts", classes=list(range(5)), **CLASSIFIER)
        model.fit(inputs[training], counts[training])
        np.savez(path, p=model.predict_proba(inputs), v=model.predict_variance(inputs))
    prediction = np.load(path)
    return {
        "probs": prediction["p"],
        "variance": prediction["v"],
        "counts": counts,
        "totals": counts.sum(axis=1),
        "truths": counts / 5,
        "calibrating": np.flatnonzero((draw >= 0.4) & (draw < 0.9)),
        "evaluating": np.flatnonzero(draw >= 0.9),
        "groups": group,
    }


def oracle_width(rows: dict[str, Any], column: int | None, miss_rate: float) -> float:
    """The least mean width over families and radii that hold enough of the truths, in hindsight."""
    at = rows["evaluating"]
    pick = (lambda a: a[at]) if column is None else (lambda a: a[at, column])
    probs, variance, truths = (pick(rows[key]) for key in ("probs", "variance", "truths"))
    best = 1.0
    for family in FAMILIES:
        needed = np.sort(family.radius_to_hold(probs, variance, truths, truths))
        radius = float(needed[int(np.ceil((1 - miss_rate) * len(needed))) - 1])
        lower, upper = family.ends(probs, variance, radius)
        best = min(best, float(np.mean(upper - lower)))
    return best


def width_row(name: str, rows: dict[str, Any], truth: str) -> dict[str, Any]:
    """Mean width and share held, for each way to certify; classes by themselves."""
    at, new = rows["calibrating"], rows["evaluating"]
    groups = rows["groups"][at] if "groups" in rows else None
    record: dict[str, Any] = {
        "data": name,
        "truth": truth,
        "rows": len(at) if groups is None else len(np.unique(groups)),
        "num_responses": f"{rows['totals'].min()} to {rows['totals'].max()}"
        if rows["totals"].min() < rows["totals"].max()
        else str(rows["totals"].min()),
        "miss_rates": {},
    }
    columns = range(rows["probs"].shape[1]) if rows["probs"].ndim == 2 else [None]
    for miss_rate in (0.05, 0.1, 0.2):
        oracle = [oracle_width(rows, column, miss_rate) for column in columns]
        cells: dict[str, Any] = {"oracle": {"width": float(np.mean(oracle))}}
        for method in METHODS:
            fitted = fit_intervals(
                rows["probs"][at],
                rows["variance"][at],
                rows["counts"][at],
                rows["totals"][at],
                miss_rate=miss_rate,
                method=method,
                groups=groups,
            )
            interval = fitted.interval(rows["probs"][new], rows["variance"][new])
            cells[method] = {
                "width": float(interval.width.mean()),
                "held": float(interval.contains(rows["truths"][new]).mean()),
                "by_counts": fitted.methods.count("counts"),
                "parts": len(fitted.parts),
            }
        record["miss_rates"][str(miss_rate)] = cells
    print(json.dumps(record), flush=True)
    return record


def widths(data_dir: Path) -> None:
    """Counts against pairs and against the oracle; rows that are in the result already are kept."""
    shares, drawn = "annotators' shares, as they are", "annotators' shares, responses redrawn"
    tasks: list[tuple[str, str, Callable[[], dict[str, Any]]]] = []
    for part in ("validation", "test"):
        data = f"CIFAR-10H, calibrated on {part} images"
        tasks.append((data, shares, partial(cifar10h, data_dir, known=False, rows=part)))
        tasks.append((data, drawn, partial(cifar10h, data_dir, known=True, rows=part)))
    tasks.append(("CEBaB, one text of each review", shares, partial(cebab, data_dir)))
    for k in (2, 5, 50):
        for size in (2000, 20_000):
            tasks.append(("simulated", "known", partial(simulated, size, k, 0)))
    path = RESULTS / "intervals-from-counts-widths.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for data, truth, load in tasks[len(rows) :]:
        rows.append(width_row(data, load(), truth))
        command = "python docs/tables/intervals_from_counts.py widths --data-dir DIR"
        path.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


def planning() -> list[dict[str, Any]]:
    """How many rows and responses buy which width, for the simulated predictor."""
    rows = simulated(1, 2, 0)
    plans = plan_width(
        rows["probs"][:4000],
        rows["variance"][:4000],
        num_rows=(200, 500, 1500, 5000, 20_000),
        num_responses=(2, 5, 10, 20, 50, 100),
        num_simulations=10,
        rng=np.random.default_rng(0),
    )
    return [{name: getattr(plan, name) for name in plan.__slots__} for plan in plans]


def main() -> None:
    """Measure one part and write its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("failures", "widths", "planning"))
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    start = time.perf_counter()
    command = f"python docs/tables/intervals_from_counts.py {arguments.part}"
    if arguments.part == "failures":
        rows = failures(arguments.replicates)
    elif arguments.part == "widths":
        (arguments.data_dir / "counts-cache").mkdir(exist_ok=True)
        widths(arguments.data_dir)
        return
    else:
        rows = planning()
    record = {"command": command, "seconds": round(time.perf_counter() - start, 1), "rows": rows}
    path = RESULTS / f"intervals-from-counts-{arguments.part}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
