"""What `secondguess reproduce` can be asked for by name: presets, worlds and kinds of facts."""

from __future__ import annotations

from enum import StrEnum


class Preset(StrEnum):
    """How large a run is."""

    quick = "quick"
    cpu = "cpu"
    paper = "paper"


class ImagePreset(StrEnum):
    """How large a run on images is."""

    quick = "quick"
    cpu = "cpu"
    cpu_pixels = "cpu-pixels"
    paper = "paper"


class LakePreset(StrEnum):
    """How large a run on the Frozen Lake is, and what teaches its network."""

    quick = "quick"
    quick_sampled = "quick-sampled"
    cpu = "cpu"
    cpu_sampled = "cpu-sampled"
    paper = "paper"


class LanguagePreset(StrEnum):
    """How large a run on a pretrained language model is."""

    quick = "quick"
    cpu = "cpu"


class FactsPreset(StrEnum):
    """How large a run about facts is."""

    quick = "quick"
    cpu = "cpu"
    cpu_large = "cpu-large"


class FactFamily(StrEnum):
    """What facts are about."""

    cities = "cities"
    german_articles = "german-articles"
    word_kinds = "word-kinds"


class Function(StrEnum):
    """Which one-dimensional world."""

    sinusoid = "sinusoid"
    piecewise = "piecewise"
