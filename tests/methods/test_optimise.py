"""The relaxed problem is the paper's, and many instances together are each instance alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.methods.cf2 import Relaxed, relax
from cf2.methods.contract import Problem
from cf2.methods.relaxation import cf2_loss, counterfactual_loss, factual_loss, size
from cf2.sets.tests import ONLY, WITHOUT, soft_outputs
from toys import GraphNet, NodeNet, WeightedNet, random_graph

DATA = random_graph(40, 55, seed=4)


def paper_loss(model: WeightedNet, problem: Problem, row: int, mask: list[torch.Tensor], lam: float) -> torch.Tensor:
    """Equations (10) to (12) for one instance, written straight from the paper."""
    alpha, gamma = 0.6, 0.5
    instance, units = problem.instances[row], problem.tables[row].edges[0].tolist()
    y = int(problem.criterion.answers[row])

    def probability(states: list[torch.Tensor]) -> torch.Tensor:
        weight = torch.stack([states[u] if u >= 0 else torch.ones(()) for u in units])
        return model(instance.x, instance.edge_index, weight)[instance.targets[0]].softmax(0)

    only, without = probability(mask), probability([1 - m for m in mask])
    others = [c for c in range(len(only)) if c != y]
    s_f, s_c = only[y], -without[y]
    l_f = torch.relu(gamma + max(only[c] for c in others) - s_f)
    l_c = torch.relu(gamma - s_c - max(without[c] for c in others))
    return sum(m.abs() for m in mask) + lam * (alpha * l_f + (1 - alpha) * l_c)  # type: ignore[return-value]


def test_loss_and_gradient_are_the_papers(problem_of: Callable[..., Problem]) -> None:
    model = WeightedNet("sum").eval()
    problem = problem_of(model, DATA, [0, 7, 9], method="cf2-relaxed")
    pack, criterion = problem.pack, problem.criterion
    mask = torch.rand(pack.units.count, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with problem.predictor.soft(pack.take(torch.tensor([0, 1, 2, 0, 1, 2]))) as run:
        only, without = soft_outputs(run, (ONLY, WITHOUT), [mask, mask])
    sizes = size(mask, pack.units.owner, 3)
    strength = 0.6 * factual_loss(criterion.margin(only), 0.5) + 0.4 * counterfactual_loss(
        criterion.margin(without), 0.5
    )
    loss = cf2_loss(sizes, strength, lam=20.0)
    (gradient,) = torch.autograd.grad(loss.sum(), mask)
    for row in range(3):
        units = slice(*pack.units.ptr[row : row + 2].tolist())
        own = [m.clone().detach().requires_grad_() for m in mask[units]]
        slow = paper_loss(model, problem, row, own, 20.0)
        assert abs(float(slow.detach() - loss[row].detach())) < 1e-6 * max(1.0, float(slow.detach()))
        slopes = torch.stack(
            [torch.zeros(()) if g is None else g for g in torch.autograd.grad(slow, own, allow_unused=True)]
        )
        assert (slopes - gradient[units]).abs().max() < 1e-5


@pytest.mark.parametrize("units", ["edges", "features", "edges,features"])
@pytest.mark.parametrize("kind", ["gcn", "gin", "gat", "sage"])
def test_together_equals_alone(kind: str, units: str) -> None:
    model = NodeNet(kind)
    nodes = [3, 11, 25, 30]
    options = {"method": "cf2-relaxed", "epochs": 40, "units": units}
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


def test_converged_instances_leave_and_the_others_go_on(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum"), DATA, range(12), method="cf2-relaxed")
    full = relax(problem, Relaxed(epochs=300))
    early = relax(problem, Relaxed(epochs=300, patience=20))
    assert int(early.epochs.min()) < 300
    assert bool((full.epochs == 300).all())
    stayed = (early.epochs == 300)[problem.pack.units.owner]
    assert stayed.any()
    assert torch.allclose(full.mask[stayed], early.mask[stayed], atol=1e-4)


def test_units_without_a_choice_keep_their_masks(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum"), DATA, range(6), method="cf2-relaxed")
    place = torch.arange(problem.pack.units.count) % 3
    units = replace(problem.pack.units, selectable=place != 1, required=place == 2)
    mask = relax(replace(problem, pack=replace(problem.pack, units=units)), Relaxed(epochs=15)).mask
    assert (mask[place == 1] == 0).all()
    assert (mask[place == 2] == 1).all()
    assert ((mask > 0) & (mask < 1))[place == 0].all()


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
