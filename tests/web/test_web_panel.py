"""The page's callbacks: what a browser gets for a click."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app, canvas, panel
from report.explained_toys import explained, nitro_bonds, red_edges


def test_a_button_answers_with_the_models_own_words(app: Any, ask: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][1]
    values = {"shown.data": {"key": str(e.key), "method": "cf2"}, "removed.data": []}
    response = ask(app, "removed.data", "without.n_clicks", values)
    assert response.status_code == 200
    body = response.get_json()["response"]
    assert body["removed"]["data"] == np.flatnonzero(e.selected).tolist()
    now = body["answer"]["children"][0]["props"]
    assert ("unchanged" in now["className"]) is not e.necessary
    assert [float(p) for p in now["data-probabilities"].split(",")] == pytest.approx(e.probabilities_without, abs=1e-5)


def test_clearing_a_box_removes_what_it_stands_for_and_keeps_the_rest(
    app: Any, ask: Any, found: dict[str, Explanations]
) -> None:
    e = found["cf2"][1]
    values = {"shown.data": {"key": str(e.key), "method": "cf2"}, "removed.data": [0]}
    units = list(range(e.num_units))
    response = ask(app, "removed.data", "units.value", values | {"units.value": units[2:]})
    assert response.get_json()["response"]["removed"]["data"] == [0, 1]
    response = ask(app, "removed.data", "units.value", values | {"units.value": units})
    assert response.get_json()["response"]["removed"]["data"] == []


def test_the_state_that_is_saved_repeats_the_answer(app: Any, ask: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][1]
    chosen = np.flatnonzero(e.selected).tolist()
    values = {"shown.data": {"key": str(e.key), "method": "cf2"}, "removed.data": chosen, "json.n_clicks": 1}
    response = ask(app, "download.data", "json.n_clicks", values)
    state = json.loads(response.get_json()["response"]["download"]["data"]["content"])
    assert state["removed_edges"] == e.chosen("edges").tolist()
    assert state["probabilities"]["left"] == pytest.approx(e.probabilities_without, abs=1e-5)
    assert state["removed"] == {"sufficient": e.sufficient, "necessary": e.necessary}


def test_pairs_are_picked_and_drawn_by_both_ids(
    ask: Any, found: dict[str, Explanations], red_source: ModelAndData
) -> None:
    pairs = Explanations(tuple(replace(e, key=(e.key, 1), task="pair") for e in found["cf2"]), found["cf2"].context)
    app = build_app(red_source, {"cf2": pairs})
    response = ask(app, "cytoscape.elements", "key.data", {"key.data": "4-1", "method.value": "cf2"})
    body = response.get_json()["response"]
    assert "pair (4, 1)" in body["prediction"]["children"]
    assert sum("target" in part["classes"] for part in body["cytoscape"]["elements"]) == 2
    listing = {"show.value": "all", "sort.value": "key", "method.value": "cf2", "page.data": 0, "search.value": "4, 1"}
    response = ask(app, "list.children", "", listing)
    (entry,) = response.get_json()["response"]["list"]["children"]
    assert entry["props"]["children"]["props"]["data-pick"] == "4-1"


def test_units_of_every_kind_have_a_checkbox_and_removed_nodes_fade(found: dict[str, Explanations]) -> None:
    names = ("columns", "nodes", "edges")
    units = UnitTable(names, np.array([0, 1, 1, 2], dtype=np.int8), np.array([[-1, 7], [3, -1], [4, -1], [3, 4]]))
    chosen = np.array([False, False, True, False])
    e = replace(found["cf2"][3], units=units, scores=np.arange(4.0), selected=chosen)
    assert [box["label"] for box in panel.unit_options(e, panel.listed_units(e))] == [
        "node 4 ●",
        "3–4",
        "node 3",
        "feature 7",
    ]
    assert panel.listed_units(e, (4,)).tolist() == [2, 3]
    *_, faded, covered = canvas.stylesheet(e, np.array([True, False, True, False]))
    assert faded["selector"].split(", ") == ["#k3u0", "#k3u2", "#k3n4"]
    assert ".atom#k3n4" in covered["selector"].split(", ")


def test_every_kind_gets_the_same_room_in_the_list_of_units(found: dict[str, Explanations]) -> None:
    many = panel.MAX_LISTED_UNITS + 10
    kind = np.repeat(np.array([0, 1], dtype=np.int8), [many, 3])
    ids = np.stack([np.arange(many + 3), np.zeros(many + 3, dtype=np.int64)], 1)
    units = UnitTable(("features", "edges"), kind, ids)
    chosen = np.arange(many + 3) == many
    e = replace(found["cf2"][3], units=units, scores=-np.arange(many + 3.0), selected=chosen)
    assert panel.listed_units(e).tolist() == [many, *range(panel.MAX_LISTED_UNITS // 2), many + 1, many + 2]


def test_a_graph_that_is_explained_by_features_alone_has_its_edges(ask: Any, red_source: ModelAndData) -> None:
    app = build_app(red_source, {"cf2": explained(red_edges, "cf2", [3], units=("features",))})
    response = ask(app, "cytoscape.elements", "key.data", {"key.data": "3", "method.value": "cf2"})
    drawn = response.get_json()["response"]["cytoscape"]["elements"]
    assert sum("source" in part["data"] for part in drawn) == 4


def test_the_comparison_of_a_molecule_is_drawn(ask: Any, molecule_source: ModelAndData) -> None:
    app = build_app(molecule_source, {"cf2": explained(nitro_bonds, "cf2")})
    response = ask(app, "comparison.children", "", {"key.data": "0"})
    assert len(response.get_json()["response"]["comparison"]["children"]) == 1
