"""Figures have the graph, the probabilities and the words."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report import pictures as svg
from cf2.report.pictures import plot
from cf2.report.scene import scene
from cf2.results.explanation import Explanation, UnitTable
from report.explained_toys import explained, random_graph, red_edges, with_units


@pytest.fixture
def figures() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for figure in made:
        figure.clear()


def test_the_figure_has_the_graph_the_probabilities_and_the_words(figures: list[Any]) -> None:
    found = explained(red_edges, "cf2", [3], class_names=("$quiet$", "busy"))
    figures.append(found.plot(0))
    figure = figures[0]
    figure.canvas.draw()
    left, right = figure.axes
    assert len(right.patches) == 6  # two classes, three graphs
    assert "Sufficient" in figure.get_supxlabel()
    assert np.isclose(sum(p.get_width() for p in right.patches), 3)
    assert "explained node" in [t.get_text() for t in left.get_legend().get_texts()]


def test_a_figure_of_a_bad_size_is_refused() -> None:
    with pytest.raises(CF2Error, match="width and a height"):
        plot(random_graph(10, 12), size=(0, 3))


def test_an_instance_with_nothing_to_mask_is_drawn_without_an_error(figures: list[Any]) -> None:
    known = {"task": "graph", "status": "empty", "note": "The graph has no edges."}
    e = replace(with_units(random_graph(12, 14), UnitTable.none(), []), **known)
    assert "<svg" in svg.picture(scene(e), "nothing")
    figures.append(plot(e))
    figures[0].canvas.draw()
    assert "The graph has no edges" in e._repr_html_()


def test_directed_edges_have_arrows(bad: Explanation) -> None:
    arrows = str(svg.picture(scene(replace(bad, directed=True)), "")).count("<path")
    assert arrows > str(svg.picture(scene(bad), "")).count("<path")


def test_a_notebook_shows_the_figure() -> None:
    shown = explained(red_edges, "cf2", [3])[0].plot()
    assert shown._repr_png_().startswith(b"\x89PNG")


def test_the_graph_alone_on_given_axes() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    e = explained(red_edges, "cf2", [3])[0]
    assert e.plot(ax=axes) is axes
    assert axes.collections
    with pytest.raises(CF2Error, match="`ax` to be matplotlib axes"):
        e.plot(ax=3)


def test_nodes_are_where_the_user_wants_them() -> None:
    import networkx

    e = explained(red_edges, "cf2", [3])[0]
    known = networkx.circular_layout(e.to_networkx())
    for given in (known, networkx.circular_layout):
        axes = e.plot(layout=given, probabilities=False).axes[0]
        drawn = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections if len(one.get_offsets())])
        for point in known.values():
            assert np.isclose(drawn, point).all(1).any()
    with pytest.raises(CF2Error, match=r"a point .* for every node that is drawn.*none for"):
        e.plot(layout={3: (0, 0)})
    with pytest.raises(CF2Error, match="a point"):
        e.plot(layout="circle")


def test_the_picture_is_written_where_it_should_be(tmp_path: Path) -> None:
    e = explained(red_edges, "cf2", [3])[0]
    e.plot(path=tmp_path / "one.svg")
    e.plot(path=tmp_path / "new" / "one.png")
    assert (tmp_path / "new" / "one.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    with pytest.raises(CF2Error, match=r"the ending of `path`.*'pmg'. Did you mean 'png'"):
        e.plot(path=tmp_path / "one.pmg")
