"""The relaxed problem is the paper's, GNNExplainer is torch_geometric's, CF-GNNExplainer keeps the smallest flip."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GIN
from torch_geometric.utils import barabasi_albert_graph

import cf2
from cf2.errors import CF2Error
from cf2.methods import cf2 as methods
from cf2.methods import cf_gnnexplainer, gnnexplainer
from cf2.methods.cf2 import Relaxed, relax, relaxed_loss
from cf2.methods.contract import Problem
from cf2.methods.relaxation import Step
from cf2.sets.tests import ONLY, WITHOUT, soft_outputs
from methods_toys import STAR, Lights, edges, star
from toys import NodeNet, WeightedNet, random_graph

# -- CF² ---------------------------------------------------------------------------------------------------

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
    step = Step(mask, pack.units.owner, [only, without], criterion, torch.arange(3))
    loss = relaxed_loss(step, problem.tests, Relaxed(alpha=0.6, gamma=0.5), torch.full((3,), 20.0))
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
    mask = relax(problem.repacked(replace(problem.pack, units=units)), Relaxed(epochs=15)).mask
    assert (mask[place == 1] == 0).all()
    assert (mask[place == 2] == 1).all()
    assert ((mask > 0) & (mask < 1))[place == 0].all()


def test_a_model_that_diverges_names_the_instance() -> None:
    class Diverges(WeightedNet):
        def forward(
            self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None = None
        ) -> torch.Tensor:
            out = super().forward(x, edge_index, edge_weight)
            return out if edge_weight is None else out / (edge_weight.min() > 0.2)

    with pytest.raises(CF2Error, match=r"for node|for instance"):
        cf2.explain(Diverges("sum"), DATA, nodes=[3], method="cf2-relaxed", epochs=500)


# -- GNNExplainer ------------------------------------------------------------------------------------------

TORCH_GEOMETRIC = {"epochs": 60, "lr": 0.05, "edge_entropy": 1.0, "edge_size": 0.005}


def graph() -> Data:
    seed_everything(0)  # torch_geometric draws the graph from numpy's global stream
    edge_index = barabasi_albert_graph(40, 2)
    x = torch.randn(40, 5)
    x[torch.rand(40, 5) < 0.2] = 0.0  # a zero entry is no unit
    return Data(x=x, edge_index=edge_index)


def theirs(model: torch.nn.Module, data: Data, node: int, features: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch_geometric's masks, with its own random start reproducible from the seed."""
    explainer = Explainer(
        model.eval(),
        GNNExplainer(epochs=60, lr=0.05),
        explanation_type="model",
        node_mask_type="attributes" if features else None,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = explainer(data.x, data.edge_index, index=node)
    return found.edge_mask, found.get("node_mask")


def starts(data: Data, features: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first logits that torch_geometric draws after the same seed: features, then edges."""
    torch.manual_seed(7)
    nodes, columns = data.x.shape
    entries = torch.randn(nodes, columns) * 0.1 if features else torch.zeros(nodes, columns)
    return torch.randn(data.edge_index.size(1)) * (2.0 / nodes) ** 0.5, entries


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_masks_are_those_of_torch_geometric(kind: str, features: bool, problem_of: Callable[..., Problem]) -> None:
    data, model = graph(), NodeNet(kind, features=5, seed=1)
    kinds = ("edges", "features") if features else ("edges",)
    for node in (0, 7, 23):
        edge_mask, node_mask = theirs(model, data, node, features)
        edge_start, entry_start = starts(data, features)
        problem = problem_of(model, data, [node], units=kinds, directed=True, masking="messages")
        (table,) = problem.tables
        edges, entries = (table.ids[table.kind == place] for place in (0, 1))
        column = {tuple(pair): at for at, pair in enumerate(data.edge_index.t().tolist())}
        columns = torch.tensor([column[tuple(pair)] for pair in edges.tolist()])
        logits = torch.cat([edge_start[columns], entry_start[entries[:, 0], entries[:, 1]]])
        mask = gnnexplainer.optimise_masks(problem, gnnexplainer.Settings(**TORCH_GEOMETRIC), logits)
        assert torch.allclose(mask[: len(columns)], edge_mask[columns], atol=1e-4)
        outside = torch.ones(len(edge_mask), dtype=torch.bool)
        outside[columns] = False
        assert not edge_mask[outside].any()
        assert (edge_mask > 0).sum() > 3
        if features:
            assert node_mask is not None
            assert torch.allclose(mask[len(columns) :], node_mask[entries[:, 0], entries[:, 1]], atol=1e-4)


def test_weights_and_messages_are_two_ways_to_mask() -> None:
    """A GCN that normalises by degree sees a weight in the degree too, a masked message not."""
    data = graph()
    model = WeightedNet("gcn", features=5, layers=2, seed=2)
    by_weight, by_message = (
        cf2.explain(model, data, [7], method="gnnexplainer", epochs=20, masking=kind)[0]
        for kind in ("auto", "messages")
    )
    assert abs(by_weight.scores - by_message.scores).max() > 1e-3
    assert (by_message.scores == 0).sum() > (by_weight.scores == 0).sum()  # the outer hop matters by its degree only
    with pytest.raises(cf2.CF2Error, match="masking"):
        cf2.explain(model, data, [7], method="gnnexplainer", masking="massages")


# -- CF-GNNExplainer ---------------------------------------------------------------------------------------


def test_the_smallest_flip_is_found() -> None:
    """One of the three bright edges is enough."""
    (one,) = cf2.explain(Lights(), STAR, [0], method="cf-gnnexplainer")
    assert one.size == 1
    assert edges(one) < {(0, 1), (0, 2), (0, 3)}
    assert one.necessary
    assert one.note == ""


def test_no_flip_is_an_empty_set_that_says_so() -> None:
    """Node 6 sees -0.5: it is dark with and without its edge."""
    (one,) = cf2.explain(Lights(), STAR, [6], method="cf-gnnexplainer", epochs=20)
    assert one.size == 0
    assert not one.necessary
    assert "20 epochs" in one.note


def test_units_that_may_not_be_chosen_do_not_count_as_removed(problem_of: Callable[..., Problem]) -> None:
    """Only the edges that add no light may go: there is no flip, however many of the others would give one."""
    problem = problem_of(Lights(), STAR, [0, 0], method="cf-gnnexplainer")
    (dark, free), count = problem.pack.split(torch.zeros(problem.pack.units.count)), problem.tables[0].count
    assert len(dark) == len(free) == count
    selectable = torch.tensor([ids in ([0, 4], [0, 5], [5, 6]) for ids in problem.tables[0].ids.tolist()])
    units = replace(problem.pack.units, selectable=torch.cat([selectable, torch.ones(count, dtype=torch.bool)]))
    ranking = cf_gnnexplainer.rank(
        problem.repacked(replace(problem.pack, units=units)), cf_gnnexplainer.Settings(epochs=60)
    )
    limited, plain = problem.pack.split(ranking.choice.selected)
    assert not limited.any()
    assert ranking.choice.notes == [cf_gnnexplainer.NONE.format(epochs=60), ""]
    assert int(plain.sum()) == 1
    assert not ranking.scores[:count][~selectable].any()


@pytest.mark.parametrize("limit", [1, 3, 6, 11])
def test_a_flip_among_the_units_that_matter_most_is_a_flip(limit: int) -> None:
    """Twelve lights of which eight must stay: five have to go, so that fewer to choose from are not enough."""
    data = star(*[1.0] * 12)
    (one,) = cf2.explain(
        Lights(7.5), data, [0], method="cf-gnnexplainer", max_units=limit, reduce="gradient", epochs=100, odds=True
    )
    assert one.size <= limit
    assert one.necessary == (one.size >= 5) == (limit >= 5)
    assert (one.size == 0) == (limit < 5)
    assert (cf_gnnexplainer.NONE.format(epochs=100) in one.note) == (limit < 5)


def test_a_search_in_vain_is_tried_again_from_masks_that_had_time_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search of every other node is made to fail: the second finds what the first would have found."""
    torch.manual_seed(0)
    edges = torch.randint(0, 12, (2, 30))
    data = Data(x=torch.randn(12, 4), edge_index=torch.cat([edges, edges.flip(0)], 1))
    model = GIN(4, 8, 2, 3)
    first = cf2.explain(model, data, nodes=range(12), units="edges")
    searched = methods.search_from
    calls = []

    def failing(problem: Any, ranking: Any, search: Any, *rank: Any, **grows: bool) -> Any:
        found = searched(problem, ranking, search, *rank, **grows)
        calls.append(search.effort)
        if len(calls) > 1:
            return found
        status = ["not found" if row % 2 else status for row, status in enumerate(found.choice.status)]
        empty = torch.tensor([row % 2 == 0 for row in range(len(status))])[problem.pack.units.owner]
        return replace(found, choice=replace(found.choice, status=status, selected=found.choice.selected & empty))

    monkeypatch.setattr(methods, "search_from", failing)
    again = cf2.explain(model, data, nodes=range(12), units="edges")
    assert calls == ["standard", "quick", "standard"]
    assert [e.status == "found" for e in first] == [e.status == "found" for e in again]
    for before, after in zip(first[::2], again[::2]):
        assert (before.selected == after.selected).all()
    found = [(a.size, b.size, b.evaluations > a.evaluations) for a, b in zip(first[1::2], again[1::2]) if b.size]
    assert found
    assert all(a == b and more for a, b, more in found)
    assert cf2.check(again, model, data)
