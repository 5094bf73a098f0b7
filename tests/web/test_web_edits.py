"""Adding, changing, and the smallest edit: the page says what the raw model says of a graph edited by hand."""

from typing import Any

import numpy as np
import pytest

import cf2
from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.whatif import MAX_EDITS, WhatIf, checked_edits
from report.edited_toys import CLASSES, METHYL, harmless, molecule_context
from report.explained_toys import ATOMS, NitroGroup, RedNeighbours, by_hand, explained, red_edges, red_graph
from toys import random_graph
from web.test_web_page import shown


def nothing(e: Explanation) -> np.ndarray:
    return np.zeros(e.num_units, dtype=bool)


# -- what the model is asked ----------------------------------------------------------------------------------


@pytest.fixture
def quiet(red_source: ModelAndData) -> tuple[WhatIf, Explanation]:
    """Node 4, which is quiet."""
    given = explained(red_edges, "cf2", [4])
    return WhatIf(red_source, {"cf2": given}), given[0]


@pytest.mark.parametrize(
    ("edit", "is_seen"),
    [
        (("add", 4, 9), 1),
        (("add", 4, 18), 1),
        (("add", 4, 33), 1),
        (("change", 5, 0, 1.0), 1),
        (("change", 20, 0, 1.0), 0),
    ],
)
def test_edits_count_as_far_as_the_model_looks(quiet: tuple[WhatIf, Explanation], edit: Any, is_seen: bool) -> None:
    asked, e = quiet
    made: dict[str, Any] = {"add" if edit[0] == "add" else "write": [edit[1:]]}
    said, changed = asked.ask_edited(e, nothing(e), [edit])
    assert np.allclose(said, by_hand(RedNeighbours(), red_graph(), 4, **made), atol=1e-5)
    assert changed == is_seen
    said, _ = asked.ask_edited(e, np.arange(e.num_units) == 0, [edit])
    removed = [tuple(e.units.ids[0].tolist())]
    assert np.allclose(said, by_hand(RedNeighbours(), red_graph(), 4, remove=removed, **made), atol=1e-5)


def test_an_atom_that_becomes_another_is_not_the_old_one() -> None:
    source = ModelAndData(NitroGroup(), "graph", [harmless()], class_names=tuple(CLASSES), atoms=ATOMS)
    found = cf2.explain(NitroGroup(), [harmless()], question="factual")
    context = molecule_context() | {"spec": found.context["spec"]}
    molecule = WhatIf(source, {"cf2": Explanations(tuple(found), context)})
    e = molecule.explanation(0, "cf2")
    said, changed = molecule.ask_edited(e, nothing(e), [("add", 6, 8), ("change", 7, 2, 1.0)])
    written = [(7, place, float(atom == "O")) for place, atom in enumerate(ATOMS)]
    assert METHYL[7] == "C"
    assert np.allclose(said, by_hand(NitroGroup(), harmless(), None, add=[(6, 8)], write=written), atol=1e-5)
    assert changed


def test_the_edits_of_a_counterfactual_can_be_made_and_taken_back_one_by_one() -> None:
    options: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add", "change")}
    found = cf2.explain(NitroGroup(), [harmless()], **options)
    source = ModelAndData(NitroGroup(), "graph", [harmless()], atoms=ATOMS)
    asked, e = WhatIf(source, {"cf2": found}), found[0]
    assert e.status == "found"
    assert e.size == 2
    said, changed = asked.ask_edited(e, e.selected, [])
    assert np.allclose(said, e.probabilities_without, atol=1e-5)
    after = e.apply(harmless())
    assert np.allclose(said, by_hand(NitroGroup(), after, None), atol=1e-5)
    assert changed
    for row in np.flatnonzero(e.selected).tolist():
        assert not asked.ask_edited(e, np.arange(e.num_units) == row, [])[1]


# -- the smallest edit ----------------------------------------------------------------------------------------


def test_the_smallest_edit_is_found_kept_and_can_be_tried(quiet: tuple[WhatIf, Explanation]) -> None:
    asked, e = quiet
    name = asked.smallest_edit(e, 1, ("change",), valid=False)
    assert name == "smallest edit to busy (change)"
    made = asked.explanation(4, name)
    assert (made.status, made.size, made.target, made.question) == ("found", 1, 1, "counterfactual")
    ((_, (node, column), _, new),) = made.edits
    expected = by_hand(RedNeighbours(), red_graph(), 4, write=[(node, column, new)])
    assert np.allclose(made.probabilities_without, expected, atol=1e-5)
    assert int(expected.argmax()) == 1
    said, _ = asked.ask_edited(made, made.selected, [])
    assert np.allclose(said, expected, atol=1e-5)
    again = asked.smallest_edit(made, None, ("remove",), valid=False)  # also from what was found on the page
    assert asked.explanation(4, again).status == "impossible"


