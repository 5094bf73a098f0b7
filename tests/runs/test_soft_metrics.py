"""Metrics by soft masks, against a loop over whole graphs with edge weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2 import api, metrics
from cf2.errors import CF2Error
from cf2.runs.comparison import soft_metrics
from cf2.runs.session import ModelCache, Session
from cf2.samples.models import build


@pytest.fixture(scope="module")
def ring() -> tuple[torch.nn.Module, Data]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build("gcn", task="node", num_features=4, num_classes=3, hidden=8, layers=2)
    at = torch.arange(20)
    ahead = torch.stack([at, (at + 1) % 20])
    return model, Data(x=torch.eye(4)[at % 4] + 0.5, edge_index=torch.cat([ahead, ahead.flip(0)], 1))


def test_soft_masks_score_as_edge_weights_of_the_whole_graph_do(ring: tuple[torch.nn.Module, Data]) -> None:
    model, data = ring
    request, keys = api.plan(
        ModelCache(model, data), list(range(12)), None, {"method": "gnnexplainer", "k": 2, "epochs": 10}
    )
    with Session(request) as session:
        found = session.explain(keys)
    values = soft_metrics(request, found)
    assert values["gap_pn"] == pytest.approx(values["pn"] - metrics.pn(found))
    assert values["gap_ps"] == pytest.approx(values["ps"] - metrics.ps(found))
    only = without = 0
    for e in found:
        soft = torch.from_numpy(e.edge_mask(data.edge_index, soft=True))
        inside = torch.isin(data.edge_index, torch.from_numpy(np.unique(e.units.of("edges")))).all(0)
        with torch.no_grad():
            kept = model(data.x, data.edge_index, edge_weight=soft)[e.key].argmax()
            left = model(data.x, data.edge_index, edge_weight=torch.where(inside, 1 - soft, 1.0))[e.key].argmax()
        only, without = only + int(kept == e.prediction), without + int(left != e.prediction)
    assert (values["ps"], values["pn"]) == (only / 12, without / 12)


def test_explanations_of_something_else_are_refused(ring: tuple[torch.nn.Module, Data]) -> None:
    model, data = ring
    request, _ = api.plan(ModelCache(model, data), [0, 1], None, {"method": "gradient", "k": 2})
    found = cf2.explain(model, data, [0, 1], method="gradient", units="edges,features", k=2)
    with pytest.raises(CF2Error, match="the same units"):
        soft_metrics(request, found)
    with pytest.raises(CF2Error, match="one explanation per key"):
        soft_metrics(request, list(found) + list(found))
    with pytest.raises(CF2Error, match="at least one explanation"):
        soft_metrics(request, [])
