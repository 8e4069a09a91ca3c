"""Which claims a preset is too small for, and the preset that they need.

It is fixed here and said before a run starts, so how that run ends has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from secondguess.report.sections import Claim


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Claims that a preset is too small for, so that its runs are not judged on them.

    >>> NEEDS["frozen-lake", "quick"].preset_for("hidden view: share accepted")
    'cpu'

    Attributes:
        claims: how their names begin.
        preset: the smallest one that they are judged in.
        why: what the smaller one lacks.
    """

    claims: tuple[str, ...]
    preset: str
    why: str

    def preset_for(self, claim: str) -> str:
        """The preset that a claim needs; empty for one that is judged as it is."""
        return self.preset if claim.startswith(self.claims) else ""


NEEDS = {
    ("digits-of-pi", "quick"): Needs(
        claims=(
            "samples: largest |",
            "all sentences: largest |",
            "recalibrated, samples: largest |",
            "recalibrated, all sentences: largest |",
        ),
        preset="cpu",
        why="too many of the digits it is asked about are half learned for a claim about deciles",
    ),
    ("cifar10h", "quick"): Needs(
        claims=tuple(
            f"CIFAR-10H: Cheat NN, {which}, has an ECE-2 no higher than its floor"
            for which in ("as published", "recalibrated, the best pair model")
        ),
        preset="cpu",
        why="its networks are pretrained on an eighth of the images",
    ),
    **{
        ("frozen-lake", f"quick{teacher}"): Needs(
            claims=("hidden view: ", "visible views: ", "top-1 search"),
            preset=f"cpu{teacher}",
            why="its network is still learning when training stops",
        )
        for teacher in ("", "-sampled")
    },
}
"""By experiment, as the command line calls it, and preset."""


def marked(claims: Iterable[Claim], experiment: str, preset: str) -> list[Claim]:
    """The claims of a run, those that it is too small for marked with the preset that they need.

    >>> [claim] = marked([Claim.at_most("error", 0.2, 0.1)], "frozen-lake", "quick")
    >>> claim.needs
    ''

    Args:
        claims: as the run decides them.
        experiment: as the command line calls it.
        preset: of the run.
    """
    needs = NEEDS.get((experiment, preset))
    if needs is None:
        return list(claims)
    return [replace(claim, needs=needs.preset_for(claim.name)) for claim in claims]
