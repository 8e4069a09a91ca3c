"""Pair classifiers beside simple rivals, on nine data sets of up to four sizes: classifiers.md.

    python docs/tables/classifiers.py [--data-dir DIR] [--minutes M]

measures one cell (data set, size, method, seed) after the other, fast methods first, writes
docs/results/classifiers.json from the cells that are there, and puts the table into the page.
Cells are kept in the folder `classifiers-cache` of the data folder, one folder in it for each
version of the library's code, so that a run that was cut short resumes and versions do not mix;
`--minutes M` begins no new cell after M minutes. Without a data folder it only writes the page.
Features of the real sets are made first, by docs/tables/classifier_features.py.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pages
from classifier_sets import MADE, REAL, Part, load
from scipy.special import log_softmax, softmax
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import secondguess as sg
from secondguess.classification.fit_warnings import PairFitWarning
from secondguess.classification.logistic import PENALTIES, Logistic, fit_logistic
from secondguess.classification.splitting import folds_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "classifiers.json"
COMMAND = "python docs/tables/classifiers.py --data-dir DIR"
SIZES = (200, 1000, 5000, 0)
"""Training rows; 0 for all there are."""
NUM_SEEDS = {200: 5, 1000: 5, 5000: 3, 0: 1}
"""Draws of the training rows by size, for the default and the soft logistic regression."""
NUM_BINS, NUM_MEMBERS, NUM_FOLDS = 25, 8, 5
Fitted = Callable[[np.ndarray], sg.Prediction]


def pair_classifier(rows: Part, groups: np.ndarray) -> Fitted:
    """The default."""
    model = sg.PairClassifier("counts", classes=list(range(rows.counts.shape[1])))
    return model.fit(rows.features, rows.counts, groups=groups).predict_moments


def on_top_of(estimator: Any) -> Callable[[Part, np.ndarray], Fitted]:
    """Pairs on a classifier of scikit-learn."""

    def fit(rows: Part, groups: np.ndarray) -> Fitted:
        classes = list(range(rows.counts.shape[1]))
        model = sg.PairMetaClassifier(estimator, "counts", classes=classes)
        return model.fit(rows.features, rows.counts, groups=groups).predict_moments

    return fit


def soft_logistic(rows: Part, groups: np.ndarray) -> Fitted:
    """Logistic regression on the shares of labels at its best simple setting; p(1 - p)."""
    inputs_of, penalty = best_simple_setting(rows, groups)
    model = fit_logistic(inputs_of(rows.features), shares_of(rows), penalty)

    def predict(features: np.ndarray) -> sg.Prediction:
        probs = softmax(model(inputs_of(features)), axis=1)
        return sg.Prediction(probs, probs * (1 - probs))

    return predict


def shares_of(rows: Part) -> np.ndarray:
    """The shares of the labels, with one more label spread over everything."""
    shares = rows.counts / rows.counts.sum(axis=1, keepdims=True)
    return (shares + 1 / shares.size) / (1 + 1 / len(shares))


def best_simple_setting(
    rows: Part, groups: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Columns as they are or standardised, and the ridge penalty: what five folds prefer."""
    shares, center, spread = shares_of(rows), rows.features.mean(axis=0), rows.features.std(axis=0)
    one_scale = np.full(len(spread), np.sqrt(np.mean(spread**2)))
    folds = folds_of(len(shares), NUM_FOLDS, rng=np.random.default_rng(0), groups=groups)
    found = []
    for scale in (np.where(spread > 0, spread, 1.0), one_scale):
        inputs = (rows.features - center) / scale
        models: list[Logistic | None] = [None] * NUM_FOLDS
        for penalty in PENALTIES:
            loss = 0.0
            for fold in range(NUM_FOLDS):
                held = folds == fold
                models[fold] = model = fit_logistic(
                    inputs[~held], shares[~held], penalty, start=models[fold]
                )
                loss -= (shares[held] * log_softmax(model(inputs[held]), axis=1)).sum()
            found.append((loss, penalty, scale))
    _, penalty, scale = min(found, key=lambda each: each[0])
    return lambda features: (features - center) / scale, penalty


