"""What the report says of a run of the one-dimensional worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess.experiments.regression.claims import relative_ece, rival_metrics
from secondguess.experiments.regression.figures import FIGURE_4_ROOT, NOT_IN_FIGURE_3, TITLES
from secondguess.experiments.regression.intervals import MISS_RATES, ROOT_MIN_VARIANCES
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import number, percent
from secondguess.report.sections import Figure, Section, Table

WORLDS = {
    "sinusoid": (
        "One-dimensional regression",
        "4.2",
        "the true probability swings too fast near x = 0 for any of the methods",
    ),
    "piecewise": (
        "One-dimensional regression, piecewise linear",
        "4.2, appendix F.1",
        "the true probability is a random piecewise linear function",
    ),
}
"""Title, section of the paper and what the world is like, by the name of its function."""

_PAPER = {
    "ensemble": "low uncertainty where it is wrong",
    "gaussian_process": "low uncertainty where it is wrong",
    "evidential": "high uncertainty where it fits well",
    "cheat_corrected": "matches the true gap",
    "forest": "not shown",
    "naive": "not shown",
}
OURS = "cheat_corrected"
_SHOWN_ROOTS = (0.001, FIGURE_4_ROOT, 0.5)
"""Of the intervals: one that blows up, the paper's own, and one that ignores the network."""

Parts = Mapping[str, PartResult]


def regression_section(function: str, parts: Parts) -> Section:
    """Tables and captions for the parts at hand."""
    title, paper_section, world = WORLDS[function]
    methods = _methods(parts)
    tables = [_method_table(methods)] if methods else []
    settings = {name: of for name, of in rival_metrics(parts).items() if name not in TITLES}
    if settings:
        tables.append(_setting_table(settings))
    if "intervals" in parts:
        tables.append(_interval_table(parts["intervals"].metrics))
    return Section(
        title=title,
        paper_section=paper_section,
        claim=(
            f"In this world {world}. The paper claims that a network trained on pairs reports "
            f"uncertainty that matches its true squared error even where it underfits, while "
            f"ensembles and Gaussian processes are too sure and evidential networks are not sure "
            f"where they should be (Figure 3); and that Algorithm 1 turns any such network into "
            f"intervals that are guaranteed (Figure 4)."
        ),
        finding=_finding(methods),
        tables=tuple(tables),
        figures=(*_method_figures(methods), *_interval_figures(parts), *_sweep_figures(parts)),
    )


