"""secondguess: models that say what they don't know.

`import secondguess as sg` gives the theory layer (NumPy and SciPy only).
`secondguess.classification` trains pair models of labels (torch) and `secondguess.language` pair
models of sequences (transformers); neither is imported here.
"""

from importlib.metadata import version

from secondguess.theory.bounds import (
    cantelli_lower_bound,
    chebyshev_interval,
    hallucination_bound,
)
from secondguess.theory.calibration.cutoff import select_min_variance
from secondguess.theory.calibration.families import (
    BinInflations,
    ClassInflations,
    fit_by_bin,
    fit_by_class,
)
from secondguess.theory.calibration.inflation import (
    InflationStream,
    VarianceInflation,
    fit_variance_inflation,
)
from secondguess.theory.calibration.means import (
    BoundedMean,
    mean_interval,
    mean_lower_bound,
    mean_upper_bound,
)
from secondguess.theory.calibration.one_sided import CalibratedLowerBound, fit_lower_bound
from secondguess.theory.decoding import decode_rejection, decode_selective, decode_top1
from secondguess.theory.joints import (
    JointReport,
    binary_joint,
    binary_moments,
    check_joint,
    joint_from_moments,
    joint_marginal,
    joint_scores,
    pair_covariance,
)
from secondguess.theory.metrics import (
    HallucinationCurve,
    RiskCoverageCurve,
    accuracy,
    annotator_kl,
    grouping_error,
    hallucination_curve,
    interval_coverage,
    mean_variance,
    risk_coverage_curve,
    squared_error_estimate,
)
from secondguess.theory.records import (
    Bound,
    Decision,
    GapKind,
    Interval,
    Prediction,
    RestsOn,
    SelfCheatScores,
)
from secondguess.theory.reliability import (
    ReliabilityBins,
    first_order_ece,
    first_order_ece_standard_error,
    reliability_bins,
    second_order_ece,
    second_order_ece_floor,
    second_order_ece_standard_error,
)

__version__ = version("secondguess")

__all__ = [
    "BinInflations",
    "Bound",
    "BoundedMean",
    "CalibratedLowerBound",
    "ClassInflations",
    "Decision",
    "GapKind",
    "HallucinationCurve",
    "InflationStream",
    "Interval",
    "JointReport",
    "Prediction",
    "ReliabilityBins",
    "RestsOn",
    "RiskCoverageCurve",
    "SelfCheatScores",
    "VarianceInflation",
    "accuracy",
    "annotator_kl",
    "binary_joint",
    "binary_moments",
    "cantelli_lower_bound",
    "chebyshev_interval",
    "check_joint",
    "decode_rejection",
    "decode_selective",
    "decode_top1",
    "first_order_ece",
    "first_order_ece_standard_error",
    "fit_by_bin",
    "fit_by_class",
    "fit_lower_bound",
    "fit_variance_inflation",
    "grouping_error",
    "hallucination_bound",
    "hallucination_curve",
    "interval_coverage",
    "joint_from_moments",
    "joint_marginal",
    "joint_scores",
    "mean_interval",
    "mean_lower_bound",
    "mean_upper_bound",
    "mean_variance",
    "pair_covariance",
    "reliability_bins",
    "risk_coverage_curve",
    "second_order_ece",
    "second_order_ece_floor",
    "second_order_ece_standard_error",
    "select_min_variance",
    "squared_error_estimate",
]
