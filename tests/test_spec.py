"""Every option is written down once: checked, the same through JSON, and the same in the signature of `cf2.explain`."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cf2
from cf2 import options as cf2_spec
from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.options import MethodSettings, Spec, meanings, options
from cf2.pyg import CF2Explainer, CFGNNExplainer, MethodExplainer
from cf2.sets.search import Search
from toys import NodeNet, random_graph

DATA, MODEL = random_graph(30, 45, seed=6), NodeNet("sum", seed=1)

keys = st.one_of(st.integers(0, 10**6), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
plain = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=4))
ends = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3)
pairs = st.one_of(ends, st.dictionaries(keys, ends, max_size=2))
numbered = st.lists(st.tuples(keys, st.integers(0, 9)), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
by_key = st.one_of(st.none(), st.integers(0, 9), numbered)
# Options that are kept in another form than given.
READ = ("candidates", "keep", "forbid", "groups", "costs", "one_hot", "atoms", "reverse")
LIKES, BACK = ("user", "likes", "item"), ("item", "of", "user")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "method": st.text(min_size=1, max_size=8),
    "units": st.lists(st.sampled_from(["edges", "features", "own"]), min_size=1, unique=True).map(tuple),
    "question": st.sampled_from(get_args(cf2_spec.Question)),
    "target": by_key,
    "sizes": by_key,
    "edits": st.lists(st.sampled_from(get_args(cf2_spec.Edit)), min_size=1, unique=True).map(tuple),
    "candidates": st.one_of(st.none(), st.just("target"), pairs),
    "keep": st.one_of(st.none(), pairs),
    "forbid": st.one_of(st.none(), pairs),
    "groups": st.one_of(st.none(), st.just("ring"), st.dictionaries(st.text(max_size=3), ends, max_size=2)),
    "connected": st.booleans(),
    "charges": st.booleans(),
    "valid": st.sampled_from([None, "molecule"]),
    "alternatives": st.integers(1, 9),
    "contexts": st.integers(0, 99),
    "contexts_add": st.integers(0, 9),
    "surely": st.one_of(st.none(), st.floats(0.1, 0.99)),
    "costs": st.dictionaries(st.sampled_from(get_args(cf2_spec.Edit)), st.floats(0.5, 9)),
    "one_hot": st.sampled_from([None, ((0, 1), (2, 3, 4)), "0-1,2-4"]),
    "added_attributes": st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=2), max_size=2),
    "atoms": st.sampled_from([None, ("C", "N"), "C,N,C"]),
    "search": st.booleans(),
    "seed": st.one_of(st.none(), st.integers(0, 2**40)),
    "output": st.sampled_from(get_args(cf2_spec.Output)),
    "tolerance": st.one_of(st.none(), st.floats(1e-6, 1e6)),
    "leave_out_pair": st.booleans(),
    "node_type": st.one_of(st.none(), st.text(max_size=4)),
    "edge_type": st.one_of(st.none(), st.just(("user", "likes", "item"))),
    "reverse": st.sampled_from(["auto", "none", {LIKES: BACK}, ((LIKES, BACK),), "user,likes,item=item,of,user"]),
    "level": st.sampled_from(get_args(cf2_spec.Level)),
    "directed": st.sampled_from([None, True, False]),
    "masking": st.sampled_from(get_args(cf2_spec.Masking)),
    "device": st.sampled_from([None, "cpu", "cuda:1"]),
    "max_units": st.one_of(st.none(), st.integers(1, 10**9)),
    "reduce": st.sampled_from([None, *get_args(cf2_spec.Reduce)]),
    "settings": st.dictionaries(st.text(max_size=5), st.one_of(plain, st.lists(plain, max_size=2)), max_size=3),
}


def test_every_option_is_drawn_below() -> None:
    assert {*VALUES, "robust"} == {f.name for f in options()}  # what is read of `robust` are two other options


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_a_spec_survives_json(given_options: dict[str, Any]) -> None:
    if given_options.get("edits", ("remove",)) != ("remove",):
        given_options["question"] = "counterfactual"
    spec = Spec(**given_options)
    text = json.dumps(spec.to_json(), allow_nan=False)
    again = Spec.from_json(json.loads(text))
    assert again == spec
    for f in fields(Spec):
        assert type(getattr(again, f.name)) is type(getattr(spec, f.name))
        if f.name in given_options and f.name not in READ:
            assert getattr(spec, f.name) == given_options[f.name]


@pytest.mark.parametrize(
    ("given", "contexts", "added"),
    [
        ({}, 256, 3),
        ({"contexts": 9, "contexts_add": 1}, 9, 1),
        ({"surely": 0.9}, 256, 0),
        ({"question": "counterfactual", "edits": ("add",)}, 256, 0),
    ],
)
def test_robust_is_read_as_contexts_with_edges_of_noise(given: dict[str, Any], contexts: int, added: int) -> None:
    with pytest.warns(DeprecationWarning, match="contexts=256, contexts_add=3"):
        spec = Spec(robust=2, **given)
    assert (spec.robust, spec.contexts, spec.contexts_add) == (0, contexts, added)
    assert Spec.from_json({**spec.to_json(), "robust": 2}) == spec  # of a file of 0.2, without a warning


WRONG: dict[str, list[Any]] = {
    "method": [3],
    "units": [[], ["edges", "edges"]],
    "question": ["who"],
    "target": ["one", True, [(0, 1), (0, 2)]],
    "search": ["yes"],
    "seed": [-1, 2**63],
    "device": [0],
    "settings": [3],
}


@pytest.mark.parametrize(("option", "value"), [(option, value) for option in WRONG for value in WRONG[option]])
def test_a_value_of_the_wrong_kind_is_refused(option: str, value: Any) -> None:
    with pytest.raises(CF2Error, match=option):
        Spec(**{option: value})


def test_numbers_of_numpy_and_torch_become_those_of_python() -> None:
    spec = Spec(seed=np.int64(3), search=np.bool_(True), max_units=torch.tensor(9), settings={"lr": np.float32(0.5)})  # type: ignore[arg-type]
    assert spec == Spec(seed=3, search=True, max_units=9, settings={"lr": 0.5})
    assert json.loads(json.dumps(spec.to_json())) == spec.to_json()


def test_a_spec_is_frozen_and_its_own() -> None:
    settings = {"k": 3}
    spec = Spec(settings=settings)
    settings["k"] = 4
    assert spec.settings == {"k": 3}
    with pytest.raises(AttributeError):
        spec.seed = 1  # type: ignore[misc]


# -- the same options everywhere ----------------------------------------------------------------------------


NAMES = {"class_names", "node_names", "feature_names", "smiles", "tasks"}
BESIDE = {"model", "data", "nodes", "pairs", "call", "trained", "reference", "progress", "verbose", *NAMES}


def test_explain_and_fit_show_the_options_of_a_spec_with_its_defaults() -> None:
    explained, fitted = (inspect.signature(function).parameters for function in (cf2.explain, cf2.fit))
    assert explained["settings"].kind is inspect.Parameter.VAR_KEYWORD
    assert explained.keys() - BESIDE == set(meanings())
    own = {"units": "auto"}  # a run that compares methods keeps to edges
    for name in meanings().keys() - {"settings"}:
        default = getattr(Spec(), name)
        assert explained[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert explained[name].default == own.get(name, default)
        if name not in ("method", "seed"):  # no method is trained by default, and a training always has a seed
            assert name not in fitted or fitted[name].default == default


def test_an_explainer_takes_what_explain_takes() -> None:
    explain, method = (inspect.signature(function).parameters for function in (cf2.explain, cf2.Explainer.explain))
    assert [*explain][:2] == ["model", "data"]
    assert [*explain.values()][2:] == [*method.values()][1:]


def test_the_settings_of_all_methods_are_typed() -> None:
    """All but those that only `settings` of a Spec can give, because an option has the same name."""
    methods = [registry.get(name).settings for name in registry.names()]
    names = {f.name for settings in (*methods, Search) for f in fields(settings)}
    assert set(MethodSettings.__annotations__) == names - {"candidates", "target", "nodes"}


@pytest.mark.parametrize("algorithm", [CF2Explainer, CFGNNExplainer, MethodExplainer])
def test_algorithms_of_torch_geometric_show_their_options(algorithm: type) -> None:
    shown, text = inspect.signature(algorithm).parameters, " ".join((inspect.getdoc(algorithm) or "").split())
    for name, (default, meaning) in cf2_spec.rows_of(cf2_spec.AlgorithmOptions).items():
        assert shown[name].default == default
        assert re.search(rf"\b{name} : .* {re.escape(meaning)}", text)


# -- requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "given_options", "said"),
    [
        (DATA, {}, "`nodes` or `pairs` for a single graph"),
        ([DATA, DATA], {"level": "node"}, "2 graphs"),
        (DATA, {"nodes": [0], "method": "cf3"}, "Did you mean 'cf2'"),
        (DATA, {"nodes": [0], "units": "edge"}, "Did you mean 'edges'"),
        (DATA, {"nodes": [0], "effort": "huge"}, "effort"),
        (DATA, {"nodes": [0], "epoch": 3}, "Did you mean 'epochs'"),
        (DATA, {"nodes": [0], "unit": "edges"}, "Did you mean 'units'"),
    ],
)
def test_bad_requests_are_refused(data: Any, given_options: dict[str, Any], said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain(MODEL, data, **given_options)


def test_explanations_carry_the_whole_request() -> None:
    with pytest.raises(CF2Error, match="Did you mean 'units'"):  # in a manifest
        Spec.from_json({**Spec().to_json(), "unit": 1})
    found = cf2.explain(MODEL, DATA, nodes=[3], method="gradient", question="factual", k=2, directed=True, seed=4)
    spec = Spec.from_json(found.context["spec"])
    assert (spec.method, spec.question, spec.directed, spec.seed) == ("gradient", "factual", True, 4)
    assert spec.settings["k"] == 2
    assert found.context["method"] == "gradient"
    assert found[0].question == "factual"
