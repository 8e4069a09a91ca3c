"""The choices that options offer are those of the library.

Options name them again, because `--help` must not load the library to say what they are.
"""

from enum import StrEnum
from typing import get_args, get_type_hints

import pytest

from secondguess.cli import fit, intervals, language, reproduce
from secondguess.experiments.associations import run as associations
from secondguess.experiments.cifar10h import run as cifar10h
from secondguess.experiments.digits_of_pi import run as digits_of_pi
from secondguess.experiments.facts import run as facts
from secondguess.experiments.frozen_lake import run as frozen_lake
from secondguess.experiments.regression import run as regression
from secondguess.language.answering import Strategy
from secondguess.language.formatting import Layout
from secondguess.theory.calibration.interval_plan import IntervalMethod
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.records import GapKind
from secondguess.training.loop import TrainingConfig


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        (fit.LayoutName, get_args(Layout)),
        (fit.PrecisionName, get_args(get_type_hints(TrainingConfig)["precision"])),
        (intervals.Method, get_args(IntervalMethod)),
        (intervals.MeanBound, get_args(MeanMethod)),
        (language.StrategyName, get_args(Strategy)),
        (language.GapName, get_args(GapKind)),
        (reproduce.Function, regression.FUNCTIONS),
        (reproduce.Preset, regression.PRESETS),
        (reproduce.Preset, digits_of_pi.PRESETS),
        (reproduce.LakePreset, frozen_lake.PRESETS),
        (reproduce.ImagePreset, cifar10h.PRESETS),
        (reproduce.FactsPreset, facts.PRESETS),
        (reproduce.LanguagePreset, associations.PRESETS),
        (reproduce.FactFamily, facts.FAMILIES),
    ],
)
def test_an_option_offers_what_the_library_knows(option: type[StrEnum], choices) -> None:
    assert {each.value for each in option} == set(choices)
