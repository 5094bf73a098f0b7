"""Verdicts in words say what the model said, and what was and was not verified."""

from dataclasses import replace

import numpy as np
import pytest

from browser_toys import explained, first_edge, molecule_subject, red_edges, red_subject
from cf2.explanation import Explanation
from cf2.report.words import prediction, sentences, verdict

NAMES = ("quiet", "busy")


@pytest.fixture(scope="module")
def good() -> Explanation:
    return explained(red_subject(), [3], red_edges, "cf2", minimal=True)[0]


@pytest.fixture(scope="module")
def bad() -> Explanation:
    return explained(red_subject(), [3], first_edge, "guess")[0]


def test_a_passing_set_is_called_sufficient_necessary_and_minimal(good: Explanation) -> None:
    text = verdict(good, NAMES)
    assert good.size == 2
    assert "Sufficient: with only these 2 edges the model still says busy (0.88)." in text
    assert "Necessary: without them the model says quiet (>0.99)." in text
    assert "Minimal: no single part of it can be left out." in text


def test_a_failing_set_says_what_the_model_says_instead(bad: Explanation) -> None:
    text = verdict(bad, NAMES)
    assert "Not sufficient: with only this 1 edge the model says quiet" in text
    assert "instead of busy" in text
    assert "guess does not look for a set that passes" in text
    assert sentences(bad, NAMES)[0].tone == "bad"


def test_without_names_classes_are_numbered(good: Explanation) -> None:
    assert good.summary() == verdict(good)
    assert "class 1" in verdict(good)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("impossible", "proved that no set passes both tests"),
        ("not found", "within the budget"),
        ("empty", "Nothing to mask: it has no edges."),
    ],
)
def test_every_status_has_its_words(bad: Explanation, status: str, words: str) -> None:
    assert words in verdict(replace(bad, status=status, note="it has no edges."))


def test_an_empty_set_reads_as_a_sentence(bad: Explanation) -> None:
    nothing = replace(bad, selected=np.zeros_like(bad.selected), necessary=False)
    assert "Not necessary: with nothing removed the model still says" in verdict(nothing, NAMES)


def test_a_proof_of_the_smallest_outranks_minimal(good: Explanation) -> None:
    text = verdict(replace(good, optimal=True))
    assert "no smaller set passes" in text
    assert "Minimal" not in text


def test_the_prediction_says_whether_it_is_right(good: Explanation) -> None:
    assert prediction(replace(good, label=1), NAMES).endswith("of node 3, which is right.")
    assert prediction(replace(good, label=0), NAMES).endswith("the true class is quiet.")
    assert prediction(replace(good, label=None), NAMES).endswith("of node 3.")


def test_features_are_counted_apart_from_edges() -> None:
    e = explained(molecule_subject(), [0], first_edge, "x", features=True)[0]
    chosen = e.selected.copy()
    chosen[-2:] = True
    assert "these units: 1 edge and 2 feature entries" in verdict(replace(e, selected=chosen))
