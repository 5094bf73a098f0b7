"""Explaining again: one at a time, a bounded queue, a time limit, a way to cancel; and the page answers meanwhile."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.whatif import WAITING, Queue, Stopped, WhatIf
from report.explained_toys import RedNeighbours, explained, first_edge, red_graph
from web.browser import PATIENCE
from web.holding import Holding

pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")

SHOWN = {"key": "3", "method": "guess"}


@contextmanager
def started(*works: Callable[[], Any]) -> Iterator[list[Any]]:
    """Each in a thread of its own; on leaving, all have ended. The list holds what they returned or raised."""
    done: list[Any] = []

    def work(one: Callable[[], Any]) -> None:
        try:
            done.append(one())
        except Exception as error:
            done.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in works]
    for thread in threads:
        thread.start()
    yield done
    for thread in threads:
        thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    pause, left = threading.Event(), int(PATIENCE / 0.01)
    while not condition():
        left -= 1
        assert left, "waited in vain"
        pause.wait(0.01)


# -- the queue ------------------------------------------------------------------------------------------------


def test_one_is_done_at_a_time_in_order_and_the_rest_are_told_that_it_is_busy() -> None:
    queue, go, alone = Queue(), threading.Event(), threading.Lock()
    order: list[int] = []

    def work(number: int) -> None:
        assert alone.acquire(blocking=False)
        assert go.wait(PATIENCE)
        order.append(number)
        alone.release()

    def enter(number: int) -> Callable[[], Any]:
        return lambda: queue.run("me", lambda go_on: work(number))

    with started(enter(0)):
        for number in range(1, WAITING + 1):
            wait_for(lambda number=number: len(queue) == number)
            threading.Thread(target=enter(number)).start()
        wait_for(lambda: len(queue) == WAITING + 1)
        with pytest.raises(Stopped, match=r"Busy: one is being explained and 3 wait\. Try again"):
            queue.run("other", lambda go_on: None)
        go.set()
    wait_for(lambda: len(queue) == 0)
    assert order == list(range(WAITING + 1))
    assert queue.run("other", lambda go_on: 7) == 7


def forever(go_on: Callable[[], None]) -> None:
    pause = threading.Event()
    while True:
        go_on()
        pause.wait(0.001)


def test_what_takes_too_long_is_stopped_and_the_next_one_has_its_own_time() -> None:
    queue = Queue(0.05)
    with pytest.raises(Stopped, match=r"Stopped after 0\.05 seconds, the limit"):
        queue.run("me", forever)
    queue.seconds = PATIENCE
    assert queue.run("me", lambda go_on: go_on()) is None
    assert len(queue) == 0


def test_what_runs_and_what_waits_can_be_cancelled_by_who_asked_for_it() -> None:
    queue = Queue()
    with started(lambda: queue.run("a", forever)) as first:
        wait_for(lambda: len(queue) == 1)
        with started(lambda: queue.run("b", forever)) as second:
            wait_for(lambda: len(queue) == 2)
            assert queue.cancel("c") == 0
            assert queue.cancel("b") == 1
        assert [str(error) for error in second] == ["Cancelled."]
        assert (first, len(queue)) == ([], 1)
        assert queue.cancel("a") == 1
    assert [str(error) for error in first] == ["Cancelled."]
    assert len(queue) == 0


def test_when_the_page_is_closed_everything_ends_and_nothing_begins() -> None:
    queue, before = Queue(), set(threading.enumerate())
    with started(lambda: queue.run("a", forever), lambda: queue.run("b", forever)) as both:
        wait_for(lambda: len(queue) == 2)
        queue.close()
    assert [str(error) for error in both] == ["Cancelled."] * 2
    with pytest.raises(Stopped, match="closed"):
        queue.run("a", lambda go_on: None)
    wait_for(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "60", None])
def test_a_time_limit_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(CF2Error, match="time limit of more than 0 seconds"):
        Queue(seconds)


# -- the model ------------------------------------------------------------------------------------------------


def test_the_model_is_asked_while_it_is_explained_again(holding: ModelAndData) -> None:
    given = explained(first_edge, "guess", [3, 6])
    asked, queue, e = WhatIf(holding, {"guess": given}), Queue(), given[0]
    with started(lambda: queue.run("me", lambda go_on: asked.again(e, 0.5, None, go_on))) as made:
        assert Holding.held.wait(PATIENCE)
        answer = asked.ask(given[1], given[1].selected)
        assert np.allclose(answer.left, given[1].probabilities_without, atol=1e-5)
        assert made == []
        hook = holding.model.register_forward_hook(lambda *_: pytest.fail("the model itself was run"))
        Holding.let_go.set()
    hook.remove()
    assert asked.explanation(3, made[0]).status == "found"


def test_an_explanation_that_is_cancelled_ends_before_the_next_run_of_the_model(holding: ModelAndData) -> None:
    given = explained(first_edge, "guess", [3])
    asked, queue = WhatIf(holding, {"guess": given}), Queue()
    with started(lambda: queue.run("me", lambda go_on: asked.again(given[0], 0.5, None, go_on))) as made:
        assert Holding.held.wait(PATIENCE)
        queue.cancel("me")
        Holding.let_go.set()
    assert [str(error) for error in made] == ["Cancelled."]
    assert Holding.runs == 1
    assert list(asked.explanations(3)) == ["guess"]
    assert asked.again(given[0], 0.5, None) in asked.explanations(3)


class Uncopied(RedNeighbours):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copies")


def test_a_model_that_cannot_be_copied_is_refused_in_words() -> None:
    source = ModelAndData(model=Uncopied(), level="node", graphs=[red_graph()])
    given = explained(first_edge, "guess", [3])
    with pytest.raises(CF2Error, match=r"copy\.deepcopy can copy.*RuntimeError: no copies"):
        WhatIf(source, {"guess": given}).again(given[0], 0.5, None)


# -- the page -------------------------------------------------------------------------------------------------


def values(alpha: Any = 0.5, visitor: Any = "me") -> dict[str, Any]:
    return {"visitor.data": visitor, "shown.data": SHOWN, "alpha.value": alpha, "again.n_clicks": 1}


def noted(response: Any) -> str:
    assert "sideUpdate" not in response.get_json()
    return str(response.get_json()["response"]["again-note"]["children"])


def test_the_page_says_what_was_made_and_shows_it(red_source: ModelAndData, ask: Any) -> None:
    app = build_app(red_source, {"guess": explained(first_edge, "guess", [3, 6])})
    body = ask(app, "again-note.children", "again.n_clicks", values()).get_json()
    assert body["response"]["again-note"]["children"].startswith("node 3: 2 units in ")
    made = body["sideUpdate"]["made"]["data"]
    shown = {"key.data": "3", "made.data": made, "method.value": "guess"}
    chosen = ask(app, "method.options", "made.data", shown).get_json()["response"]
    assert chosen["method"]["value"] == made["method"] == "cf2 (α = 0.5, λ = auto)"
    elsewhere = ask(app, "method.options", "made.data", shown | {"key.data": "6"}).get_json()["response"]
    assert elsewhere["method"] == {"options": ["guess"], "value": "guess"}
    back = ask(app, "method.options", "key.data", shown).get_json()["response"]
    assert back["method"]["value"] == "guess"


def test_the_page_says_that_the_time_is_over_and_goes_on(red_source: ModelAndData, ask: Any) -> None:
    app = build_app(red_source, {"guess": explained(first_edge, "guess", [3])}, seconds=1e-6)
    assert noted(ask(app, "again-note.children", "again.n_clicks", values())) == (
        "Stopped after 1e-06 seconds, the limit for one explanation."
    )
    assert ask(app, "removed.data", "without.n_clicks", {"shown.data": SHOWN, "removed.data": []}).status_code == 200


@pytest.mark.parametrize("alpha", [None, "x", 7, -1, 1e300, True])
def test_the_page_says_which_numbers_it_takes(red_source: ModelAndData, ask: Any, alpha: Any) -> None:
    app = build_app(red_source, {"guess": explained(first_edge, "guess", [3])})
    assert noted(ask(app, "again-note.children", "again.n_clicks", values(alpha))).startswith("Expected ")


def test_the_page_cancels_and_is_busy(holding: ModelAndData, ask: Any, found: dict[str, Explanations]) -> None:
    app = build_app(holding, {"guess": explained(first_edge, "guess", [3])})
    pages = ["me", *(f"other {number}" for number in range(WAITING))]
    calls = [
        lambda page=page: ask(app, "again-note.children", "again.n_clicks", values(visitor=page)) for page in pages
    ]
    queue = app.server.extensions["cf2"]
    with started(*calls) as made:
        wait_for(lambda: len(queue) == len(pages))
        assert noted(ask(app, "again-note.children", "again.n_clicks", values(visitor="late"))).startswith("Busy: ")
        for page in pages:
            counted = ask(app, "cancelled.data", "cancel.n_clicks", {"visitor.data": page})
            assert counted.get_json()["response"]["cancelled"]["data"] == 1
        Holding.let_go.set()
    assert [noted(response) for response in made] == ["Cancelled."] * len(pages)
    assert len(queue) == 0
