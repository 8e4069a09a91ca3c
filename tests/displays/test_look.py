from secondguess.displays.look import new_figure, shared_legend


def test_a_shared_legend_names_each_series_once() -> None:
    figure, axes = new_figure(1, 2)
    for panel in axes[0]:
        panel.plot([0, 1], [0, 1], label="same")
        panel.legend()
    axes[0, 1].plot([0, 1], [1, 0], label="other")
    shared_legend(figure, *axes[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["same", "other"]
    # It stands in for the panels' own.
    assert [panel.get_legend() for panel in axes[0]] == [None, None]


def test_a_legend_is_never_wider_than_its_figure() -> None:
    figure, axes = new_figure(1, 1, panel=(4.0, 3.0))
    for number in range(5):
        axes[0, 0].plot([0, 1], [0, 1], label=f"a series with a long name, the {number}th")
    shared_legend(figure, axes[0, 0])
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len(legend.get_texts()) == 5
