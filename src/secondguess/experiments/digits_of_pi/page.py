"""What the report says of a run of the digits of pi."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from secondguess.experiments.digits_of_pi.questions import question
from secondguess.experiments.digits_of_pi.rankings import CONFIDENCE, RIVALS
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import number, percent
from secondguess.report.sections import Answer, AnswerGroup, Figure, Section, Table

_SHOWN_RATE = "0.3"
"""The response rate of the finding; at lower ones small runs make up nothing by any ranking."""


def pi_section(parts: Mapping[str, PartResult]) -> Section:
    """Tables, answers and captions for a whole run."""
    samples = parts["samples"].metrics
    count = len(parts["samples"].arrays["offsets"])
    return Section(
        title="Digits of pi",
        paper_section="5.2",
        claim=(
            "A transformer makes statements about digits of pi. The paper claims that the "
            "epistemic confidence C, the probability of a statement at first sight over that after "
            "the model has seen it once, tells true statements from made-up ones: at most 1 - C of "
            "them are made up (Theorem 4.5), and ranking by C beats other rankings (Figure 5)."
        ),
        finding=_finding(samples),
        notes=(
            f"Asked about the first {count:,} digits, the model says something true "
            f"{percent(samples['correct'])} of the time; it knows the first "
            f"{samples['known_digits']:,}. {percent(samples['malformed_share'])} of its samples "
            f"are no sentence of the language.",
        ),
        tables=(
            _ranking_table(samples["rate_and_standard_error"]),
            _decoder_table(parts["decoders"].metrics),
            _decile_table(
                "Confidence and hallucination rate by decile", samples, parts["exact"].metrics
            ),
            _decile_table(
                "The same after recalibration on held-out pairs",
                *(parts["recalibration"].metrics[which]["after"] for which in ("samples", "exact")),
            ),
            _outlier_table(samples["outliers"]),
        ),
        answers=answer_groups(parts["examples"].metrics),
        figures=_figures(samples),
    )


def _finding(samples: Mapping[str, Any]) -> str:
    """What the most trusted statements are worth, and what is promised for all of them."""
    rates = {
        name: found[_SHOWN_RATE][0] for name, found in samples["rate_and_standard_error"].items()
    }
    rival = min(RIVALS, key=lambda name: rates[name])
    overall = samples["overall"]
    return (
        f"Of the {percent(float(_SHOWN_RATE))} of its statements that the model trusts most by its "
        f"confidence C, {percent(rates[CONFIDENCE])} are made up; by the best other ranking "
        f"({rival}), {percent(rates[rival])}. Over all statements 1 - C promises at most "
        f"{percent(overall['promised_rate'])} made up, and "
        f"{percent(overall['hallucination_rate'])} are."
    )


def answer_groups(examples: Mapping[str, Any]) -> tuple[AnswerGroup, ...]:
    """Scored answers and sampled pairs of each chosen digit."""
    return tuple(
        group
        for name, each in examples.items()
        for group in (_scored_group(name, each), _pair_group(name, each))
    )


def _title(name: str, each: Mapping[str, Any]) -> str:
    known = "a digit it knows" if name == "known" else "a digit it has not learned"
    return f"{question(each['offset'])} It is {each['digit']}, {known}"


def _scored_group(name: str, each: Mapping[str, Any]) -> AnswerGroup:
    return AnswerGroup(
        title=_title(name, each),
        note="Sampled answers, word by word. Point at a word, or reach it with Tab and the arrow "
        "keys, for its log-probabilities. By the amount of cheating, red words became likelier "
        "after the model had seen the answer: what it did not know.",
        answers=tuple(
            Answer(
                label=f"C = {scored['confidence']:.3g}, {'true' if scored['is_true'] else 'false'}",
                words=tuple(scored["words"]),
                log_probs=tuple(scored["log_marginal"]),
                log_probs_after=tuple(scored["log_self_conditional"]),
            )
            for scored in each["scored"]
        ),
    )


def _pair_group(name: str, each: Mapping[str, Any]) -> AnswerGroup:
    return AnswerGroup(
        title=f"Pairs of answers: {_title(name, each)}",
        note="A second answer drawn after the first. Red words are unlikely. In the paper, about "
        "a digit that the model has not learned, the second answer mostly agrees with the first, "
        "true or not: that is cheating well.",
        answers=tuple(
            Answer(
                label=f"pair {index}, {label}",
                words=tuple(pair[which]),
                log_probs=tuple(pair[f"{which}_log_probs"]),
            )
            for index, pair in enumerate(each["pairs"], start=1)
            for which, label in (("first", "y1"), ("second", "y2 after y1"))
        ),
    )


def _ranking_table(rates: Mapping[str, Mapping[str, tuple[float, float]]]) -> Table:
    shown = list(rates[CONFIDENCE])
    return Table(
        title="Hallucination rate when only the most trusted answers are given",
        columns=("Ranked by", *(f"{percent(float(rate))} answered" for rate in shown)),
        rows=tuple(
            (name, *(_rate(*rates[name][rate]) for rate in shown)) for name in (CONFIDENCE, *RIVALS)
        ),
        note="± one standard error. The paper prints no numbers; in its Figure 5 the confidence is "
        "as low as the others or lower.",
    )


def _rate(rate: float, standard_error: float) -> str:
    return f"{percent(rate)} ± {100 * standard_error:.2g}"


def _decoder_table(decoders: Mapping[str, Mapping[str, float]]) -> Table:
    return Table(
        title="Decoders with a promised hallucination rate",
        columns=("Decoder", "Promised at most", "Measured", "Questions answered"),
        rows=tuple(
            (
                name.rpartition(" ")[0],
                percent(each["promised_rate"]),
                _rate(each["hallucination_rate"], each["standard_error"]),
                percent(each["answered"]),
            )
            for name, each in decoders.items()
        ),
        note="selective: answer the first sample or abstain. rejection: sample until one is "
        "accepted. top1: the most probable accepted sample.",
    )


def _decile_table(title: str, samples: Mapping[str, Any], exact: Mapping[str, Any]) -> Table:
    return Table(
        title=title,
        columns=(
            "Decile",
            "Samples: C",
            "1 - C",
            "Hallucinated",
            "All sentences: C",
            "1 - C",
            "Hallucinated",
        ),
        rows=tuple(
            (str(index), *(cell for decile in deciles for cell in decile))
            for index, deciles in enumerate(
                zip(_deciles(samples), _deciles(exact), strict=True), start=1
            )
        ),
        note="Theorem 4.5 for a calibrated model: hallucinated at most 1 - C.",
    )


def _deciles(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (number(confidence), number(1 - confidence), percent(max(rate, 0.0)))
        for confidence, rate in zip(
            metrics["decile_confidence"], metrics["decile_hallucination_rate"], strict=True
        )
    ]


def _outlier_table(outliers: Mapping[str, Any]) -> Table:
    edges = [band["above"] for band in outliers["bands"]]
    names = [f"{low:g} to {high:g}" for low, high in pairwise(edges)] + [f"above {edges[-1]:g}"]
    note = "No calibrated model has a confidence above 1; the default gap |1 - C| puts these last."
    malformed = outliers["malformed"]
    if malformed["count"]:
        note += (
            f" After one that is no sentence, {percent(malformed['share_sentences_after'])} of "
            f"what the model would say next are sentences."
        )
    return Table(
        title=f"Confidences far above 1, of {outliers['num_samples']:,} samples",
        columns=("Confidence", "Samples", "False", "No sentence"),
        rows=tuple(
            (name, f"{band['count']:,}", f"{band['false']:,}", f"{band['malformed']:,}")
            for name, band in zip(names, outliers["bands"], strict=True)
        ),
        note=note,
    )


def _figures(samples: Mapping[str, Any]) -> tuple[Figure, ...]:
    overall = samples["overall"]
    at_tenth = samples["rate_and_standard_error"]
    return (
        Figure(
            file="reliability.png",
            caption="Share of made-up statements by epistemic confidence, in 20 bins (left) and "
            "over all confidences on a log scale (right). Points should lie on the dashed line "
            "1 - C or below it.",
            alt=f"Two plots of the hallucination rate against the confidence, with the dashed line "
            f"1 - C. Overall {percent(overall['hallucination_rate'])} of the samples are made up, "
            f"where 1 - C promises {percent(overall['promised_rate'])}.",
            paper="The paper's Figure 5, left, and appendix F.3.5: mostly on the line or below it, "
            "and a few malformed samples with a confidence far above 1.",
        ),
        Figure(
            file="rankings.png",
            caption="Hallucination rate when the most trusted share of samples is answered: the "
            "confidence against four rivals (left), and four ways to treat C above 1 (right).",
            alt="Rising curves of hallucination rate against response rate. At a response rate of "
            "10 %: "
            + "; ".join(
                f"{name} {percent(at_tenth[name]['0.1'][0])}" for name in (CONFIDENCE, *RIVALS)
            )
            + ".",
            paper="The paper's Figure 5, right: similar or lower than other common strategies.",
        ),
        Figure(
            file="by-digit.png",
            caption="Confidence (blue) and correctness (orange) by digit: each sample, means of a "
            "digit's samples, and means over 40 digits. They should fall together where the model "
            "has not learned the digits.",
            alt=f"Four plots of confidence and of the share of correct statements over the digits "
            f"of pi. The model knows the first {samples['known_digits']:,} digits and is right in "
            f"{percent(samples['correct'])} of all samples.",
            paper="Appendix F.3.5: without outliers, confidence closely tracks accuracy.",
        ),
    )
