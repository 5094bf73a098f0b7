"""Whatever is passed to `cf2.explain`: explanations whose verdicts hold, or one sentence; never anything else.

The default is a small, fixed sample. `CF2_FUZZ=1000 pytest tests/test_fuzz_explain.py` tries every odd thing by itself
and 1,000 combinations of up to three; `CF2_FUZZ_SEED=7` draws others.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import cf2
import toys
from cf2.errors import CF2Error
from fuzz_cases import ANY, BASES, CHANGES, NODES, OPTIONS, Call
from toys import model_state, same_state

TRIED = int(os.environ.get("CF2_FUZZ", "60"))
SEED = os.environ.get("CF2_FUZZ_SEED")
SWEPT = sorted(CHANGES) if TRIED >= 500 else sorted(CHANGES)[::6]  # what is tried by itself

# -- what must be as before ---------------------------------------------------------------------------------------


def copied(value: Any) -> Any:
    """A tensor's values, type and shape, or the object itself."""
    if not isinstance(value, Tensor):
        return value
    about = (value.dtype, tuple(value.shape), str(value.layout), str(value.device), value.requires_grad)
    if value.is_meta:
        return about
    if value.layout == torch.sparse_csr:
        return (*about, *map(copied, (value.crow_indices(), value.col_indices(), value.values())))
    if value.layout == torch.sparse_coo:
        return (*about, *map(copied, (value._indices(), value._values())))
    return (*about, torch.cat([value.detach().reshape(-1)]).view(torch.uint8).numpy().tobytes())


def same(one: Any, other: Any) -> bool:
    return one is other or bool(np.all(np.asarray(one == other)))


def of_graphs(call: Call) -> list[dict[str, Any]]:
    return [{name: copied(one[name]) for name in one.keys()} for one in call.graphs if isinstance(one, Data)]  # noqa: SIM118


def of_process() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "random": torch.random.get_rng_state().tolist(),
        "flushed": (torch.tensor([1e-40]) * 1.0).item(),
    }


@contextmanager
def left_alone(call: Call) -> Iterator[None]:
    """Nothing of the user's is changed, and no warning is passed on."""
    lazy = any(torch.nn.parameter.is_lazy(p) for p in call.net.parameters())
    graphs, process = of_graphs(call), of_process()
    model = None if lazy or any(p.is_meta for p in call.net.parameters()) else model_state(call.net)
    kinds = [(p.dtype, p.device) for p in call.net.parameters()]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    assert [str(one.message) for one in told] == []
    assert model is None or same_state(model, model_state(call.net))
    assert kinds == [(p.dtype, p.device) for p in call.net.parameters()]
    assert of_process() == process
    for before, after in zip(graphs, of_graphs(call), strict=True):
        assert list(before) == list(after)
        for name, value in before.items():
            assert same(value, after[name]), name


# -- what the model really says -----------------------------------------------------------------------------------


def edited(data: Data, e: cf2.Explanation, keep: bool) -> Data:
    """The graph with only the explanation, or with all but it: what goes is really taken away."""
    units = [(e.units.names[k], tuple(pair)) for k, pair in zip(e.units.kind.tolist(), e.units.ids.tolist())]
    gone = [unit for unit, chosen in zip(units, e.selected.tolist()) if chosen != keep]
    whole = Data(x=data.x.detach(), edge_index=ends_of(data))
    if (weight := weights_of(data)) is not None:
        whole.edge_weight = weight
    return toys.edited(whole, gone, directed=e.directed)


def ends_of(data: Data) -> Tensor:
    """The edges; a transposed matrix has a row for each head."""
    known = data.get("edge_index")
    return data.adj_t.to_dense().nonzero().t().flip(0) if known is None else known


def weights_of(data: Data) -> Tensor | None:
    """The weights of the edges, where the data has one for each."""
    weight = data.get("edge_weight")
    good = isinstance(weight, Tensor) and weight.dim() > 0 and len(weight) == ends_of(data).size(1)
    return weight.detach() if good else None


