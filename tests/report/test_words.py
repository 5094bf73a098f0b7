"""Verdicts in words say what the model said, what was and was not verified, and what edits do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cf2
from cf2.report.words import (
    count_units,
    describe_edits,
    describe_prediction,
    describe_target,
    describe_unit,
    list_edits,
    verdict,
    verdict_sentences,
)
from cf2.results.explanation import STATUSES, Explanation, UnitTable
from cf2.results.explanations import Explanations
from report.edited_toys import edited, harmless, nitrated, reddened
from report.explained_toys import explained, first_edge, red_graph
from toys import NodeNet, random_graph


def test_a_passing_set_is_called_sufficient_necessary_and_minimal(good: Explanation) -> None:
    text = verdict(good)
    assert good.size == 2
    assert "Sufficient: with only these 2 edges the model still predicts busy (0.88)." in text
    assert "Necessary: without them the model predicts quiet (>0.99)." in text
    assert "Minimal: no single part of it can be left out." in text
    assert "class 1" in verdict(replace(good, context={}))
    proved = verdict(replace(good, optimal=True))
    assert "no smaller set passes" in proved
    assert "Minimal" not in proved
    assert describe_target(replace(good, key=(3, 17), task="pair")) == "pair (3, 17)"


def test_a_failing_set_says_what_the_model_says_instead(bad: Explanation) -> None:
    text = verdict(bad)
    assert "Not sufficient: with only this 1 edge the model predicts quiet" in text
    assert "instead of busy" in text
    assert "guess does not search for a passing set" in text
    assert verdict_sentences(bad)[0].tone == "bad"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("impossible", "proved that no set passes both tests"),
        ("not found", "within the budget; this is the best set found. it has no edges."),
        ("empty", "Empty: it has no edges."),
        ("refused", "Refused: it has no edges."),
    ],
)
def test_every_status_has_its_words(bad: Explanation, status: str, words: str) -> None:
    assert words in verdict(replace(bad, status=status, note="it has no edges."))


def test_every_status_has_one_sentence_that_all_places_use(good: Explanation) -> None:
    page = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()
    for status, meaning in STATUSES.items():
        assert f"| `{status}` | {meaning} |" in page
    for status in set(STATUSES) - {"found", "impossible", "not found"}:
        e = replace(good, status=status, sufficient=False, method="")
        start = f"{status.capitalize()}: {STATUSES[status][0].lower()}{STATUSES[status][1:]}"
        assert start in verdict(e), status
        assert repr(e).endswith(f"{status}>")
        assert f'title="{STATUSES[status]}">{status}</td>' in Explanations((e,))._repr_html_().replace("&#39;", "'")


def test_an_empty_set_reads_as_a_sentence(bad: Explanation) -> None:
    nothing = replace(bad, selected=np.zeros_like(bad.selected), necessary=False)
    assert "ecessary" not in verdict(nothing)
    assert count_units(nothing) == "0 edges"


def test_the_prediction_says_whether_it_is_right(good: Explanation) -> None:
    assert describe_prediction(replace(good, label=1)).endswith("for node 3, which is correct.")
    assert describe_prediction(replace(good, label=0)).endswith("the true class is quiet.")
    assert describe_prediction(replace(good, label=None)).endswith("for node 3.")


@pytest.mark.parametrize("units", [("edges", "features"), ("features", "edges")])
def test_features_are_counted_apart_from_edges_in_whatever_order_they_come(units: tuple[str, str]) -> None:
    e = explained(first_edge, "x", units=units)[0]
    chosen = e.selected.copy()
    chosen[e.units.where("features")[-2:]] = True
    text = verdict(replace(e, selected=chosen))
    parts = {"edges": "1 edge", "features": "2 feature entries"}
    assert f"this set ({parts[units[0]]} and {parts[units[1]]})" in text


def test_every_kind_of_unit_and_one_that_is_new_has_its_words(good: Explanation) -> None:
    names = ("edges", "nodes", "node_features", "columns", "added_edges")
    ids = np.array([[3, 6], [4, -1], [5, -1], [-1, 2], [7, 8]])
    every = UnitTable(names, np.arange(5, dtype=np.int8), ids)
    e = replace(good, units=every, scores=np.ones(5), selected=np.ones(5, dtype=bool))
    texts = [describe_unit(e, row) for row in range(5)]
    assert texts == ["3–6", "node 4", "features of node 5", "feature 2", "7–8"]
    assert describe_unit(replace(e, directed=True), 0) == "3→6"
    assert count_units(e) == "1 edge, 1 node, 1 feature row, 1 feature column and 1 added edge"


def test_edits_are_said_with_what_the_model_says_before_and_after() -> None:
    text = verdict(nitrated())
    assert text == (
        "Changed: after removing 2–3, adding 6–8 and changing atom 7: C → O "
        "the model predicts mutagen (0.88) instead of non-mutagen."
    )
    assert "node 7: feature 0 → feature 2" in verdict(replace(nitrated(), context={}))
    assert "node 5, feature 1: 1 → 0.25" in verdict(reddened())


def test_a_class_that_was_asked_for_is_reached_or_not() -> None:
    e = replace(nitrated(), target=0)
    assert verdict(e).startswith("Reached: after removing 2–3,")
    failed = replace(edited(harmless(), add=[(6, 8)], target=0), minimal=None)
    text = verdict(failed)
    assert "Not reached: after adding 6–8 the model still predicts non-mutagen (0.88), not mutagen." in text
    assert "Not found: no set of edits that reaches that class was found within the budget" in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("impossible", "Impossible: proved that no set of such edits changes the prediction, among sets that take new"),
        ("not found", "Not found: no set of edits that changes the prediction was found within the budget, among sets"),
    ],
)
def test_what_cannot_be_changed_is_said(status: str, words: str) -> None:
    e = edited(red_graph(), 4, status=status, note="Why.")
    text = verdict(e)
    assert text.startswith("Not changed: with nothing edited the model still predicts quiet (0.88).")
    assert words in text


def test_edits_are_never_called_sufficient_but_removals_are_as_before(good: Explanation) -> None:
    heads = [s.head for s in verdict_sentences(replace(nitrated(), sufficient=True, minimal=True))]
    assert heads == ["Changed", "Minimal"]
    assert "no fewer edits do this" in verdict(replace(nitrated(), optimal=True))
    removal = replace(good, question="counterfactual")
    assert [s.head for s in verdict_sentences(removal)][:2] == ["Sufficient", "Necessary"]


def test_many_edits_are_counted_and_listed() -> None:
    pairs = [(0, other) for other in range(5, 15)]
    e = edited(red_graph(), 4, add=pairs)
    assert describe_edits(e) == "adding 10 edges"
    assert list_edits(e) == "add 0–5, 0–6, 0–7, 0–8, 0–9, 0–10 and 4 more"
    assert list_edits(nitrated()) == "remove 2–3; add 6–8; change atom 7: C → O"
    assert describe_edits(edited(red_graph(), 4)) == "no edit"


def test_an_answer_without_the_last_word_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = random_graph(10, 14, seed=3), NodeNet("gin", seed=1, layers=2)
    (e,) = cf2.explain(model, data, nodes=[4])
    assert e.plain
    assert "Checked" not in e.summary()
    monkeypatch.setattr("cf2.models.receptive_field.MAX_PLAIN_FLOATS", 0)
    (e,) = cf2.explain(model, data, nodes=[4])
    assert e.plain is False
    assert "Checked: on the receptive field only" in e.summary()