def bagging(rows: Part, groups: np.ndarray) -> Fitted:
    """Eight such regressions, each on a bootstrap of the items and one sampled label of each."""
    inputs_of, penalty = best_simple_setting(rows, groups)
    inputs, rng = inputs_of(rows.features), np.random.default_rng(0)
    members = []
    for _ in range(NUM_MEMBERS):
        chosen = rng.integers(len(inputs), size=len(inputs))
        shares = rows.counts[chosen] / rows.counts[chosen].sum(axis=1, keepdims=True)
        label = (rng.random((len(chosen), 1)) > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)
        sampled = np.eye(shares.shape[1])[label]
        members.append(fit_logistic(inputs[chosen], sampled, penalty))

    def predict(features: np.ndarray) -> sg.Prediction:
        probs = np.stack([softmax(member(inputs_of(features)), axis=1) for member in members])
        return sg.Prediction(probs.mean(axis=0), probs.var(axis=0, ddof=1))

    return predict


def forest(rows: Part, groups: np.ndarray) -> Fitted:
    """A random forest on one row per label, leaf size by cross-validation; spread of the trees."""
    features, labels, owner = _one_row_per_label(rows)
    classes = np.arange(rows.counts.shape[1])

    def loss(leaf: int) -> float:
        model = RandomForestClassifier(100, min_samples_leaf=leaf, random_state=0)
        folds = GroupKFold(3).split(features, labels, groups[owner])
        found = cross_val_predict(model, features, labels, cv=folds, method="predict_proba")
        probs = np.asarray(found)
        return -float(np.log(_smooth(probs)[np.arange(len(labels)), labels]).mean())

    leaf = min((5, 20, 80), key=loss)
    model = RandomForestClassifier(200, min_samples_leaf=leaf, random_state=0)
    model.fit(features, labels)
    known = np.searchsorted(classes, model.classes_)

    def predict(inputs: np.ndarray) -> sg.Prediction:
        trees = np.zeros((len(model.estimators_), len(inputs), len(classes)))
        for tree, estimator in zip(trees, model.estimators_, strict=True):
            tree[:, known] = estimator.predict_proba(inputs)
        return sg.Prediction(_smooth(trees.mean(axis=0)), trees.var(axis=0, ddof=1))

    return predict