def answer(call: Call, data: Data, key: int) -> Tensor:
    """Scores of the classes as the user would get them, from one graph alone."""
    net, was = call.net, [(module, module.training) for module in call.net.modules()]
    net.eval()
    names = net.forward.__code__.co_varnames[: net.forward.__code__.co_argcount]
    given = {"batch": torch.zeros(data.x.size(0), dtype=torch.long), "edge_weight": weights_of(data)}
    with torch.no_grad():
        if names in (("self", "data"), ("self", "input")):
            out = net(Data(x=data.x, edge_index=ends_of(data), batch=given["batch"]))
        else:
            further = {name: given[name] for name in names if name in given and given[name] is not None}
            out = net(data.x, ends_of(data), **further)
    for module, mode in was:
        module.training = mode
    row = (out[:, None] if out.dim() == 1 else out)[0 if call.level == "graph" else key].double()
    if len(row) > 1:
        return row
    return torch.cat([1 - row, row]) if call.options.get("output") == "probabilities" else torch.cat([0 * row, row])


def lead(scores: Tensor, y: int) -> float:
    """By how much class y leads, as a share of the largest score."""
    others = torch.cat([scores[:y], scores[y + 1 :]]).max()
    return float((scores[y] - others) / scores.abs().max().clamp(min=1e-9))


def check_verdicts(call: Call, found: cf2.Explanations) -> None:
    tolerance = 0.05 if next((p.dtype for p in call.net.parameters()), torch.float32).itemsize == 2 else 1e-4
    for e in found:
        data = call.graphs[e.key if call.level == "graph" else 0]
        assert lead(answer(call, data, e.key), e.prediction) >= -tolerance
        if e.status in ("refused", "empty", "not predicted"):
            continue
        only, without = (answer(call, edited(data, e, keep), e.key) for keep in (True, False))
        if e.target is not None and e.question == "counterfactual":
            assert e.status != "found" or lead(without, e.target) >= -tolerance
            continue
        y = e.explained
        tests = {"why": (1, 1), "factual": (1, 0), "counterfactual": (0, 1)}[e.question]
        needed = tests if e.status == "found" else (0, 0)
        assert not (e.sufficient or needed[0]) or lead(only, y) >= -tolerance
        assert not (e.necessary or needed[1]) or lead(without, y) <= tolerance
        assert e.status != "found" or (e.sufficient >= needed[0] and e.necessary >= needed[1])


# -- the property -------------------------------------------------------------------------------------------------


def attempt(call: Call) -> cf2.Explanations | CF2Error:
    """What the call gives: explanations, or the one error there is."""
    data, options = call.data(), dict(call.options)
    with left_alone(call):
        try:
            return cf2.explain(call.model, data, options.pop("nodes", None), **options)
        except CF2Error as error:
            return error


def check(call: Call) -> None:
    got = attempt(call)
    if isinstance(got, CF2Error):
        check_sentence(got)
    else:
        assert len(got) > 0
        check_verdicts(call, got)


def check_sentence(error: CF2Error) -> None:
    said = str(error)
    assert said.startswith("Expected "), said
    assert said.rstrip()[-1] in ".?)…", said
    assert len(said) < 1200, said
    assert " object at 0x" not in said, said


def apply(call: Call, changes: tuple[str, ...]) -> Call:
    for name in sorted(changes, key=lambda name: name.startswith("model:")):  # a wrapped model has the graphs' dtype
        try:
            CHANGES[name](call)
        except Exception:
            continue  # two changes of one tensor that exclude each other
    return call


def settled(base: str, changes: tuple[str, ...]) -> Call | None:
    """The call, if torch_geometric can make the batch or data set that is asked for of such graphs."""
    call = apply(BASES[base](), changes)
    try:
        call.data()
    except Exception:
        return None
    return call


@pytest.mark.parametrize("base", BASES)
def test_good_calls_are_answered(base: str) -> None:
    got = attempt(BASES[base]())
    assert isinstance(got, cf2.Explanations), got
    check_verdicts(BASES[base](), got)


