"""The relaxed problem is the paper's, and many instances together are each instance alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.instances import Graph
from cf2.methods.cf2 import Relaxed, relax
from cf2.objectives import cf2_loss, size
from cf2.work import Session, Work
from toys import GraphNet, NodeNet, WeightedNet, random_graph

DATA = random_graph(40, 55, seed=4)


def paper_loss(model: WeightedNet, instance: object, mask: list[torch.Tensor], y: int, lam: float) -> torch.Tensor:
    """Equations (10) to (12) for one instance, written straight from the paper."""
    alpha, gamma = 0.6, 0.5
    weight = torch.stack([mask[u] if u >= 0 else torch.ones(()) for u in instance.edge_unit.tolist()])  # type: ignore[attr-defined]

    def probability(w: torch.Tensor) -> torch.Tensor:
        out = model(instance.x, instance.edge_index, w)  # type: ignore[attr-defined]
        return out[instance.target].softmax(0)  # type: ignore[attr-defined]

    only, without = (
        probability(weight),
        probability(torch.where(torch.tensor([u < 0 for u in instance.edge_unit]), weight, 1 - weight)),
    )  # type: ignore[attr-defined]
    others = [c for c in range(len(only)) if c != y]
    s_f, s_c = only[y], -without[y]
    l_f = torch.relu(gamma + max(only[c] for c in others) - s_f)
    l_c = torch.relu(gamma - s_c - max(without[c] for c in others))
    return sum(m.abs() for m in mask) + lam * (alpha * l_f + (1 - alpha) * l_c)  # type: ignore[return-value]


def test_loss_and_gradient_are_the_papers() -> None:
    model = WeightedNet("sum").eval()
    with Session(Work(model, Graph(DATA), method="cf2-relaxed")) as session:
        (chunk,) = session.chunks([0, 7, 9])
        stream = torch.Generator().manual_seed(0)
        mask = torch.rand(chunk.pack.num_units, generator=stream, requires_grad=True)
        both = chunk.pack.take(torch.tensor([0, 1, 2, 0, 1, 2]))
        with chunk.predictor.masked(both) as probabilities:
            only, without = probabilities(torch.cat([mask, 1 - mask])).split(3)
        sizes = size(mask, chunk.pack.unit_owner, 3)
        loss = cf2_loss(sizes, only, without, chunk.y, alpha=0.6, gamma=0.5, lam=20.0)
        (gradient,) = torch.autograd.grad(loss.sum(), mask)
    for row, instance in enumerate(chunk.instances):
        units = slice(*chunk.pack.unit_ptr[row : row + 2].tolist())
        own = [m.clone().detach().requires_grad_() for m in mask[units]]
        slow = paper_loss(model, instance, own, int(chunk.y[row]), 20.0)
        assert abs(float(slow.detach() - loss[row].detach())) < 1e-6 * max(1.0, float(slow.detach()))
        slopes = torch.stack(
            [torch.zeros(()) if g is None else g for g in torch.autograd.grad(slow, own, allow_unused=True)]
        )
        assert (slopes - gradient[units]).abs().max() < 1e-5


@pytest.mark.parametrize("units", ["edges", "features", "both"])
@pytest.mark.parametrize("kind", ["gcn", "gin", "gat", "sage"])
def test_together_equals_alone(kind: str, units: str) -> None:
    model = NodeNet(kind)
    nodes = [3, 11, 25, 30]
    options = {"method": "cf2-relaxed", "epochs": 40, "edges": units != "features", "features": units != "edges"}
    together = cf2.explain(model, DATA, nodes=nodes, **options)
    alone = [cf2.explain(model, DATA, nodes=[node], **options)[0] for node in reversed(nodes)][::-1]
    for one, other in zip(together, alone):
        assert one.key == other.key
        assert np.abs(one.scores - other.scores).max(initial=0) < 1e-4
        assert np.array_equal(one.selected, other.selected)


def test_graphs_together_equal_graphs_alone() -> None:
    model, graphs = GraphNet("gin"), [random_graph(8, 8, seed=s) for s in range(5)]
    together = cf2.explain(model, graphs, method="cf2-relaxed", epochs=40)
    for key, graph in enumerate(graphs):
        (alone,) = cf2.explain(model, [graph], method="cf2-relaxed", epochs=40)
        assert np.abs(together[key].scores - alone.scores).max(initial=0) < 1e-4


def test_two_runs_are_bit_identical_and_seeds_differ() -> None:
    runs = [cf2.explain(NodeNet("gat"), DATA, nodes=[3, 5], method="cf2-relaxed", epochs=30) for _ in range(2)]
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(*runs))
    seeded = [
        cf2.explain(NodeNet("gat"), DATA, nodes=[3, 5], method="cf2-relaxed", epochs=30, seed=s) for s in (0, 0, 1)
    ]
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(seeded[0], seeded[1]))
    assert not np.array_equal(seeded[0][0].scores, seeded[2][0].scores)


def test_converged_instances_leave_and_the_others_go_on() -> None:
    model = NodeNet("sum")
    with Session(Work(model, Graph(DATA), method="cf2-relaxed")) as session:
        (chunk,) = session.chunks(list(range(12)))
        full = relax(chunk, Relaxed(epochs=300))
        early = relax(chunk, Relaxed(epochs=300, patience=20))
    assert int(early.epochs.min()) < 300
    assert bool((full.epochs == 300).all())
    stayed = early.epochs == 300
    assert torch.allclose(
        full.mask[stayed[chunk.pack.unit_owner]], early.mask[stayed[chunk.pack.unit_owner]], atol=1e-4
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("lam", -1), ("alpha", 1.5), ("gamma", -0.1), ("lr", 0), ("epochs", 0), ("epochs", 1.5), ("lr", math.nan)],
)
def test_settings_out_of_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(CF2Error, match=f"`{setting}`"):
        cf2.explain(NodeNet("gcn"), DATA, nodes=[0], method="cf2-relaxed", **{setting: value})


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(CF2Error, match="Did you mean 'epochs'"):
        cf2.explain(NodeNet("gcn"), DATA, nodes=[0], epoch=3)


def test_a_model_that_diverges_names_the_instance() -> None:
    class Diverges(WeightedNet):
        def forward(
            self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None = None
        ) -> torch.Tensor:
            out = super().forward(x, edge_index, edge_weight)
            return out if edge_weight is None else out / (edge_weight.min() > 0.2)

    with pytest.raises(CF2Error, match=r"for node|for instance"):
        cf2.explain(Diverges("sum"), DATA, nodes=[3], method="cf2-relaxed", epochs=500)
