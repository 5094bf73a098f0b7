"""Figures have the graph, the probabilities and the words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report import svg
from cf2.report.figures import plot
from cf2.report.scene import scene
from cf2.results.explanation import Explanation
from cf2.results.unit_table import UnitTable
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