def test_a_false_verdict_would_be_noticed() -> None:
    call = BASES["gcn"]()
    got = attempt(call)
    assert isinstance(got, cf2.Explanations)
    assert "found" in [e.status for e in got]
    for e in got:
        if e.status == "found":
            wrong = dataclasses.replace(e, selected=np.zeros_like(e.selected))
            with pytest.raises(AssertionError):
                check_verdicts(call, cf2.Explanations((wrong,)))


@pytest.mark.parametrize("name", SWEPT)
def test_one_odd_thing_is_answered_or_refused_in_words(name: str) -> None:
    bases = sorted(BASES)
    call = settled(bases[zlib.crc32(name.encode()) % len(bases)], (name,))
    if call is not None:
        check(call)


KINDS: dict[str, list[str]] = {}  # by what is odd, so that the many options do not crowd out the rest
for _change in sorted(CHANGES):
    _what = _change.partition(":")[0]
    KINDS.setdefault("option" if _what in OPTIONS else _what, []).append(_change)
drawn = st.lists(
    st.one_of(*map(st.sampled_from, KINDS.values())),
    min_size=1,
    max_size=3,
    unique_by=lambda name: name.partition(":")[0],
).map(tuple)


def sample(examples: int) -> Callable[[Any], Any]:
    """Settings of a test of so many draws, the same ones in every run unless a seed is given."""

    def decorate(test: Any) -> Any:
        limited = settings(
            max_examples=examples,
            deadline=None,
            derandomize=SEED is None,
            suppress_health_check=list(HealthCheck),
            database=None,
            print_blob=False,
        )(test)
        return seed(int(SEED))(limited) if SEED else limited

    return decorate


@sample(TRIED)
@given(base=st.sampled_from(sorted(BASES)), changes=drawn)
def test_several_odd_things_are_answered_or_refused_in_words(base: str, changes: tuple[str, ...]) -> None:
    call = settled(base, changes)
    if call is not None:
        check(call)


@sample(TRIED // 4)
@given(base=st.sampled_from(sorted(BASES)), changes=drawn, method=st.sampled_from(["pgexplainer", "gem"]))
def test_training_is_done_or_refused_in_words(base: str, changes: tuple[str, ...], method: str) -> None:
    call = BASES[base]()
    call.options = {"nodes": call.options.get("nodes"), "method": method, "epochs": 1}
    call = apply(call, changes)
    try:
        data = call.data()
    except Exception:
        return
    options = dict(call.options)
    with left_alone(call):
        try:
            assert cf2.fit(call.model, data, options.pop("nodes", None), **options).tensors
        except CF2Error as error:
            check_sentence(error)


# -- results --------------------------------------------------------------------------------------------------------

ODD = [value for value in (*ANY.values(), *NODES.values()) if not isinstance(value, FunctionType)]
USES: dict[str, Callable[[cf2.Explanations, Any], Any]] = {
    "index": lambda found, odd: found[odd],
    "at": lambda found, odd: found.at(odd),
    "only": lambda found, odd: found.only(odd),
    "add": lambda found, odd: found + odd,
    "save": lambda found, odd: found.save(odd),
    "plot": lambda found, odd: found.plot(odd, words=False, probabilities=False),
    "size of a plot": lambda found, odd: found[0].plot(size=odd),
    "context of a plot": lambda found, odd: found[0].plot(context=odd, words=False, probabilities=False),
    "chosen": lambda found, odd: found[0].chosen(odd),
    "edge_mask": lambda found, odd: found[0].edge_mask(odd),
    "rows of a report": lambda found, odd: found.report("report.html", rows=odd, pictures=0),
    "path of a report": lambda found, odd: found.report(odd, pictures=0),
}


@pytest.mark.parametrize("use", USES)
def test_results_answer_or_refuse_in_words(use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = attempt(BASES["gcn"]())
    assert isinstance(found, cf2.Explanations)
    for odd in ODD:
        try:
            USES[use](found, odd)
        except CF2Error as error:
            check_sentence(error)
