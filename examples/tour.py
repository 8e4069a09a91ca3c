"""A tour of a world whose truth is known: `make run`, or `python examples/tour.py --out DIR`.

The world is a quiz. In each of ten topics the model has learned a fact for some of the questions
only, and cannot tell which. The calibrated pair predictor of such a world is known exactly, so
every number that is printed can be compared with the truth. One picture goes to DIR/tour.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import secondguess as sg

SHARES = np.arange(1, 11) / 10  # topic t: for this share of its questions the fact is true
# p(answer | question) of "the fact", "its opposite" and "hard to say":
KNOWN = np.array([0.6, 0.0, 0.4])  # where the fact is true,
OTHER = np.array([0.0, 0.6, 0.4])  # and where its opposite is
MAX_HALLUCINATION_RATE = 0.15
NUM_QUESTIONS = 20_000
NUM_CANDIDATES = 20


def pair_predictor() -> np.ndarray:
    """`(topics, answers, answers)`: E[p(y1|X) p(y2|X)] over the questions of each topic."""
    known, other = np.outer(KNOWN, KNOWN), np.outer(OTHER, OTHER)
    return SHARES[:, None, None] * known + (1 - SHARES)[:, None, None] * other


def print_scores(scores: sg.SelfCheatScores) -> None:
    """The numbers of three topics beside the truth."""
    print("What the pair model says of the answer 'the fact', and what is true:\n")
    print("topic   p(y|x)  p(y|y,x)   variance   error^2   1 - C   share of questions")
    print("                          (model)    (truth)  (bound)  where it is made up")
    for topic in (9, 7, 4, 0):
        share = SHARES[topic]
        marginal = np.exp(scores.log_marginal[topic, 0])
        error = share * (KNOWN[0] - marginal) ** 2 + (1 - share) * (OTHER[0] - marginal) ** 2
        print(
            f"{topic:>5} {marginal:>8.3f} {np.exp(scores.log_self_conditional[topic, 0]):>9.3f} "
            f"{scores.epistemic_variance[topic, 0]:>10.4f} {error:>9.4f} "
            f"{sg.hallucination_bound(scores).value[topic, 0]:>7.2f} {1 - share:>12.2f}"
        )
    print(
        "\nIn topic 9 the model knows: peeking at an answer changes nothing, so the variance is 0\n"
        "although the answer itself is a matter of chance. In the others peeking helps; how much\n"
        "it helps is exactly the squared error, and here also the chance of a made-up answer.\n"
    )


def decode(scores: sg.SelfCheatScores, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Share answered and hallucination rate of plain sampling and of the three decoders."""
    topics = rng.integers(len(SHARES), size=NUM_QUESTIONS)
    fact_is_true = rng.random(NUM_QUESTIONS) < SHARES[topics]
    truths = np.where(fact_is_true[:, None], KNOWN, OTHER)
    cumulative = np.exp(scores.log_marginal).cumsum(axis=1)

    # Answers are drawn from the model: a few candidates per question, `(questions, candidates)`.
    uniform = rng.random((NUM_QUESTIONS, NUM_CANDIDATES, 1))
    drawn = (cumulative[topics][:, None, :] < uniform).sum(axis=2)
    scored = scores[topics[:, None], drawn]
    rate = MAX_HALLUCINATION_RATE
    first = drawn[:, 0].tolist()
    decisions = {
        "selective filter": sg.decode_selective(first, scored[:, 0], max_hallucination_rate=rate)
    }
    for name, decode_one in (
        ("rejection", sg.decode_rejection),
        ("top-1 search", sg.decode_top1),
    ):
        decisions[name] = [
            decode_one(drawn[question].tolist(), scored[question], max_hallucination_rate=rate)
            for question in range(NUM_QUESTIONS)
        ]
    answers = {"plain sampling": first} | {
        name: [decision.response for decision in given] for name, given in decisions.items()
    }
    rates = {}
    for name, responses in answers.items():
        wrong = [truths[i, y] == 0 for i, y in enumerate(responses) if y is not None]
        rates[name] = (len(wrong) / NUM_QUESTIONS, float(np.mean(wrong)))
    return rates


def draw(scores: sg.SelfCheatScores, rates: dict[str, tuple[float, float]], path: Path) -> None:
    """Left: the bound against the truth. Right: what each decoder answers and makes up."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.7", linestyle="--", label="truth = bound")
    left.plot(sg.hallucination_bound(scores).value[:, 0], 1 - SHARES, "o", color="#0072b2")
    left.set(
        xlabel="bound the model gives, 1 - C",
        ylabel="share of questions where\nthe answer is made up",
        title="The model says how often it is wrong",
    )
    left.legend(frameon=False)
    names = list(rates)
    places = np.arange(len(names))
    answered, wrong = np.array(list(rates.values())).T
    right.barh(places + 0.2, answered, height=0.38, color="#0072b2", label="answered")
    right.barh(places - 0.2, wrong, height=0.38, color="#d55e00", label="made up, of the answered")
    right.axvline(MAX_HALLUCINATION_RATE, color="0.4", linestyle=":", label="promised at most")
    right.set(yticks=places, yticklabels=names, xlim=(0, 1), title="Decoders that abstain")
    right.invert_yaxis()
    right.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=130)


def main(argv: list[str] | None = None) -> None:
    """Print the tour and write its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    arguments = parser.parse_args(argv)
    scores = sg.joint_scores(pair_predictor())
    print_scores(scores)
    rates = decode(scores, np.random.default_rng(0))
    print(f"Decoding {NUM_QUESTIONS:,} questions, at most {MAX_HALLUCINATION_RATE:.0%} made up:\n")
    for name, (answered, wrong) in rates.items():
        print(f"{name:>18}: {answered:>6.1%} answered, {wrong:>5.1%} of them made up")
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "tour.png"
    draw(scores, rates, path)
    print(
        f"\nPlain sampling makes up answers. The filter keeps its promise by staying silent; the\n"
        f"other two find 'hard to say', which is true of every question, where they know no more.\n"
        f"Picture: {path}"
    )


if __name__ == "__main__":
    main()
