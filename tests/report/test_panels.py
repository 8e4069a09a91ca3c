from pathlib import Path

import numpy as np
from matplotlib import rcParams

from secondguess.report.look import house_look, new_figure, save, shared_legend
from secondguess.report.panels import draw_prediction, draw_reliability, draw_variance
from secondguess.theory.reliability import reliability_bins

X = np.linspace(-1, 1, 101)


def test_the_same_arrays_give_the_same_file_and_leave_matplotlib_alone(tmp_path: Path) -> None:
    before = dict(rcParams)
    for name in ("one.png", "two.png"):
        with house_look():
            figure, axes = new_figure(1, 2)
            draw_prediction(axes[0, 0], X, 0.5 + 0 * X, 0.1 + 0 * X, X**2)
            draw_variance(axes[0, 1], X, 0.01 + 0 * X, X**2, window=11)
            shared_legend(figure, *axes[0])
            save(figure, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert dict(rcParams) == before


def test_a_local_mean_of_a_constant_is_the_constant_up_to_the_ends() -> None:
    _, axes = new_figure()
    draw_variance(axes[0, 0], X, 0 * X, np.full(len(X), 0.25), window=11)
    (line,) = (ln for ln in axes[0, 0].get_lines() if "local mean" in str(ln.get_label()))
    np.testing.assert_allclose(np.asarray(line.get_ydata()), 0.25)


def test_a_reliability_diagram_draws_the_bins_and_the_diagonal() -> None:
    bins = reliability_bins(np.linspace(0, 1, 100), np.linspace(0, 0.5, 100), num_bins=20)
    _, axes = new_figure()
    draw_reliability(axes[0, 0], {"method": bins})
    diagonal, series = axes[0, 0].get_lines()
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(series.get_xdata(), bins.predicted)
    np.testing.assert_array_equal(series.get_ydata(), bins.observed)


def test_a_shared_legend_names_each_series_once() -> None:
    figure, axes = new_figure(1, 2)
    for panel in axes[0]:
        panel.plot([0, 1], [0, 1], label="same")
    axes[0, 1].plot([0, 1], [1, 0], label="other")
    shared_legend(figure, *axes[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["same", "other"]


def test_a_legend_is_never_wider_than_its_figure() -> None:
    figure, axes = new_figure(1, 1, panel=(4.0, 3.0))
    for number in range(5):
        axes[0, 0].plot([0, 1], [0, 1], label=f"a series with a long name, the {number}th")
    shared_legend(figure, axes[0, 0])
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len(legend.get_texts()) == 5
