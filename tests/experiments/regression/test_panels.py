from pathlib import Path

import numpy as np
from matplotlib import rcParams

from secondguess.displays.look import house_look, new_figure, save, shared_legend
from secondguess.experiments.regression.panels import draw_prediction, draw_variance

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