def _one_row_per_label(rows: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most five labels of each item, as rows; which item each is of."""
    rng = np.random.default_rng(0)
    most = np.minimum(rows.counts.sum(axis=1), 5)
    drawn = np.stack(
        [rng.multivariate_hypergeometric(c, m) for c, m in zip(rows.counts, most, strict=True)]
    )
    owner, label = (np.repeat(index.ravel(), drawn.ravel()) for index in np.indices(drawn.shape))
    return rows.features[owner], label, owner


def _smooth(probs: np.ndarray) -> np.ndarray:
    return 0.999 * probs + 0.001 / probs.shape[1]


SOFT = "soft logistic regression, p(1 - p)"
METHODS: dict[str, Callable[[Part, np.ndarray], Fitted]] = {
    "PairClassifier": pair_classifier,
    "pairs on logistic regression": on_top_of(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    ),
    "pairs on gradient boosting": on_top_of(
        HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=15, random_state=0)
    ),
    "pairs on a random forest": on_top_of(
        RandomForestClassifier(100, min_samples_leaf=10, random_state=0).set_params(
            max_features=0.3
        )
    ),
    SOFT: soft_logistic,
    "bagging of 8": bagging,
    "random forest": forest,
}


def measure(
    method: str, training: Part, testing: Part, groups: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """One cell, and its loss of each test row."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict = METHODS[method](training, groups)
    seconds = time.process_time() - start
    prediction = predict(testing.features)
    counts, totals = testing.counts, testing.counts.sum(axis=1)
    losses = -(counts / totals[:, None] * np.log(np.maximum(prediction.probs, 1e-12))).sum(axis=1)
    chosen = counts[np.arange(len(counts)), prediction.probs.argmax(axis=1)]
    error = sg.grouping_error(prediction, counts)
    rng = np.random.default_rng(0)
    allowed = prediction.probs * (1 - prediction.probs)
    possible = sg.Prediction(prediction.probs, np.clip(prediction.variance, 0, allowed))
    floor = sg.second_order_ece_floor(
        possible, totals, rng=rng, num_bins=NUM_BINS, num_simulations=5
    )
    noise = sg.second_order_ece_standard_error(
        prediction, counts, rng=rng, num_bins=NUM_BINS, num_resamples=50
    )
    record = {
        "accuracy": float((chosen == counts.max(axis=1)).mean()),
        "log_loss": float(losses.mean()),
        "grouping_error": error,
        "mean_variance": sg.mean_variance(prediction),
        "second_order_ece": sg.second_order_ece(prediction, counts, num_bins=NUM_BINS),
        "second_order_ece_floor": floor.mean,
        "second_order_ece_standard_error": noise,
        "warned": sum(issubclass(each.category, PairFitWarning) for each in caught),
        "processor_seconds": round(seconds, 2),
    }
    return record, losses


FAST = ("PairClassifier", SOFT, "pairs on logistic regression", "bagging of 8")
"""Measured at every size, before the others."""
SLOW = ("pairs on gradient boosting", "random forest", "pairs on a random forest")
"""Measured at up to 1,000 rows."""


def cells() -> Iterator[tuple[str, int, str, int]]:
    """Data set, size, method and seed of every cell, the fast ones first."""
    names = (*REAL, *MADE)
    for size in SIZES:
        yield from product(names, [size], FAST[:2], range(NUM_SEEDS[size]))
    yield from product(names, SIZES[:2], FAST[2:], [0])
    for size, method in product(SIZES[:2], SLOW):
        yield from product(names, [size], [method], [0])
    yield from product(names, SIZES[2:], FAST[2:], [0])


def cache_of(folder: Path) -> Path:
    """The folder of the cells that this version of the code has measured."""
    digest = hashlib.sha256()
    library = Path(sg.__file__).parent
    for path in sorted(library.glob("classification/*.py")):
        digest.update(path.read_bytes())
    return folder / "classifiers-cache" / digest.hexdigest()[:12]


def run(folder: Path, minutes: float) -> None:
    """Measure what is not there yet."""
    start, loaded = time.monotonic(), {}
    cache = cache_of(folder)
    cache.mkdir(parents=True, exist_ok=True)
    for name, size, method, seed in cells():
        path = cache / f"{name}-{size}-{method.replace(' ', '-')}-{seed}.npz"
        if path.exists():
            continue
        if time.monotonic() - start > 60 * minutes:
            return
        if (name, seed) not in loaded:
            loaded[name, seed] = load(name, folder, 0, order=seed)
        training, testing, groups = loaded[name, seed]
        num_rows = size or len(training.counts)
        if num_rows > 1.1 * len(training.counts):
            continue  # there are not so many
        rows = np.arange(min(num_rows, len(training.counts)))
        record, losses = measure(method, training.take(rows), testing, groups[rows])
        described = {
            "data": name,
            "rows": len(rows),
            "size": size,
            "seed": seed,
            "features": training.features.shape[1],
            "labels": float(training.counts.sum() / len(training.counts)),
            "method": method,
            **record,
        }
        print(json.dumps(described), flush=True)
        with path.with_suffix(".partial").open("wb") as file:
            np.savez(file, record=np.array(json.dumps(described)), losses=losses)
        path.with_suffix(".partial").replace(path)


def collect(folder: Path) -> None:
    """Write the result from the cells that are there, with differences of log-loss."""
    found = []
    for path in sorted(cache_of(folder).glob("*.npz")):
        with np.load(path) as arrays:
            found.append((json.loads(str(arrays["record"])), arrays["losses"]))
    peers = {
        (record["data"], record["size"], record["seed"]): losses
        for record, losses in found
        if record["method"] == SOFT
    }
    rows, gaps = [], defaultdict(list)
    for record, losses in found:
        peer = peers.get((record["data"], record["size"], record["seed"]))
        if peer is not None:
            gap = losses - peer
            record["log_loss_gap"] = float(gap.mean())
            record["log_loss_gap_standard_error"] = float(gap.std() / np.sqrt(len(gap)))
            gaps[record["data"], record["rows"], record["method"]].append(gap)
        rows.append(record)
    judged = [
        {"data": data, "rows": size, "method": method, **mean_gap(np.stack(each))}
        for (data, size, method), each in gaps.items()
    ]
    names, methods = [*REAL, *MADE], list(METHODS)

    def place(row: dict[str, Any]) -> tuple[int, ...]:
        order = names.index(row["data"]), row["rows"], methods.index(row["method"])
        return (*order, row["seed"])

    rows.sort(key=place)
    judged.sort(key=lambda row: (names.index(row["data"]), row["rows"]))
    record = {"command": COMMAND, "rows": rows, "gaps": judged}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def mean_gap(gaps: np.ndarray) -> dict[str, Any]:
    """Mean difference of log-loss `(draws, test rows)`, with its standard error.

    Draws of the training rows share their test rows, so that the error has two parts: of the mean
    over draws, as they spread, and of the test rows, for differences averaged over draws. One draw
    says nothing about the first.
    """
    means, of_row = gaps.mean(axis=1), gaps.mean(axis=0)
    variance = of_row.var() / len(of_row)
    if len(means) > 1:
        variance += means.var(ddof=1) / len(means)
    return {
        "draws": len(means),
        "log_loss_gap": float(means.mean()),
        "log_loss_gap_standard_error": float(np.sqrt(variance)),
    }


def table_of_all(rows: list[dict[str, Any]]) -> str:
    """Every cell."""
    heads = ["data", "method", "rows", "seed", "accuracy", "log-loss", "beside soft logistic"]
    heads += ["grouping error", "ECE-2 / grouping error", "floor", "stated / true"]
    lines = []
    for row in rows:
        error = row["grouping_error"]
        gap, noise = row.get("log_loss_gap"), row.get("log_loss_gap_standard_error")
        lines.append(
            [
                row["data"],
                row["method"],
                f"{row['rows']:,}",
                str(row["seed"]),
                f"{row['accuracy']:.3f}",
                f"{row['log_loss']:.3f}",
                "" if gap is None or noise == 0 else f"{gap:+.3f} ± {noise:.3f}",
                f"{error:.3f}",
                f"{row['second_order_ece'] / error:.2f} "
                f"± {row['second_order_ece_standard_error'] / error:.2f}",
                f"{row['second_order_ece_floor'] / error:.2f}",
                f"{row['mean_variance'] / error:.2f}",
            ]
        )
    return pages.table(heads, lines) + _made_by()


def table_of_targets(rows: list[dict[str, Any]]) -> str:
    """How often each method does what was asked of the default."""
    heads = ["method", "log-loss within two standard errors of the soft logistic regression"]
    heads += ["the same for single runs, by their test rows alone"]
    heads += ["ECE-2 at most 20 % of the grouping error (1,000 rows or more, floor below 10 %)"]
    lines = []
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method and "log_loss_gap" in row]
        cells = [gap for gap in gaps() if gap["method"] == method]
        line = [method]
        for each in (cells, mine):
            close = [not misses_log_loss(row) for row in each]
            line.append("" if method == SOFT else f"{sum(close)} of {len(close)}")
        asked = [not misses_calibration(row) for row in mine if is_asked(row)]
        lines.append([*line, f"{sum(asked)} of {len(asked)}"])
    return pages.table(heads, lines, num_left=1) + _made_by()


