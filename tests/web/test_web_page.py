"""What the page's server answers: what is shown of a state, the list, files; and what it refuses."""

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report import live
from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.whatif import State, WhatIf
from report.explained_toys import RedNeighbours, by_hand, explained, nitro_bonds, red_edges, red_graph
from toys import tried


def shown(client: Any, key: Any, **given: Any) -> Any:
    response = client.post("/state", json={"key": str(key), "method": "cf2", **given})
    assert response.status_code == 200, response.text
    return response.get_json()


def test_the_state_that_is_saved_repeats_the_answer(client: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][4]
    state = shown(client, e.key, do="without")
    assert state["removed"] == np.flatnonzero(e.selected).tolist()
    assert ("cf2-changed" in state["answer"]) is e.necessary
    response = client.get(f"/save{state['address']}&kind=json")
    assert f'filename="node-{e.key}.json"' in response.headers["Content-Disposition"]
    saved = json.loads(response.text)
    assert saved["removed_edges"] == e.chosen("edges").tolist()
    assert saved["probabilities"]["left"] == pytest.approx(e.probabilities_without, abs=1e-5)
    assert saved["removed"] == {"sufficient": e.sufficient, "necessary": e.necessary}
    address = shown(client, e.key, do="only", edits=[["add", 4, 9]])["address"]  # begins anew
    assert json.loads(client.get(f"/save{address}&kind=json").text)["edits"] == []
    saved = json.loads(client.get(f"/save?key={e.key}&edits=add~4~9&kind=json").text)
    assert saved["edits"] == [["add", 4, 9]]
    assert saved["after_edits"] == pytest.approx(by_hand(RedNeighbours(), red_graph(), e.key, add=[(4, 9)]), abs=1e-5)
    assert 'class="cf2-added"' in client.get(f"/save?key={e.key}&edits=add~4~9&kind=svg").text


def test_pairs_are_picked_and_drawn_by_both_ids(found: dict[str, Explanations], red_source: ModelAndData) -> None:
    pairs = Explanations(tuple(replace(e, key=(e.key, 1), task="pair") for e in found["cf2"]), found["cf2"].context)
    client = build_app(None, {"cf2": pairs}).test_client()
    state = shown(client, "4-1")
    assert "pair (4, 1)" in state["prediction"]
    assert state["picture"].count('class="cf2-target"') == 2
    (entry,) = [row for row in client.get("/listing").get_json() if row["id"] == "4-1"]
    assert (entry["key"], entry["name"]) == ([4, 1], "pair (4, 1)")


def test_units_of_every_kind_have_a_checkbox_and_nodes_can_be_pressed(found: dict[str, Explanations]) -> None:
    names = ("columns", "nodes", "edges")
    units = UnitTable(names, np.array([0, 1, 1, 2], dtype=np.int8), np.array([[-1, 7], [3, -1], [4, -1], [3, 4]]))
    chosen = np.array([False, False, True, False])
    e = replace(found["cf2"][3], units=units, scores=np.arange(4.0), selected=chosen)
    boxes = live.units_html(e, live.listed_units(e), np.array([False, False, True, False]))
    assert [line.split("> ")[1].partition("<")[0] for line in str(boxes).splitlines()] == [
        "node 4 ●",
        "3–4",
        "node 3",
        "feature 7",
    ]
    assert boxes.count("checked") == 3
    assert live.listed_units(e, (4,)).tolist() == [2, 3]
    client = build_app(None, {"cf2": Explanations((e,))}).test_client()
    assert 'data-node="4" data-unit="2"' in shown(client, e.key)["picture"]


