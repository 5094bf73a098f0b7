"""One request carried out: what is measured once, what is checked before, and where a status comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ring import KEYS, ring_source, spec_of
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import cf2
from cf2.errors import CF2Error
from cf2.models.predictor import Findings
from cf2.options import Spec
from cf2.runs import session as sessions
from cf2.runs.session import Request, Session, complete


def explained(request: Request, keys: Any = KEYS) -> list[cf2.Explanation]:
    with Session(request) as session:
        return session.explain(keys)


def test_a_complete_spec_has_every_setting_written_out() -> None:
    made = complete(Spec("gradient", search=True, settings={"k": 3, "proof": 7}))
    own = {"k": 3, "threshold": None, "kind": "saliency", "steps": 20}
    assert made.settings == own | {"effort": "standard", "confidence": 0.0, "proof": 7}
    assert complete(made) == made
    assert complete(Spec.from_json(made.to_json())) == made
    # a method that searches by itself takes these as its own settings, and `search` changes nothing
    assert complete(Spec("cf2", search=True)).settings == complete(Spec("cf2")).settings


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Spec("gradient", settings={"proof": 3}), "a setting of method 'gradient'"),  # nothing searches
        (Spec("gradient", search=True, settings={"effort": "none"}), "`effort`"),
        (Spec("gem", units="features"), "method 'gem' scores, edges, but got features"),
    ],
)
def test_a_bad_request_is_refused_when_it_is_made(spec: Spec, says: str) -> None:
    with pytest.raises(CF2Error) as error:
        ring_source().request(KEYS, spec)
    assert says in str(error.value)


def test_a_method_that_must_be_trained_says_so() -> None:
    with pytest.raises(CF2Error, match=r"cf2\.fit\(model, data, method='gem'"):
        Session(ring_source().request(KEYS, Spec("gem")))
    with pytest.raises(CF2Error, match="a method that needs training, but got 'cf2'"):
        sessions.train(ring_source().request(KEYS, Spec("cf2")), KEYS)
    with pytest.raises(CF2Error, match="at most `max_units` units, but got none among 20"):
        sessions.train(ring_source().request(KEYS, Spec("gem", max_units=1)), KEYS)


@pytest.mark.parametrize("search", [False, True])
def test_more_keys_than_one_group_come_in_their_order_and_are_counted(
    monkeypatch: pytest.MonkeyPatch, search: bool
) -> None:
    request = ring_source().request(KEYS, Spec("gradient", search=search, settings={"k": 2}))
    whole = explained(request, KEYS[::-1])
    monkeypatch.setattr(sessions, "KEYS_AT_ONCE", 6)
    told: list[int] = []
    with Session(request) as session:
        grouped = session.explain(KEYS[::-1], told.append)
    assert [e.key for e in grouped] == KEYS[::-1]
    assert sum(told) == len(KEYS)
    for one, other in zip(grouped, whole):
        assert np.array_equal(one.selected, other.selected)


# -- measured once --------------------------------------------------------------------------------------------


def test_measuring_keeps_what_the_model_was_found_to_be() -> None:
    request = ring_source().request(KEYS, spec_of())
    with Session(request) as session:
        measured = session.measure(KEYS).measured
    assert measured is not None
    size = measured.findings.size
    expected = Findings("logits", 3, reads_weights=True, reads_sparse=False, equal_rows=True, size=size)
    assert measured.findings == expected
    assert 0 < expected.size < 10
    assert measured.reach.hops == 3  # two layers, and the degrees one hop further
    with torch.no_grad():
        whole = request.model.eval()(request.targets.graph.x, request.targets.graph.edge_index)  # type: ignore[union-attr]
    assert torch.allclose(measured.reach.full, whole.double(), atol=1e-5)  # type: ignore[arg-type]


def test_where_every_instance_is_too_large_nothing_is_measured_and_all_are_refused() -> None:
    request = ring_source().request(KEYS, spec_of(max_units=1))
    with Session(request) as session:
        assert {e.status for e in session.explain(KEYS)} == {"refused"}
    with Session(request) as session:
        again = session.measure(KEYS)
    assert {e.status for e in explained(again)} == {"refused"}


# -- where a status comes from --------------------------------------------------------------------------------


@pytest.mark.parametrize(("alike", "hint"), [(False, 'units=("edges", "features")'), (True, 'edits=("remove", "add")')])
def test_a_prediction_that_stays_without_edges_gets_the_hint_that_helps(alike: bool, hint: str) -> None:
    graph = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    graph.x = torch.ones(4, 4) if alike else graph.x
    model = SAGEConv(4, 2)
    with torch.no_grad():
        model.lin_l.weight.zero_()  # what neighbours say is not heard
    (found,) = cf2.explain(model, graph, nodes=[0], units="edges", progress=False)
    assert found.default
    assert hint in found.note