def misses_log_loss(row: dict[str, Any]) -> bool:
    """Whether the log-loss is worse than that of the soft logistic regression beyond noise."""
    return row["log_loss_gap"] > 2 * row["log_loss_gap_standard_error"] + 1e-12


def is_asked(row: dict[str, Any]) -> bool:
    """Whether there are enough rows, and a floor low enough, to ask for calibration."""
    return row["rows"] >= 900 and row["second_order_ece_floor"] < 0.1 * row["grouping_error"]


def misses_calibration(row: dict[str, Any]) -> bool:
    """Whether ECE-2 is above a fifth of the grouping error where that can be asked."""
    return is_asked(row) and row["second_order_ece"] > 0.2 * row["grouping_error"]


def table_of_gaps() -> str:
    """The default beside the soft logistic regression, by data set and size."""
    heads = ["data", "rows", "draws of them", "log-loss beside soft logistic"]
    lines = [
        [
            gap["data"],
            f"{gap['rows']:,}",
            str(gap["draws"]),
            f"{gap['log_loss_gap']:+.4f} ± {gap['log_loss_gap_standard_error']:.4f}",
        ]
        for gap in gaps()
        if gap["method"] == "PairClassifier"
    ]
    return pages.table(heads, lines, num_left=1) + _made_by()


