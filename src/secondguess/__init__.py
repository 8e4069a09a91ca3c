"""secondguess: models that say what they don't know.

`import secondguess as sg` gives the theory layer (NumPy and SciPy only). `secondguess.learning`
trains pair models of labels (torch) and `secondguess.language` pair models of sequences
(transformers); neither is imported here.
"""

from importlib.metadata import version

from secondguess.theory.records import Decision, Interval, Prediction, RestsOn, SelfCheatScores

__version__ = version("secondguess")

__all__ = ["Decision", "Interval", "Prediction", "RestsOn", "SelfCheatScores"]