# -- the page -------------------------------------------------------------------------------------------------


def test_an_edge_is_added_and_taken_back(client: Any) -> None:
    edge = ["add", 4, 9]
    first = shown(client, 4, edits=[["add", 9, 4]])
    assert "The model now predicts busy (0.88): changed." in first["answer"]
    assert first["edits"] == [edge]
    assert "add 4–9" in first["edited"]
    assert 'class="cf2-added"' in first["picture"]
    assert 'data-unit="4"' in first["picture"]  # a press on it takes it back
    back = shown(client, 4, edits=[edge], removed=[4])
    assert "The model now predicts quiet (0.88): unchanged." in back["answer"]
    assert back["edits"] == []
    made = shown(client, 4, edits=[["change", 5, 0, 1]])
    assert "The model now predicts busy (0.88): changed." in made["answer"]
    assert all("feature 0: 0 → 1" in made[part] for part in ("edited", "picture"))
    for done in ("restore", "without", "only"):
        assert shown(client, 4, edits=[edge], do=done)["edits"] == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (["add", 4, None], "Expected `node` to be a whole number from 0 to 35, but got None"),
        (["add", 4, 36], "Expected `node` to be a whole number from 0 to 35, but got 36"),
        (["add", 4, 4], "Expected two different nodes, but got 4 twice"),
        (["add", 4, 3], "Expected two nodes without an edge, but got 3 and 4, which have one"),
        (["change", 4, 2, 1], "Expected `feature` to be a whole number"),
        (["change", 4, 1, None], "Expected `value` to be a number"),
        *((wrong, "Expected an edit that adds or changes") for wrong in (["fly"], [], 3, None)),
    ],
)
def test_what_is_typed_wrong_is_said(client: Any, edit: Any, said: str) -> None:
    many = client.post("/state", json={"key": "4", "method": "cf2", "edits": [["add", 4, 9]] * (MAX_EDITS + 1)})
    assert (many.status_code, many.text) == (400, "Expected at most 50 edits, but got 51.")
    response = client.post("/state", json={"key": "4", "method": "cf2", "edits": [edit]})
    assert response.status_code == 400
    assert response.text.startswith(said.replace("3 and 4", "4 and 3"))


def test_of_two_changes_of_one_entry_the_later_one_counts() -> None:
    edits = [["change", 1, 0, 1.0], ["change", 1, 0, 2.0], ["add", 9, 4], ["add", 4, 9]]
    assert checked_edits(edits, red_graph(), False) == [("change", 1, 0, 2.0), ("add", 4, 9)]
    assert checked_edits([["add", 9, 4]], random_graph(10, 16, directed=True), True) == [("add", 9, 4)], "one way"
    elements = [["change", 1, 0, 1.0], ["change", 1, 1, 1.0]]
    assert checked_edits(elements, red_graph(), False, elements=2) == [("change", 1, 1, 1.0)]
    whole = red_graph()
    whole.x = whole.x.long()
    with pytest.raises(CF2Error, match="Expected features that are numbers"):
        checked_edits([["change", 1, 0, 1]], whole, False)


FIND = {"what": "find", "key": "4", "method": "cf2", "aim": 1, "sorts": ["change"], "valid": False}


@pytest.mark.parametrize("wrong", [{"aim": 2}, {"sorts": []}, {"sorts": ["fly"]}])
def test_a_search_for_nonsense_is_refused(client: Any, wrong: dict[str, Any]) -> None:
    response = client.post("/search", json=FIND | wrong)
    assert (response.status_code, response.text.startswith("Expected")) == (400, True)


def test_a_counterfactual_of_a_run_is_shown_with_and_without_its_model(red_source: ModelAndData) -> None:
    options: dict[str, Any] = {"question": "counterfactual", "edits": ("add",), "candidates": [(4, 9), (4, 10)]}
    found = cf2.explain(RedNeighbours(), red_graph(), nodes=[4], **options)
    assert found[0].edits == [("add", (4, 9))]
    assert Spec.from_json(found.context["spec"]).edits == ("add",)
    live = build_app(red_source, {"cf2": found}).test_client()
    first = shown(live, 4)["units"]
    assert "add 4–9 ●" in first
    assert "checked" not in first.replace("checkbox", "")  # neither is in the graph
    made = shown(live, 4, removed=[0])
    assert "The model now predicts busy (0.88): changed." in made["answer"]
    stored = shown(build_app(None, {"cf2": found}).test_client(), 4, edits=[["add", 4, 9]])
    assert "The model predicted class 0 (0.88)." in stored["answer"]
    assert stored["edits"] == []
