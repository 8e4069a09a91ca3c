"""Which claims a preset is too small for, and the preset that they need.

All of it stands here, before any run: how a run ends has no part in which claims it is judged on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Claims that a preset is too small for: known before any run, so no run is judged on them.

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
    ("frozen-lake", "quick"): Needs(
        claims=("hidden view: ", "visible views: ", "top-1 search"),
        preset="cpu",
        why="its network is still learning when training stops",
    ),
}
"""By experiment, as the command line calls it, and preset."""
