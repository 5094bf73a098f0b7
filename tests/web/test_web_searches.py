"""Searches: one at a time, a time limit, a way to cancel; and the page answers meanwhile."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.searches import Searches
from cf2.web.whatif import WhatIf
from report.explained_toys import RedNeighbours, explained, first_edge, red_graph
from web.browser import PATIENCE
from web.holding import Holding

ASKED = {"what": "again", "key": "3", "method": "guess", "alpha": 0.5, "lambda": None}


@contextmanager
def running(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Work in a thread of its own; on leaving, it has ended, and the list holds what it returned or raised."""
    done: list[Any] = []

    def call() -> None:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    yield done
    thread.join()


# -- one search at a time -------------------------------------------------------------------------------------


def test_one_search_is_done_at_a_time_and_can_be_cancelled_or_closed() -> None:
    searches, began = Searches(), threading.Event()

    def forever(go_on: Callable[[], None]) -> None:
        while True:
            go_on()
            began.set()
            threading.Event().wait(0.001)

    assert searches.progress() == ""
    for end in (searches.cancel, searches.close):
        with running(lambda: searches.run(forever)) as first:
            assert began.wait(PATIENCE)
            with pytest.raises(CF2Error, match=r"Busy: another search is running\. Try again"):
                searches.run(lambda go_on: None)
            assert searches.progress().startswith("Explaining: ")
            end()
        assert [str(error) for error in first] == ["Cancelled."]
        began.clear()
    with pytest.raises(CF2Error, match="Cancelled"):
        searches.run(lambda go_on: go_on())


def test_what_takes_too_long_is_stopped_and_the_next_one_has_its_own_time() -> None:
    searches = Searches(0.05)

    def slow(go_on: Callable[[], None]) -> None:
        while True:
            go_on()

    with pytest.raises(CF2Error, match=r"Stopped after 0\.05 seconds, the limit"):
        searches.run(slow)
    searches.seconds = PATIENCE
    assert searches.run(lambda go_on: go_on() or 7) == 7


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "60", None])
def test_a_time_limit_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(CF2Error, match="time limit of more than 0 seconds"):
        Searches(seconds)


# -- the model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_model_is_asked_while_a_copy_is_searched_with(holding: ModelAndData, cancelled: bool) -> None:
    given = explained(first_edge, "guess", [3, 6])
    whatif, searches, e = WhatIf(holding, {"guess": given}), Searches(), given[0]
    with running(lambda: searches.run(lambda go_on: whatif.again(e, 0.5, None, go_on))) as made:
        assert Holding.held.wait(PATIENCE)
        answer = whatif.ask(given[1], given[1].selected)
        assert np.allclose(answer.left, given[1].probabilities_without, atol=1e-5)
        assert made == []
        hook = holding.model.register_forward_hook(lambda *_: pytest.fail("the model itself was run"))
        if cancelled:
            searches.cancel()
        Holding.let_go.set()
    hook.remove()
    if not cancelled:
        assert whatif.explanation(3, made[0]).status == "found"
        return
    assert [str(error) for error in made] == ["Cancelled."]
    assert Holding.runs == 1  # it ended before the next run of the model
    assert list(whatif.explanations(3)) == ["guess"]
    assert whatif.again(e, 0.5, None) in whatif.explanations(3)


class Uncopied(RedNeighbours):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copies")


def test_a_model_that_cannot_be_copied_is_refused_in_words() -> None:
    source = ModelAndData(model=Uncopied(), level="node", graphs=[red_graph()])
    given = explained(first_edge, "guess", [3])
    with pytest.raises(CF2Error, match=r"copy\.deepcopy can copy.*RuntimeError: no copies"):
        WhatIf(source, {"guess": given}).again(given[0], 0.5, None)


# -- the page -------------------------------------------------------------------------------------------------


@pytest.fixture
def client(red_source: ModelAndData) -> Any:
    return build_app(red_source, {"guess": explained(first_edge, "guess", [3, 6])}).test_client()


def test_the_page_says_what_was_made_and_shows_it(client: Any) -> None:
    made = client.post("/search", json=ASKED).get_json()
    assert made["note"].startswith("node 3: 2 edges in ")
    assert made["method"] == "cf2 (α = 0.5, λ = auto)"
    for key, methods in (("3", ["guess", made["method"]]), ("6", ["guess"])):
        shown = client.post("/state", json={"key": key, "method": made["method"]}).get_json()
        assert (shown["methods"], shown["method"]) == (methods, methods[-1])


@pytest.mark.parametrize("alpha", [None, "x", 7, -1, 1e300, True])
def test_the_page_says_which_numbers_it_takes(client: Any, alpha: Any) -> None:
    response = client.post("/search", json=ASKED | {"alpha": alpha})
    assert (response.status_code, response.text.startswith("Expected ")) == (400, True)


def test_a_failure_is_logged_and_not_shown(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*given: Any) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(WhatIf, "again", fails)
    response = client.post("/search", json=ASKED)
    assert (response.status_code, response.text) == (500, "The page failed to answer; its log says why.")
    assert "ZeroDivisionError" in caplog.text
