"""The rival that is not trained: the pretrained model, told an answer in its prompt."""

from __future__ import annotations

from collections.abc import Sequence

from secondguess.baselines.answers.mutual_information import told_scores
from secondguess.experiments.associations.norms import Cue, as_response
from secondguess.experiments.associations.scoring import ScoredAnswers
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel, context_length, load_network
from secondguess.theory.records import SelfCheatScores


def prompted_scores(
    model: str, cues: Sequence[Cue], answers: ScoredAnswers
) -> tuple[SelfCheatScores, float]:
    """Scores of answers by the pretrained model, and its forward passes per cue."""
    network, tokenizer = load_network(model)
    responses = [as_response(str(word)) for word in answers.words]
    longest = max(len(tokenizer.encode(text, add_special_tokens=False)) for text in responses)
    formatter = PairFormatter(
        tokenizer,
        PairFormat(response_length=longest + 1),
        context_length=context_length(network.config),
    )
    scores = told_scores(
        PairLanguageModel(network.eval(), formatter),
        [cues[index].prompt for index in answers.cues],
        responses,
        ask=lambda prompt, answer: f"{prompt}{answer}\n{prompt}",
    )
    num_cues = len(set(answers.cues.tolist()))
    return scores, (num_cues + 3 * len(responses)) / num_cues
