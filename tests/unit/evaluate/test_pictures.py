"""Pictures of a comparison."""

from dlstep.evaluate.pictures import tasks_figure

from ...helpers.comparisons import row


def test_the_picture_has_a_frame_for_each_task_with_errors_and_a_frontier_in_steps():
    rows = [
        row(task, strategy, tokens_per_forward=speed, accuracy=right, on_frontier=best and strategy == "one")
        for task in ("a", "b")
        for strategy in ("one", "$two$", *(f"other {n}" for n in range(9)))
        for speed, right, best in ((2.0, 0.9, True), (4.0, 0.5, True), (3.0, 0.4, False))
    ]
    figure = tasks_figure(rows)
    assert [axes.get_title() for axes in figure.axes] == ["a, 9 problems", "b, 9 problems"]
    first = figure.axes[0]
    assert len(first.containers) == 11 and all(container.has_xerr and container.has_yerr for container in first.containers)
    (best,) = (line for line in first.lines if line.get_drawstyle() == "steps-pre")
    assert list(zip(*best.get_data(), strict=True)) == [(2.0, 90.0), (4.0, 50.0)]
    assert names_in(figure) == ["frontier", "one, r", "others"], "of many, those on the frontier have a name"
    few = tasks_figure(rows[:6])
    assert names_in(few) == [r"\$two\$, r", "frontier", "one, r"]
    few.canvas.draw()


def names_in(figure):
    """The names of the legend."""
    return sorted(text.get_text() for text in figure.legends[0].get_texts())
