"""A value of the wrong type or size for every option: an answer or one sentence, in little time, never a raw error."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.options import ExplainOptions, FitOptions, rows_of
from fuzz_cases import Odd, graph, graphs
from toys import GraphNet, NodeNet, tried

MODEL, DATA = NodeNet("gcn", layers=2, seed=5), graph()
SECONDS = 4.0  # of computing; a call takes a tenth of it


class Hang(BaseException):
    """What no `except Exception` of the package can hide."""


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Hostile:
    """An object that fails whichever way it is looked at."""

    __hash__ = None  # type: ignore[assignment]

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("do not look")

    __repr__ = __str__ = __len__ = __iter__ = __bool__ = __eq__ = __index__ = __float__ = __getitem__ = _fail  # type: ignore[assignment]


class Unhashable:
    """A call of a user's that compares by value, as a dataclass does."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, model: Any, data: Any = DATA) -> Any:
        return model(data.x, data.edge_index) if model is MODEL else None


VALUES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: "",
    lambda: "x",
    lambda: "0-99999999999",
    lambda: "a,b,c=",
    lambda: "9" * 5000,
    lambda: b"x",
    lambda: True,
    lambda: -1,
    lambda: 0,
    lambda: 2,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: 2**64,
    lambda: -(10**400),
    lambda: 10**9,
    lambda: 1j,
    list,
    lambda: [None],
    lambda: [[0, 1], [2]],
    lambda: [[0, 1], [1, 2]],
    lambda: [10**30],
    dict,
    lambda: {0: 1, 5: [(0, 1)]},
    lambda: {None: None},
    lambda: {"add": -1},
    lambda: {2, 5},
    lambda: range(10**12),
    lambda: range(10**30),
    lambda: np.array(["quick", "edges"]),
    lambda: np.array("quick"),
    lambda: np.zeros((2, 2)),
    lambda: np.array([[0, 1], [1, 2]]),
    lambda: np.array([None, Odd()], dtype=object),
    lambda: torch.tensor(2**62),
    lambda: torch.tensor(float("inf")),
    lambda: torch.zeros(3),
    lambda: torch.zeros(2, device="meta"),
    lambda: torch.tensor([0, 1]).to_sparse(),
    lambda: (value for value in (1, 2)),
    lambda: Odd(),
    lambda: Hostile(),
    lambda: Unhashable(),
    lambda: lambda *given: given,
]
QUICK = {"method": "cf2", "effort": "quick", "epochs": 2}
EDITS = {**QUICK, "question": "counterfactual", "edits": ("remove", "add", "change"), "candidates": "near"}
SETTINGS = sorted({name for method in registry.names() for name in registry.get(method).settings.__dataclass_fields__})
TRAINED = [name for name in registry.names() if registry.get(name).needs == "training"]
POOLED, GRAPHS = GraphNet("gin", seed=2), graphs()
SETS = list(signature(cf2.explain_sets).parameters)
METRICS = [name for name in cf2.metrics.__all__ if name[0].islower() and name != "judge"]


@cache
def answers() -> cf2.Explanations:
    return cf2.explain(MODEL, DATA, [2, 5], **QUICK)


def additive(states: Any) -> Any:
    """The output of a function of four units: the first two decide."""
    states = np.asarray(states, dtype=float)
    return np.stack([1.5 - states[:, 0] - states[:, 1], states[:, 0] + states[:, 1] - 1.5], 1)


Ask = tuple[str, Callable[[], Any]]


def explaining(draw: random.Random, value: Any) -> Ask:
    """One option is anything, and now and then a second one; of nodes or of graphs."""
    options = {"nodes": [2, 5], **draw.choice([QUICK, EDITS])}
    names = draw.sample([*rows_of(ExplainOptions), "nodes", "pairs"], draw.choice([1, 1, 2]))
    options |= dict(zip(names, [value, draw.choice(VALUES)()]))
    if draw.random() < 0.3 and names != ["nodes"]:
        del options["nodes"]
        return f"explain graphs {names}", lambda: cf2.explain(POOLED, GRAPHS, **options)
    return f"explain {names}", lambda: cf2.explain(MODEL, DATA, **options)


def setting(draw: random.Random, value: Any) -> Ask:
    name = draw.choice(SETTINGS)
    known = [m for m in registry.names() if name in registry.get(m).settings.__dataclass_fields__]
    method = draw.choice([m for m in known if registry.get(m).needs == "nothing"] or known)
    quick = {"epochs": 2} if "epochs" in registry.get(method).settings.__dataclass_fields__ else {}
    options = {"nodes": [2, 5], "method": method, **quick, name: value}
    return f"explain {method} {name}", lambda: cf2.explain(MODEL, DATA, **options)


def fitting(draw: random.Random, value: Any) -> Ask:
    name = draw.choice([*rows_of(FitOptions), "nodes"])
    options = {"nodes": [2, 5], "method": draw.choice(TRAINED), "epochs": 1, name: value}
    return f"fit {name}", lambda: cf2.fit(MODEL, DATA, **options)


