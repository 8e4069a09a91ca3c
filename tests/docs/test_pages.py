"""What the scripts that write tables share."""

from __future__ import annotations

import pages


def run(preset: str, *claims: tuple[str, bool, float, float]) -> dict:
    names = ("name", "holds", "value", "bound")
    return {"preset": preset, "claims": [dict(zip(names, claim, strict=True)) for claim in claims]}


def test_each_claim_stands_once_with_what_all_runs_of_a_group_say() -> None:
    runs = [
        run("quick", ("a", False, 0.5, 0.1)),
        run("cpu", ("a", True, 0.01234, 0.1), ("b", True, 2, 3)),
        run("cpu", ("a", True, 0.05, 0.1), ("b", False, 4, 3.5)),
    ]
    lines = pages.claims(runs, lambda each: each["preset"]).splitlines()
    assert lines[0] == "| claim | quick | cpu |"
    assert lines[2] == "| a | **no**: 0.5 (0.1) | yes: 0.0123 to 0.05 (0.1) |"
    assert lines[3] == "| b |  | **in 1 of 2**: 2 to 4 (3 to 3.5) |"
    assert len(lines) == 4


def test_what_needs_a_larger_preset_is_no_verdict_and_no_number_is_said() -> None:
    judged = {"name": "a", "holds": False, "value": 0.5, "bound": 0.1}
    runs = [
        {"preset": "quick", "claims": [judged | {"needs": "cpu"}]},
        {"preset": "cpu", "claims": [judged | {"value": None, "needs": ""}]},
    ]
    row = pages.claims(runs, lambda each: each["preset"]).splitlines()[2]
    assert row == "| a | needs cpu: 0.5 (0.1) | **no**: no number (0.1) |"


def test_a_mean_has_a_standard_error_where_there_are_several_values() -> None:
    assert pages.mean_and_error([0.25], "{:.1%}") == "25.0%"
    assert pages.mean_and_error([1, 3], "{:.1f}") == "2.0 ± 1.0"
