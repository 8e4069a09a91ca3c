"""A small version of benchmarks/serving.py: a server in a process of its own, under load."""

from __future__ import annotations

from types import ModuleType

import pytest
from scripts import load_script


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_script("benchmarks/serving.py")


def test_no_request_fails_under_load_or_is_lost_when_the_server_stops(benchmark, tmp_path):
    benchmark.save_model(tmp_path / "model")
    with benchmark.server(tmp_path / "model") as (address, process):
        together = benchmark.measured(address, 16, 64)
        assert together["statuses"] == {"200": 64}
        stopped = benchmark.stopped_under_load(address, process, 16, after=0.5)
    assert set(stopped["statuses"]) <= {"200", "not taken"}
    assert stopped["taken"] == stopped["answered"] == 64 + stopped["answers_received"]
    assert stopped["exit_code"] == 0