def explaining_sets(draw: random.Random, value: Any) -> Ask:
    name = draw.choice(SETS)
    options = {"f": additive, "n": 4, "effort": "quick", name: value}
    return f"explain_sets {name}", lambda: cf2.explain_sets(**options)


def measuring(draw: random.Random, value: Any) -> Ask:
    name = draw.choice(METRICS)
    count = sum(p.default is p.empty for p in signature(getattr(cf2.metrics, name)).parameters.values())
    given: list[Any] = [answers() if draw.random() < 0.5 else draw.choice(VALUES)() for _ in range(count)]
    given[draw.randrange(count)] = value
    return f"metrics.{name}", lambda: getattr(cf2.metrics, name)(*given)


def judging(draw: random.Random, value: Any) -> Ask:
    name = draw.choice(
        ["found", "model", "data", "call", "most", "masks", "nodes", "size", "threshold", "method", "output"]
    )
    if name in ("found", "call", "most") or (name in ("model", "data") and draw.random() < 0.5):
        return f"check {name}", lambda: cf2.check(**{"found": answers(), "model": MODEL, "data": DATA, name: value})
    masks = {2: DATA.edge_index.t()[:3].numpy(), 5: DATA.edge_index.t()[3:5].numpy()}
    return f"judge {name}", lambda: cf2.metrics.judge(**{"model": MODEL, "data": DATA, "masks": masks, name: value})


KINDS = [explaining] * 10 + [setting] * 4 + [fitting, explaining_sets, measuring, judging] * 2


@tried(few=500, many=20_000)
def test_any_value_of_anything_is_answered_or_refused_in_words(seeds: range) -> None:
    refused, raw = 0, []
    for seed in seeds:
        draw = random.Random(seed)
        what, ask = draw.choice(KINDS)(draw, draw.choice(VALUES)())
        started = time.perf_counter()
        try:
            with in_time(SECONDS):
                ask()
        except CF2Error as error:
            refused += 1
            if not str(error).startswith("Expected "):
                raw.append(f"{seed}: {what}: {error}")
        except (Hang, Exception) as error:
            seconds, line = time.perf_counter() - started, traceback.extract_tb(error.__traceback__)[-1]
            where = f"{line.filename.rpartition('/')[2]}:{line.lineno}"
            raw.append(f"{seed}: {what}: {type(error).__name__}: {str(error)[:90]} {where} {seconds:.1f} s")
    assert raw == [], "\n".join(raw)
    assert len(seeds) / 4 < refused < len(seeds)  # some of it is fine


NAMED: dict[str, Callable[[], Any]] = {
    "alternatives=None": lambda: cf2.explain(MODEL, DATA, [2], **QUICK, alternatives=None),
    "an array for reverse": lambda: cf2.explain(MODEL, DATA, [2], **QUICK, reverse=np.zeros((2, 2))),
    "an array for effort": lambda: cf2.explain(MODEL, DATA, [2], effort=np.array(["quick"])),
    "epochs": lambda: cf2.explain(MODEL, DATA, [2], epochs=2**64),
    "proof": lambda: cf2.explain(MODEL, DATA, [2], proof=torch.tensor(2**62)),
    "sizes": lambda: cf2.explain(MODEL, DATA, [2], method="gradient", sizes=range(10**12)),
    "units to keep": lambda: cf2.explain_sets(additive, 4, keep=range(10**12)),
    "names without values": lambda: cf2.explain_sets(additive, 4, names=torch.zeros(4, device="meta")),
    "functions": lambda: cf2.explain_sets(range(10**30), 4),
    "metrics of nothing": lambda: cf2.metrics.pn(None),
    "metrics of other things": lambda: cf2.metrics.summary([None]),
    "a file that is None": lambda: cf2.load(None),
    "a trained file that is None": lambda: cf2.load_trained(None),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_was_a_raw_error_is_a_sentence(name: str) -> None:
    with in_time(SECONDS), pytest.raises(CF2Error, match=r"^Expected "):
        NAMED[name]()


def test_a_call_need_not_be_hashable() -> None:
    explainer = cf2.Explainer(MODEL, DATA)
    once = explainer.explain([2, 5], **QUICK, call=Unhashable())
    assert [e.key for e in once] == [2, 5]
    assert [e.size for e in explainer.explain([2, 5], **QUICK)] == [e.size for e in once]


@pytest.mark.parametrize(
    "make", [np.array, torch.tensor, lambda pairs: np.array(pairs).T, lambda pairs: {2: np.array(pairs)}]
)
def test_candidates_may_be_an_array(make: Callable[[Any], Any]) -> None:
    pairs = [[0, 2], [2, 3], [2, 4]]
    (e,) = cf2.explain(MODEL, DATA, [2], **{**EDITS, "edits": ("add",), "candidates": make(pairs)})
    (plain,) = cf2.explain(MODEL, DATA, [2], **{**EDITS, "edits": ("add",), "candidates": pairs})
    assert e.num_units == plain.num_units > 0
    assert np.array_equal(e.units.ids, plain.units.ids)
