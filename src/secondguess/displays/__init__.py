"""Figures that users draw themselves, in scikit-learn's Display convention.

`from_estimator` or `from_predictions` computes and draws, `plot(ax=...)` draws again, and what was
drawn is kept: `ax_`, `figure_`, `line_`. All numbers come from `theory`; a display only draws.
Drawing needs matplotlib, importing does not. How the project's own figures look is in `look.py`.
"""

from secondguess.displays.curves import HallucinationCurveDisplay, RiskCoverageDisplay
from secondguess.displays.reliability import ConfidenceReliabilityDisplay, ReliabilityDisplay
from secondguess.displays.triage import TriageDisplay

__all__ = [
    "ConfidenceReliabilityDisplay",
    "HallucinationCurveDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "TriageDisplay",
]