def table_of_misses(rows: list[dict[str, Any]]) -> str:
    """Every run of the default that missed an aim by its test rows alone."""
    heads = ["data", "rows", "seed", "log-loss beside soft logistic", "ECE-2 / grouping error"]
    lines = [
        [
            row["data"],
            f"{row['rows']:,}",
            str(row["seed"]),
            f"{row['log_loss_gap']:+.4f} ± {row['log_loss_gap_standard_error']:.4f}",
            f"{row['second_order_ece'] / row['grouping_error']:.2f}",
        ]
        for row in rows
        if row["method"] == "PairClassifier" and (misses_log_loss(row) or misses_calibration(row))
    ]
    return pages.table(heads, lines, num_left=1) + _made_by()


def table_of_times() -> str:
    """Seconds of a fit beside those of a plain MLP."""
    record = json.loads((RESULTS.parent / "classifier-fit.json").read_text())
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['pair_classifier']:.1f}",
            f"{row['mlp_classifier']:.1f}",
            f"{row['ratio']:.1f}",
        ]
        for row in record["rows"]
    ]
    heads = ["rows", "PairClassifier", "MLPClassifier", "ratio"]
    return pages.table(heads, lines, num_left=0) + _made_by(record["command"])


def _made_by(command: str = COMMAND) -> str:
    return f"\n\nMeasured by `{command}`."


def measured() -> list[dict[str, Any]]:
    """Every cell that was measured."""
    return json.loads(RESULTS.read_text())["rows"]


def gaps() -> list[dict[str, Any]]:
    """Differences of log-loss from the soft logistic regression, by data set, size and method."""
    return json.loads(RESULTS.read_text())["gaps"]


PAGE = "classifiers.md"
TABLES = {
    "targets": lambda: table_of_targets(measured()),
    "gaps": table_of_gaps,
    "misses": lambda: table_of_misses(measured()),
    "all": lambda: table_of_all(measured()),
    "time": table_of_times,
}


def main() -> None:
    """Measure, collect, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    arguments = parser.parse_args()
    if arguments.data_dir is not None:
        run(arguments.data_dir, arguments.minutes)
        collect(arguments.data_dir)
    (pages.DOCS / PAGE).write_text(pages.filled(PAGE, TABLES))


if __name__ == "__main__":
    main()
