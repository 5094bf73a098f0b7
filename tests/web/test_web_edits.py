"""Adding, changing, and the smallest edit: the page says what the raw model says of a graph edited by hand."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.whatif import MAX_EDITS, WhatIf, checked_edits
from report.edited_toys import CLASSES, METHYL, harmless, molecule_context
from report.explained_toys import ATOMS, NitroGroup, RedNeighbours, explained, red_edges, red_graph
from toys import NodeNet, random_graph

OUTPUT = "removed.data"


def by_hand(
    model: nn.Module,
    data: Data,
    node: int | None,
    *,
    removed: Sequence[tuple[int, ...]] = (),
    added: Sequence[tuple[int, int]] = (),
    written: Sequence[tuple[int, int, float]] = (),
) -> np.ndarray:
    """What the model says of the whole graph after the edits."""
    gone = {frozenset(pair) for pair in removed}
    pairs = [pair for pair in data.edge_index.t().tolist() if frozenset(pair) not in gone]
    pairs += [list(pair) for u, v in added for pair in ((u, v), (v, u))]
    x = data.x.clone()
    for place, column, value in written:
        x[place, column] = value
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    with torch.no_grad():
        said: np.ndarray = model(x, edge_index).softmax(1)[node or 0].numpy()
    return said


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
    made: dict[str, Any] = {"added" if edit[0] == "add" else "written": [edit[1:]]}
    said, changed = asked.ask_edited(e, nothing(e), [edit])
    assert np.allclose(said, by_hand(RedNeighbours(), red_graph(), 4, **made), atol=1e-5)
    assert changed == is_seen
    said, _ = asked.ask_edited(e, np.arange(e.num_units) == 0, [edit])
    removed = [tuple(e.units.ids[0].tolist())]
    assert np.allclose(said, by_hand(RedNeighbours(), red_graph(), 4, removed=removed, **made), atol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "gin", "gat"])
def test_edits_far_away_count_if_an_added_edge_brings_them_near(kind: str) -> None:
    for seed in range(6):
        data = random_graph(14, 18, seed=seed)
        model = NodeNet(kind, classes=3, seed=seed, layers=2).eval()
        (e,) = cf2.explain(model, data, nodes=[0])
        asked = WhatIf(ModelAndData(model, "node", [data]), {"cf2": Explanations((e,), {})})
        joined = set(data.edge_index[1, data.edge_index[0] == 0].tolist()) | {0}
        far = next(node for node in range(13, 0, -1) if node not in joined)
        written = [(far, 0, 2.5), (0, 1, -1.0)]
        edits = [("add", 0, far), *(("change", *entry) for entry in written)]
        said, changed = asked.ask_edited(e, e.selected, edits)
        removed = [tuple(pair) for pair in e.chosen("edges").tolist()]
        expected = by_hand(model, data, 0, removed=removed, added=[(0, far)], written=written)
        assert np.allclose(said, expected, atol=1e-5)
        assert changed == (int(expected.argmax()) != e.prediction)


def test_an_atom_that_becomes_another_is_not_the_old_one() -> None:
    source = ModelAndData(NitroGroup(), "graph", [harmless()], class_names=tuple(CLASSES), atoms=ATOMS)
    found = cf2.explain(NitroGroup(), [harmless()], question="factual")
    context = molecule_context() | {"spec": found.context["spec"]}
    molecule = WhatIf(source, {"cf2": Explanations(tuple(found), context)})
    e = molecule.explanation(0, "cf2")
    said, changed = molecule.ask_edited(e, nothing(e), [("add", 6, 8), ("change", 7, 2, 1.0)])
    written = [(7, place, float(atom == "O")) for place, atom in enumerate(ATOMS)]
    assert METHYL[7] == "C"
    assert np.allclose(said, by_hand(NitroGroup(), harmless(), None, added=[(6, 8)], written=written), atol=1e-5)
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
    expected = by_hand(RedNeighbours(), red_graph(), 4, written=[(node, column, new)])
    assert np.allclose(made.probabilities_without, expected, atol=1e-5)
    assert int(expected.argmax()) == 1
    said, _ = asked.ask_edited(made, made.selected, [])
    assert np.allclose(said, expected, atol=1e-5)
    again = asked.smallest_edit(made, None, ("remove",), valid=False)  # also from what was found on the page
    assert asked.explanation(4, again).status == "impossible"


# -- the callbacks --------------------------------------------------------------------------------------------


def now(response: Any) -> str:
    assert response.status_code == 200, response.data
    return str(response.get_json()["response"]["answer"]["children"][0]["props"]["children"])


def values(method: str = "cf2", key: str = "4", **more: Any) -> dict[str, Any]:
    base = {"shown.data": {"key": key, "method": method}, "removed.data": [], "edits.data": [], "units.value": []}
    return base | {name.replace("__", "."): value for name, value in more.items()}


def test_an_edge_is_added_and_taken_back(app: Any, ask: Any) -> None:
    typed = values(tail__value=9, head__value=4)
    response = ask(app, OUTPUT, "add-edge.n_clicks", typed)
    assert now(response) == "The model now says busy (0.88): changed."
    found = response.get_json()
    assert found["response"]["edits"]["data"] == [["add", 4, 9]]
    assert found["response"]["edited"] == {"options": [{"label": "add 4–9", "value": 0}], "value": [0]}
    drawn = found["sideUpdate"]["cytoscape"]["elements"]
    assert [part["classes"] for part in drawn if part["data"].get("id") == "k4a4-9"] == ["added"]
    back = ask(app, OUTPUT, "edited.value", values(edits__data=[["add", 4, 9]], edited__value=[]))
    assert now(back) == "The model now says quiet (0.88): unchanged."
    assert back.get_json()["response"]["edits"]["data"] == []
    kept = ask(app, OUTPUT, "units.value", values(edits__data=[["add", 4, 9]], units__value=[0, 1, 2, 3]))
    assert now(kept) == "The model now says busy (0.88): changed."
    for cause in ("restore.n_clicks", "shown.data"):
        gone = ask(app, OUTPUT, cause, values(edits__data=[["add", 4, 9]]))
        assert gone.get_json()["response"]["edits"]["data"] == []


def test_a_feature_is_changed(app: Any, ask: Any) -> None:
    response = ask(app, OUTPUT, "change-feature.n_clicks", values(node__value=5, column__value=0, value__value=1))
    assert now(response) == "The model now says busy (0.88): changed."
    assert response.get_json()["response"]["edited"]["options"][0]["label"] == "node 5, feature 0: 0 → 1"
    labels = [part["data"].get("label") for part in response.get_json()["sideUpdate"]["cytoscape"]["elements"]]
    assert "5: feature 0 = 1" in labels


@pytest.mark.parametrize(
    ("cause", "typed", "said"),
    [
        ("add-edge", {"tail": 4, "head": None}, "Expected `node` to be a whole number from 0 to 35, but got None"),
        ("add-edge", {"tail": 4, "head": 36}, "Expected `node` to be a whole number from 0 to 35, but got 36"),
        ("add-edge", {"tail": 4, "head": 4}, "Expected two different nodes, but got 4 twice"),
        ("add-edge", {"tail": 4, "head": 3}, "Expected two nodes without an edge, but got 4 and 3, which have one"),
        ("change-feature", {"node": 4, "column": 2, "value": 1}, "Expected `feature` to be a whole number"),
        ("change-feature", {"node": 4, "column": 1.5, "value": 1}, "Expected `feature` to be a whole number"),
        ("change-feature", {"node": 4, "column": 1, "value": None}, "Expected `value` to be a number"),
    ],
)
def test_what_is_typed_wrong_is_said_and_changes_nothing(
    app: Any, ask: Any, cause: str, typed: dict[str, Any], said: str
) -> None:
    sent = values() | {f"{name}.value": value for name, value in typed.items()}
    response = ask(app, OUTPUT, f"{cause}.n_clicks", sent)
    assert response.get_json()["response"]["edit-note"]["children"].startswith(said)
    assert response.get_json()["response"]["edits"]["data"] == []


def test_too_many_edits_are_refused(app: Any, ask: Any) -> None:
    for output, cause in ((OUTPUT, "units.value"), ("download.data", "json.n_clicks")):
        response = ask(app, output, cause, values(edits__data=[["add", 4, 9]] * (MAX_EDITS + 1), json__n_clicks=1))
        assert (response.status_code, response.data) == (400, b"Expected at most 50 edits, but got 51.")


def test_of_two_changes_of_one_entry_the_later_one_counts() -> None:
    edits = [["change", 1, 0, 1.0], ["change", 1, 0, 2.0], ["add", 9, 4], ["add", 4, 9]]
    assert checked_edits(edits, red_graph(), False) == [("change", 1, 0, 2.0), ("add", 4, 9)]
    whole = red_graph()
    whole.x = whole.x.long()
    with pytest.raises(CF2Error, match="Expected features that are numbers"):
        checked_edits([["change", 1, 0, 1]], whole, False)


def test_two_clicks_on_nodes_are_the_ends_of_an_edge(app: Any, ask: Any) -> None:
    shown = values(cytoscape__tapNode={"data": {"node": 7}})
    first = ask(app, "tail.value", "cytoscape.tapNode", shown).get_json()["response"]
    assert (first["tail"], first["head"], first["node"]) == ({"value": 7}, {"value": None}, {"value": 7})
    second = ask(app, "tail.value", "cytoscape.tapNode", shown | {"tail.value": 3}).get_json()["response"]
    assert (second["head"], second["node"]) == ({"value": 7}, {"value": 7})
    assert "tail" not in second


def test_the_saved_state_holds_the_edits_and_the_answer(app: Any, ask: Any) -> None:
    response = ask(app, "download.data", "json.n_clicks", values(edits__data=[["add", 4, 9]], json__n_clicks=1))
    state = json.loads(response.get_json()["response"]["download"]["data"]["content"])
    assert state["edits"] == [["add", 4, 9]]
    assert np.allclose(state["after_edits"], by_hand(RedNeighbours(), red_graph(), 4, added=[(4, 9)]), atol=1e-5)


def test_the_smallest_edit_is_asked_for_on_the_page(app_of_its_own: Any, ask: Any) -> None:
    app = app_of_its_own
    asked = values(aim__value=1, sorts__value=["change"], valid__value=[])
    response = ask(app, "search-note.children", "find.n_clicks", asked)
    found = response.get_json()
    note = found["response"]["search-note"]["children"]
    assert note.startswith("node 4: Reached: after changing node ")
    assert note.endswith("the model says busy (0.88) instead of quiet.")
    name = "smallest edit to busy (change)"
    assert found["sideUpdate"]["made"]["data"] == {"key": "4", "method": name}
    made = ask(app, OUTPUT, "without.n_clicks", values(name))
    assert now(made) == "The model now says busy (0.88): changed."
    shown = ask(app, "cytoscape.elements", "method.value", {"key.data": "4", "method.value": name})
    assert shown.get_json()["response"]["without"]["children"] == "Make the edits"
    assert "changed" in " ".join(part["classes"] for part in shown.get_json()["response"]["cytoscape"]["elements"])


@pytest.mark.parametrize(
    "wrong", [{"aim.value": 2}, {"sorts.value": []}, {"sorts.value": ["fly"]}, {"valid.value": [1]}]
)
def test_a_search_for_nonsense_is_refused(app: Any, ask: Any, wrong: dict[str, Any]) -> None:
    asked = values(aim__value=1, sorts__value=["change"], valid__value=[]) | wrong
    response = ask(app, "search-note.children", "find.n_clicks", asked)
    assert response.get_json()["response"]["search-note"]["children"].startswith("Expected")


def test_a_counterfactual_of_a_run_is_shown_with_and_without_its_model(red_source: ModelAndData, ask: Any) -> None:
    options: dict[str, Any] = {"question": "counterfactual", "edits": ("add",), "candidates": [(4, 9), (4, 10)]}
    found = cf2.explain(RedNeighbours(), red_graph(), nodes=[4], **options)
    assert found[0].edits == [("add", (4, 9))]
    live = build_app(red_source, {"cf2": found})
    first = ask(live, OUTPUT, "shown.data", values()).get_json()["response"]
    labels = {box["label"]: box["value"] for box in first["units"]["options"]}
    assert labels == {"add 4–9 ●": 0, "add 4–10": 1}
    assert first["units"]["value"] == []  # neither is in the graph
    made = ask(live, OUTPUT, "units.value", values(units__value=[0]))
    assert now(made) == "The model now says busy (0.88): changed."
    assert made.get_json()["response"]["removed"]["data"] == [0]
    tapped = ask(live, OUTPUT, "cytoscape.tapEdge", values(cytoscape__tapEdge={"data": {"unit": 0}}))
    assert now(tapped) == "The model now says busy (0.88): changed."
    assert Spec.from_json(found.context["spec"]).edits == ("add",)
    stored = build_app(None, {"cf2": found})
    response = ask(stored, OUTPUT, "shown.data", values())
    assert now(response) == "The model said quiet (0.88)." or "class 0" in now(response)
    assert ask(stored, OUTPUT, "add-edge.n_clicks", values(tail__value=4, head__value=9)).status_code == 200


def test_an_edge_of_a_directed_graph_is_added_one_way() -> None:
    for seed in range(4):
        data = random_graph(10, 16, directed=True, seed=seed)
        model = NodeNet("sage", classes=3, seed=seed, layers=2).eval()
        (e,) = cf2.explain(model, data, nodes=[0], directed=True)
        context = {"spec": Spec(directed=True).to_json()}
        asked = WhatIf(ModelAndData(model, "node", [data]), {"cf2": Explanations((e,), context)})
        known = {tuple(pair) for pair in data.edge_index.t().tolist()}
        tail = next(node for node in range(9, 0, -1) if (node, 0) not in known)
        (edit,) = checked_edits([["add", tail, 0]], data, True)
        said, _ = asked.ask_edited(e, nothing(e), [edit])
        with torch.no_grad():
            edge_index = torch.cat([data.edge_index, torch.tensor([[tail], [0]])], 1)
            expected = model(data.x, edge_index).softmax(1)[0].numpy()
        assert np.allclose(said, expected, atol=1e-5)
