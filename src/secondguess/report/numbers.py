"""Numbers as people read them."""

from __future__ import annotations

import math


def number(value: float | None) -> str:
    """A number to read: three digits, thousands apart, a true minus sign; None is no number.

    >>> [number(value) for value in (0.0127354, 12345.6, -0.5, 0.0, 0.000045, 3, float("inf"))]
    ['0.0127', '12,346', '−0.5', '0', '4.5e−05', '3', '∞']
    """
    if value is None or math.isnan(value):
        return "no number"
    if math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}"
    elif value and abs(value) < 1e-3:
        text = f"{value:.1e}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def duration(seconds: float | None) -> str:
    """Seconds as one reads them.

    >>> duration(4.2), duration(144.7), duration(7300), duration(None)
    ('4 s', '2 min 25 s', '2 h 1 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(share: float) -> str:
    r"""A share in per cent, to three digits, that is not torn apart at the end of a line.

    >>> percent(0.22066), percent(1.0), percent(0.00123)
    ('22.1\xa0%', '100\xa0%', '0.123\xa0%')
    """
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"
