"""What the server counts, in the format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Counters:
    """The numbers behind `/metrics`.

    >>> counters = Counters()
    >>> counters.decisions.labels(outcome="abstained").inc()
    >>> 'secondguess_decisions_total{outcome="abstained"} 1.0' in counters.text()
    True

    Attributes:
        taken: how many requests reached the server.
        answered: how many of them got their whole response, whatever it said.
        requests: by path (of those that exist) and status.
        decisions: answered or abstained.
        seconds: of a request, from its arrival to its response.
    """

    def __init__(self) -> None:
        self.taken = self.answered = 0
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "secondguess_requests",
            "Requests by path and status.",
            ["path", "status"],
            registry=self._registry,
        )
        self.decisions = Counter(
            "secondguess_decisions",
            "Answers and abstentions.",
            ["outcome"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "secondguess_request_seconds",
            "From arrival to response.",
            ["path"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self._registry,
        )
        self._rows = Histogram(
            "secondguess_batch_rows",
            "Responses computed together.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self._registry,
        )
        self._batch_seconds = Histogram(
            "secondguess_batch_seconds",
            "Of a batch.",
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=self._registry,
        )
        self.waiting = Gauge("secondguess_waiting_jobs", "Jobs in line.", registry=self._registry)

    def batch_done(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def text(self) -> str:
        """All of it."""
        return generate_latest(self._registry).decode()