def _finding(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """How much of its squared error each method admits."""
    admitted = {
        name: percent(of["mean_variance"] / of["grouping_error"])
        for name, of in methods.items()
        if name != "naive"
    }
    others = [f"{TITLES[name]} {share}" for name, share in admitted.items() if name != OURS]
    if OURS not in admitted:
        return ""
    rivals = f" Others state: {'; '.join(others)}." if others else ""
    return (
        f"The variance that the network trained on pairs states is {admitted[OURS]} of its true "
        f"squared error.{rivals}"
    )


def _methods(parts: Parts) -> dict[str, Mapping[str, Any]]:
    """Metrics by the name of the method, in the order of the paper's figure."""
    found: dict[str, Mapping[str, Any]] = {
        name: parts[name].metrics for name in TITLES if name in parts
    }
    if "ensemble" in parts:
        found["naive"] = parts["ensemble"].metrics["naive"]
    return found


def _method_table(methods: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table(
        title="Predicted variance against the true squared error",
        columns=(
            "Method",
            "Mean variance",
            "Mean squared error",
            "Variance / error",
            "ECE-2 / error, 20 bins",
            "ECE-2 / error, 100 bins",
            "ECE-2, 100 bins",
            "ECE-1, 20 bins",
            "The paper's Figure 3",
        ),
        rows=tuple(
            (
                TITLES[name],
                number(of["mean_variance"]),
                number(of["grouping_error"]),
                number(of["mean_variance"] / of["grouping_error"]),
                percent(relative_ece(of, "second_order_ece_20_bins")),
                percent(relative_ece(of)),
                number(of["second_order_ece"]),
                number(of["first_order_ece_20_bins"]),
                _PAPER[name],
            )
            for name, of in methods.items()
        ),
        note=(
            "A method that knows how wrong it is has a variance / error near 1 and misjudges a "
            "small share of its error (ECE-2 / error). ECE-2 alone is small too where the error "
            "is. The paper prints no numbers here, only the figure."
        ),
    )


def _setting_table(settings: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table(
        title="The same rivals with other settings",
        columns=(
            "Method",
            "Mean variance",
            "Mean squared error",
            "ECE-2 / error, 100 bins",
            "ECE-2, 100 bins",
            "Evidence bound, nats",
        ),
        rows=tuple(
            (
                _setting(of),
                number(of["mean_variance"]),
                number(of["grouping_error"]),
                percent(relative_ece(of)),
                number(of["second_order_ece"]),
                f"{of['evidence_bound']:,.0f}" if "evidence_bound" in of else "",
            )
            for of in settings.values()
        ),
        note="A Gaussian process prefers the setting with the highest evidence bound.",
    )


def _setting(metrics: Mapping[str, Any]) -> str:
    if "length_scale" in metrics:
        return f"Gaussian process, length scale {metrics['length_scale']:g}"
    form = str(metrics["form"]).replace("_", " ")
    return f"Evidential NN, final weight {metrics['final_weight']:g}, {form}"


def _interval_table(metrics: Mapping[str, Any]) -> Table:
    rows = []
    for root in ROOT_MIN_VARIANCES:
        key = f"{root:g}"
        covered = metrics["coverage"][key]
        rows.append(
            (
                key,
                number(metrics["inflation"][key]),
                number(metrics["limit"][key]),
                *(percent(covered[str(rate)]) for rate in MISS_RATES),
            )
        )
    return Table(
        title=f"Guaranteed intervals after {metrics['calibration_size']:,} calibration pairs",
        columns=(
            "Root of min_variance",
            "Variance inflation, by betting",
            "Its limit",
            *(f"Covered, of {percent(1 - rate)} promised" for rate in MISS_RATES),
        ),
        rows=tuple(rows),
        note="Covered: inputs whose true probability lies in the interval. Theorem 4.6 promises "
        "at least the share in the heading.",
    )


def _pairs_of_numbers(methods: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{TITLES[name]} {number(of['mean_variance'])} against {number(of['grouping_error'])}"
        for name, of in methods.items()
    )


def _method_figures(methods: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    if not methods:
        return []
    shown = {name: of for name, of in methods.items() if name not in NOT_IN_FIGURE_3}
    calibration = "; ".join(
        f"{TITLES[name]} {number(of['second_order_ece_20_bins'])}" for name, of in methods.items()
    )
    first_order = "; ".join(
        f"{TITLES[name]} {number(of['first_order_ece_20_bins'])}" for name, of in methods.items()
    )
    return [
        Figure(
            file="first-figure.png",
            caption="Above: the true probability (grey), the prediction and one predicted standard "
            "deviation around it (blue). Below: predicted variance (orange) and the squared error "
            "it should match (dashed: local mean).",
            alt=f"A column for each of {len(shown)} methods over inputs from 0 to 3, prediction "
            f"above and variance below. Mean predicted variance against mean squared error: "
            f"{_pairs_of_numbers(shown)}.",
            paper="The paper's Figure 3: the orange line meets the dashed one for the "
            "cheat-corrected network alone.",
        ),
        Figure(
            file="second-order-reliability.png",
            caption="Second-order reliability: squared error against predicted variance in 20 "
            "bins of equal size. A method on the diagonal knows how wrong it is.",
            alt=f"One reliability diagram for each of {len(methods)} methods, with the diagonal. "
            f"Distance from it (ECE-2 over 20 bins): {calibration}.",
            paper="In appendix F.1 the paper's method is the closest to the diagonal.",
        ),
        Figure(
            file="first-order-reliability.png",
            caption="First-order reliability: true against predicted probability in 20 bins. "
            "Ordinary calibration does not tell the methods apart.",
            alt=f"One reliability diagram for each of {len(methods)} methods, with the diagonal. "
            f"Distance from it (ECE-1 over 20 bins): {first_order}.",
            paper="In appendix F.1 all methods are close to the diagonal.",
        ),
        Figure(
            file="expanded.png",
            caption="All methods on both sides of the inputs' bell curve, with the naive network, "
            "which takes all spread of the labels for its own ignorance.",
            alt=f"A row for each of {len(methods)} methods over inputs from -4 to 4: prediction "
            f"with its band on the left, variance and squared error on the right. Mean predicted "
            f"variance against mean squared error: {_pairs_of_numbers(methods)}.",
            paper="Appendix F.1, where the paper adds: far from the data the estimates of its "
            "method are too confident, because it does not detect unusual inputs.",
        ),
    ]


def _interval_figures(parts: Parts) -> list[Figure]:
    if "intervals" not in parts or "cheat_corrected" not in parts:
        return []
    metrics = parts["intervals"].metrics
    size, key = metrics["calibration_size"], f"{FIGURE_4_ROOT:g}"
    figures = [
        Figure(
            file="figure-4.png",
            caption=f"Intervals that hold for 50, 80, 90 and 95 % of inputs, made by Algorithm 1 "
            f"from {size:,} pairs, and the true probability they have to contain.",
            alt=f"Four nested blue bands around the network's prediction over inputs from -3.5 to "
            f"3.5, and the black line of the true probability. Variance inflation "
            f"{number(metrics['inflation'][key])}; the widest band covers "
            f"{percent(metrics['coverage'][key][str(MISS_RATES[0])])} of the inputs.",
            paper="The paper's Figure 4, with the same bands from 1,000,000 pairs.",
        )
    ]
    for root in _SHOWN_ROOTS:
        key = f"{root:g}"
        figures.append(
            Figure(
                file=f"intervals-{key}.png",
                caption=f"The root of min_variance at {key}. Left: how the variance inflation "
                f"falls as pairs come in, by betting and by Hoeffding's inequality (that on the "
                f"range [-1/(4ε), 1/ε], which is tighter than the paper's [-1/ε, 1/ε]). Right: the "
                f"intervals after {size:,} pairs, and in the limit.",
                alt=f"Curves of the inflation by Hoeffding and by betting on log axes, towards the "
                f"limit {number(metrics['limit'][key])}; beside them nested "
                f"bands, with inflation {number(metrics['inflation'][key])} and in the limit.",
                paper="Appendix B: 0.001 is too small and the bound blows up, 0.5 is so large that "
                "the network is ignored, 0.02 is the paper's choice.",
            )
        )
    return figures


def _sweep_figures(parts: Parts) -> list[Figure]:
    figures = []
    if any(name.startswith("evidential_0") for name in parts):
        figures.append(
            Figure(
                file="evidential-sweep.png",
                caption="Evidential networks with other final weights of their regulariser.",
                alt="A column for each final weight, prediction with its band above, variance and "
                "squared error below.",
                paper="Appendix F.1: no weight makes the reported uncertainty match the error.",
            )
        )
    if "evidential_squared_error" in parts and "evidential" in parts:
        figures.append(
            Figure(
                file="evidential-forms.png",
                caption="The evidential objective in its two published forms.",
                alt="Two columns, the cross-entropy form and the squared-error form: prediction "
                "with its band above, variance and squared error below.",
            )
        )
    if any(name.startswith("gaussian_process_") for name in parts):
        figures.append(
            Figure(
                file="gaussian-process-sweep.png",
                caption="Gaussian processes with other length scales, and their evidence bounds.",
                alt="A column for each length scale, prediction with its band above, variance and "
                "squared error below.",
                paper="Appendix F.1 shows the same sweep.",
            )
        )
    if "evidential_optimum" in parts:
        figures.append(
            Figure(
                file="evidential-optimum.png",
                caption="What the evidential objective asks for when the true distribution of "
                "labels (bars) is known: its optimum (points, one standard deviation).",
                alt="Five bar charts of true label distributions over ten classes, from certain to "
                "uniform, with the biased optimum of the evidential objective as points.",
                paper="Appendix F.2.2: the optimum is biased wherever labels are noisy.",
            )
        )
    return figures
