"""Results are frozen and aligned with the user's graph."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cf2
from cf2.errors import CF2Error
from cf2.results.explanation import UnitTable
from toys import NodeNet, random_graph

DATA = random_graph(30, 45, seed=6)
MODEL = NodeNet("sum", seed=1)


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    return cf2.explain(MODEL, DATA, nodes=[3, 7, 9, 12], units=("edges", "features"))


def test_edges_and_masks_align_with_the_users_edge_index(found: cf2.Explanations) -> None:
    for e in found:
        assert e.size == len(e.edges) // 2 + len(e.features)
        assert {tuple(p) for p in e.edges} == {tuple(p[::-1]) for p in e.edges}
        hard, soft = e.edge_mask(DATA.edge_index), e.edge_mask(DATA.edge_index, soft=True)
        chosen = {tuple(p) for p in e.edges.tolist()}
        inside = {tuple(sorted(p)) for p in e.units.of("edges").tolist()}
        for column, (a, b) in enumerate(DATA.edge_index.t().tolist()):
            assert hard[column] == ((a, b) in chosen)
            if a == b or tuple(sorted((a, b))) not in inside:
                assert soft[column] == 0
        reverse = e.edge_mask(DATA.edge_index.flip(0), soft=True)
        assert np.array_equal(soft, reverse)


def test_tables_and_summaries(found: cf2.Explanations) -> None:
    table = found.to_pandas()
    assert list(table["key"]) == [3, 7, 9, 12]
    assert found.summary()["n"] == 4
    assert found.summary()["pn"] == pytest.approx(table["necessary"].mean())
    assert len(found[1:3]) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].size = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("question", "needs"),
    [("why", {"sufficient", "necessary"}), ("factual", {"sufficient"}), ("counterfactual", {"necessary"})],
)
@pytest.mark.parametrize("failing", ["sufficient", "necessary"])
def test_nothing_that_fails_its_tests_can_be_called_found(
    found: cf2.Explanations, question: str, needs: set[str], failing: str
) -> None:
    good = dataclasses.replace(found[0], sufficient=True, necessary=True, status="found", question=question)
    if failing in needs:
        with pytest.raises(CF2Error, match=f"`found` only for a set that passes its tests.*not {failing}"):
            dataclasses.replace(good, **{failing: False})
    else:
        assert dataclasses.replace(good, **{failing: False}).status == "found"


def test_a_table_of_units_knows_its_kinds(found: cf2.Explanations) -> None:
    ids = np.array([[0, 1], [2, 0], [1, 2]])
    table = UnitTable(("edges", "features"), np.array([0, 1, 0], dtype=np.int8), ids)
    assert table.where("edges").tolist() == [0, 2]
    assert table.of("features").tolist() == [[2, 0]]
    assert table.of("columns").shape == (0, 2)
    assert len(UnitTable.none()) == 0
    with pytest.raises(CF2Error, match="two ids per unit"):
        UnitTable(("edges",), np.zeros(2, np.int8), ids)
    with pytest.raises(CF2Error, match="one per unit"):
        dataclasses.replace(found[0], scores=found[0].scores[:-1])


def test_nodes_are_those_that_the_chosen_units_touch() -> None:
    (e,) = cf2.explain(MODEL, DATA, nodes=[3], units=("edges", "node_features", "columns"), method="random", k=4)
    touched = {node for pair in e.chosen("edges").tolist() for node in pair}
    touched |= {node for node, _ in e.chosen("node_features").tolist()}
    assert e.nodes.tolist() == sorted(touched)
    assert e.size == sum(len(e.chosen(name)) for name in e.units.names) == 4


def test_a_graph_of_networkx_has_the_scores(found: cf2.Explanations) -> None:
    graph = found[0].to_networkx()
    assert {tuple(sorted(edge)) for edge in graph.edges} == {tuple(p) for p in found[0].units.of("edges").tolist()}
    chosen = {tuple(sorted((a, b))) for a, b, inside in graph.edges(data="chosen") if inside}
    assert chosen == {tuple(p) for p in found[0].chosen("edges").tolist()}


def test_filters_by_attribute(found: cf2.Explanations) -> None:
    named = dataclasses.replace(found, context={"class_names": ["a", "b", "c"]})
    for prediction in {e.prediction for e in found}:
        keys = [e.key for e in found if e.prediction == prediction and e.status == "found"]
        assert [e.key for e in found.where(status="found", prediction=prediction)] == keys
        assert [e.key for e in named.where(status="found", prediction="abc"[prediction])] == keys
    assert [e.key for e in found.where(key=[7, 9])] == [7, 9]
    assert len(found.where(prediction=99)) == 0
    with pytest.raises(CF2Error, match=r"an attribute of an explanation.*Did you mean 'status'"):
        found.where(statsu="found")
    with pytest.raises(CF2Error, match=r"`status` to be one of .*, but got 'fond'\. Did you mean 'found'"):
        found.where(status=["found", "fond"])
    with pytest.raises(CF2Error, match="`prediction` to be one of a, b, c, but got 'd'"):
        named.where(prediction="d")
    with pytest.raises(CF2Error, match="`label` as a number without `class_names`"):
        found.where(label="a")


def test_an_explanation_prints_as_one_line_in_words(found: cf2.Explanations) -> None:
    for e in found:
        assert repr(e).startswith(f"<Explanation of node {e.key}: class {e.prediction} (")
        assert ("sufficient, necessary" in repr(e)) == (e.sufficient and e.necessary)
        assert len(repr(e)) < 200
        assert "array" not in repr(e)