def test_every_kind_gets_the_same_room_in_the_list_of_units(found: dict[str, Explanations]) -> None:
    many = live.MAX_LISTED_UNITS + 10
    kind = np.repeat(np.array([0, 1], dtype=np.int8), [many, 3])
    ids = np.stack([np.arange(many + 3), np.zeros(many + 3, dtype=np.int64)], 1)
    units = UnitTable(("features", "edges"), kind, ids)
    chosen = np.arange(many + 3) == many
    e = replace(found["cf2"][3], units=units, scores=-np.arange(many + 3.0), selected=chosen)
    assert live.listed_units(e).tolist() == [many, *range(live.MAX_LISTED_UNITS // 2), many + 1, many + 2]


def test_a_graph_that_is_explained_by_features_alone_has_its_edges(red_source: ModelAndData) -> None:
    app = build_app(red_source, {"cf2": explained(red_edges, "cf2", [3], units=("features",))})
    assert shown(app.test_client(), 3)["picture"].count("M") >= 4


def test_the_methods_side_by_side_are_drawn(client: Any, molecule_source: ModelAndData) -> None:
    assert client.get("/comparison?key=3").text.count('class="cf2-graph"') == 2
    app = build_app(molecule_source, {"cf2": explained(nitro_bonds, "cf2")})
    assert app.test_client().get("/comparison?key=0").text.count('class="cf2-graph"') == 1


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"key": [3]}', b"\xff\xfe", b"[" * 100_000])
def test_a_malformed_request_is_refused_without_a_traceback(client: Any, body: bytes) -> None:
    response = client.post("/state", data=body, content_type="application/json")
    assert response.status_code >= 400
    assert b"Traceback" not in response.data
    assert len(response.data) < 400


@pytest.mark.parametrize("key", [10**9, "99", None, "x" * 100_000, "\ud800", "\x00"])
def test_an_instance_that_is_not_there_is_refused_briefly(client: Any, key: Any) -> None:
    response = client.post("/state", json={"key": key, "method": "cf2"})
    assert (response.status_code, response.mimetype) == (400, "text/plain")
    assert len(response.data) < 400


def test_the_page_forbids_code_from_elsewhere(client: Any) -> None:
    policies = []
    for _ in range(2):
        response = client.get("/")
        policies.append(dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; ")))
        assert policies[-1]["script-src"].removeprefix("'nonce-").rstrip("'").encode() in response.data
        assert b"https://" not in response.data
    assert policies[0]["default-src"] == policies[0]["base-uri"] == policies[0]["frame-ancestors"] == "'none'"
    assert policies[0]["connect-src"] == "'self'"
    assert policies[0]["script-src"] != policies[1]["script-src"], "each answer has its own number"


# -- addresses ------------------------------------------------------------------------------------------------


@pytest.fixture
def whatif(red_source: ModelAndData, found: dict[str, Explanations]) -> WhatIf:
    return WhatIf(red_source, found, "first")


def test_an_address_says_what_it_was_made_of(whatif: WhatIf) -> None:
    e = whatif.explanation(3, "guess")
    edits: list[Any] = [("add", 3, 12), ("change", 4, 1, 0.5)]
    state = whatif.state_at(whatif.address_of(State(e, "guess", e.selected, edits)))
    assert state is not None
    assert (state.e.key, state.method, state.edits) == (3, "guess", edits)
    assert np.array_equal(state.removed, e.selected)
    assert whatif.state_at("") is whatif.state_at("?run=first") is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?key=999", "Expected an instance of this run"),
        ("?key=3&method=nobody", "Expected the method of an explanation"),
        ("?key=3&removed=0-99", "Expected units from 0 to 3"),
        ("?key=3&edits=fly~3~9", "Expected an edit that adds or changes"),
        ("?key=3&edits=change~3~0~nan", "Expected `value` to be a number"),
        ("?key=3&edits=add~3~x", "Expected `node` to be a whole number from 0 to 35"),
        ("?run=second&key=3", "Expected an address of the run 'first'"),
    ],
)
def test_an_address_that_means_nothing_here_is_refused_in_words(whatif: WhatIf, query: str, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        whatif.state_at(query)


VALUES: list[Any] = [None, True, -1, 0, 3, 10**30, 1.5, "", "3", "x", "4-1", "é" * 99, [], [0], [0, "x"], [[0, 1]], {}]
BODIES = ["", "{", "[]", "[" * 9999, "\0", "3", "null", "{}"]
PARTS: dict[str, list[Any]] = {
    "key": ["3", "4", "5"],
    "method": ["cf2", "guess"],
    "do": ["without", "only", "restore"],
    "removed": [[], [0], [0, 1]],
    "edits": [[], [["add", 0, 1]], [["change", 0, 1, 1.0]], [["add"]], [["x", {}]]],
    "near": [[], [3]],
    "address": ["?key=3&removed=0", "?key=3&edits=add~0~1_x", "?key=é&removed=9~", "?run=x&key=3"],
    "what": ["find", "again", "another", "edit", "stop"],
    "alpha": [0.5],
    "lambda": [500],
    "sorts": [["remove"]],
    "aim": [0, 1],
    "valid": [False],
    "kind": ["json", "svg"],
}


@tried(few=150, many=2000)
def test_any_request_is_answered_or_refused_in_words(app_of_its_own: Any, seeds: range) -> None:
    client, codes = app_of_its_own.test_client(), Counter[int]()
    for seed in seeds:
        draw = random.Random(seed)
        given = {name: draw.choice(values) for name, values in PARTS.items() if draw.random() < 0.8}
        given |= {draw.choice(list(PARTS)): draw.choice(VALUES) for _ in range(draw.choice([0, 1, 1, 2]))}
        place = draw.choice(["/state", "/state", "/state", "/search", "/save", "/comparison", "/listing", "/progress"])
        if place in ("/state", "/search"):
            body = json.dumps(given) if draw.random() < 0.9 else draw.choice(BODIES)
            response = client.post(place, data=body, content_type="application/json")
        else:
            response = client.get(place, query_string={name: str(value) for name, value in given.items()})
        codes[response.status_code] += 1
        assert response.status_code in (200, 400, 404, 415), (seed, place, given, response.text)
        client.post("/cancel")
    assert min(codes[200], codes[400]) > len(seeds) / 10, codes
