"""What a page shows of one run, as plain records, and their form in JSON.

An experiment fills a `Section` from its results; the page is drawn from sections, claims and
figures alone, so it needs neither the experiment nor what trained it. All text is plain text: the
page escapes it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from secondguess._files.records import shortened


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the paper, or of the docs, checked on a run.

    >>> Claim.at_most("distance of the mean variance from the error", 0.06, 0.1).holds
    True
    >>> Claim.at_most("largest error of an answer", float("nan"), 0.1)  # there was no answer
    Claim(name='largest error of an answer', holds=False, value=None, bound=0.1, paper='', needs='')

    Attributes:
        name: the statement, in words.
        holds: whether this run bears it out.
        value: the number it is about; None where there is none, and the claim does not hold.
        bound: what that is compared with; None as above.
        paper: what the paper says or shows, where it does.
        needs: the preset that the claim takes, where this run's is too small for it by what it is,
            not by how it ended; then it counts neither as held nor as failed.
    """

    name: str
    holds: bool
    value: float | None
    bound: float | None
    paper: str = ""
    needs: str = ""

    def __post_init__(self) -> None:
        for name in ("value", "bound"):
            number = getattr(self, name)
            if number is not None and math.isnan(number):
                object.__setattr__(self, name, None)
        if self.holds and None in (self.value, self.bound):
            raise ValueError(f"claim {self.name!r} holds, but there is no number to show for it.")

    @classmethod
    def at_most(cls, name: str, value: float, bound: float, paper: str = "") -> Claim:
        """A claim that holds where the value is at most the bound."""
        return cls(name=name, holds=bool(value <= bound), value=value, bound=bound, paper=paper)

    @classmethod
    def at_least(cls, name: str, value: float, bound: float, paper: str = "") -> Claim:
        """A claim that holds where the value is at least the bound."""
        return cls(name=name, holds=bool(value >= bound), value=value, bound=bound, paper=paper)

    @property
    def is_judged(self) -> bool:
        """Whether this run is large enough to say yes or no."""
        return not self.needs

    @property
    def verdict(self) -> str:
        """What this run says: `holds`, `fails`, or `needs` for a larger preset."""
        return "needs" if self.needs else "holds" if self.holds else "fails"


def tally(claims: Iterable[Claim]) -> str:
    """How many claims hold, and how many are not judged.

    >>> from dataclasses import replace
    >>> holds = Claim.at_most("error", 0.06, 0.1)
    >>> tally([holds, replace(holds, needs="cpu")])
    '1 of 1 claims hold; 1 needs cpu'
    """
    claims = list(claims)
    judged = [claim for claim in claims if claim.is_judged]
    words = [f"{sum(claim.holds for claim in judged)} of {len(judged)} claims hold"]
    needed = Counter(claim.needs for claim in claims if not claim.is_judged)
    words += [f"{n} {'needs' if n == 1 else 'need'} {preset}" for preset, n in needed.items()]
    return "; ".join(words)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture of the run's `figures` folder.

    Attributes:
        file: its name in that folder.
        caption: how to read it.
        alt: what it shows, for those who do not see it.
        paper: which figure of the paper it answers to, and what that one shows.
    """

    file: str
    caption: str
    alt: str
    paper: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text; the first column names the rows.

    Attributes:
        title: what it is about.
        columns: their headings.
        rows: as many cells each as there are columns.
        note: how to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r} has a row of {len(row)} cells; expected "
                    f"{len(self.columns)}, one per column."
                )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer word by word.

    Attributes:
        label: what is known of it, such as its confidence.
        words: its words.
        log_probs: log-probability of each, at first sight.
        log_probs_after: the same after the model has seen this very answer; None if not asked.
    """

    label: str
    words: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_probs_after: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for scores in (self.log_probs, self.log_probs_after):
            if scores is not None and len(scores) != len(self.words):
                raise ValueError(
                    f"answer {self.label!r} has {len(scores)} log-probabilities; expected "
                    f"{len(self.words)}, one per word."
                )


@dataclass(frozen=True, kw_only=True)
class AnswerGroup:
    """Answers to one question."""

    title: str
    answers: tuple[Answer, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A walk over the cells of a grid, numbered row by row from 0 at the top left.

    Attributes:
        cells: in the order they are visited.
        confidence: the walker's epistemic confidence in it.
        reading: what is shown when one points at it.
        is_flagged: whether it counts among the flagged ones of its group.
    """

    cells: tuple[int, ...]
    confidence: float
    reading: str
    is_flagged: bool

    @property
    def gap(self) -> float:
        """How far the confidence is from 1, to four digits."""
        return round(abs(1 - self.confidence), 4)


TONES = ("plain", "blue", "green", "orange")
"""What a cell of a grid may look like."""


@dataclass(frozen=True, kw_only=True)
class WalkView:
    """Walks over one drawing of the grid.

    Attributes:
        title: what sets it apart.
        tones: one of `TONES` for each cell.
        signs: what is written in each cell: one letter, or nothing.
        walks: drawn over the cells.
    """

    title: str
    tones: tuple[str, ...]
    signs: tuple[str, ...]
    walks: tuple[Walk, ...]


@dataclass(frozen=True, kw_only=True)
class WalkGroup:
    """Walks over one square grid, by view.

    Attributes:
        title: who walks.
        alt: what the grid looks like, for those who do not see it.
        side: cells along an edge.
        flag: what flagged walks have in common, after "of them": "over the hill".
        max_gap: the largest confidence gap at which a walk is accepted, to begin with.
        views: one drawing each.
        note: how to read them.
    """

    title: str
    alt: str
    side: int
    flag: str
    max_gap: float
    views: tuple[WalkView, ...]
    note: str = ""

    def __post_init__(self) -> None:
        num_cells = self.side**2
        for view in self.views:
            if {len(view.tones), len(view.signs)} != {num_cells}:
                raise ValueError(
                    f"view {view.title!r} has {len(view.tones)} tones and {len(view.signs)} signs; "
                    f"expected {num_cells} of each, one per cell."
                )
            for tone in set(view.tones).difference(TONES):
                raise ValueError(
                    f"view {view.title!r} has the tone {tone!r}; expected one of "
                    f"{', '.join(TONES)}."
                )
            for sign in view.signs:
                if len(sign) > 1:
                    raise ValueError(
                        f"view {view.title!r} has the sign {shortened(sign)}; expected one letter."
                    )
            for cell in (cell for walk in view.walks for cell in walk.cells):
                if not 0 <= cell < num_cells:
                    raise ValueError(
                        f"a walk of {view.title!r} visits cell {cell}; expected 0 to "
                        f"{num_cells - 1}."
                    )


@dataclass(frozen=True, kw_only=True)
class Section:
    """All that a page shows of one run, beside its claims and its settings.

    >>> section = Section(title="Coins", paper_section="4.2", claim="Coins are fair.")
    >>> from dataclasses import asdict
    >>> from secondguess._files import read_record
    >>> read_record(Section, asdict(section)) == section
    True

    Attributes:
        title: of the experiment.
        paper_section: where the paper has it; sections are shown in this order.
        claim: what the paper claims, in a sentence or two.
        finding: what this run found, in a sentence or two; it stands first, under the picture.
        notes: what a reader should know about this run.
        tables: of numbers, the paper's beside ours where it prints them.
        answers: answers with coloured words.
        walks: walks over a grid.
        figures: pictures, the first of which opens the section.
    """

    title: str
    paper_section: str
    claim: str
    finding: str = ""
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    answers: tuple[AnswerGroup, ...] = ()
    walks: tuple[WalkGroup, ...] = ()
    figures: tuple[Figure, ...] = ()
