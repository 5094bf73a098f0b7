"""What a set does to a graph: only it stays, or only it goes; hard and soft."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from cf2.methods.contract import Problem
from cf2.models.oracle import outputs_after
from cf2.sets.tests import EDITED, ONLY, QUESTIONS, WITHOUT, Intervention, soft_outputs
from toys import NodeNet, Unit, WeightedNet, edited, probabilities, random_graph

DATA = random_graph(30, 40, seed=1)


def test_a_set_stays_or_goes() -> None:
    hard, soft = torch.tensor([True, False]), torch.tensor([0.25, 1.0], requires_grad=True)
    assert ONLY.states(hard).tolist() == [True, False]
    assert WITHOUT.states(hard).tolist() == EDITED.states(hard).tolist() == [False, True]
    assert ONLY.states(soft) is soft
    assert WITHOUT.states(soft).tolist() == [0.75, 0.0]
    assert torch.autograd.grad(WITHOUT.states(soft).sum(), soft)[0].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("intervention", [ONLY, WITHOUT, EDITED])
def test_outputs_are_those_of_the_really_edited_graph(
    intervention: Intervention, problem_of: Callable[..., Problem]
) -> None:
    model = NodeNet("gat")
    problem = problem_of(model, DATA, [3, 8, 9], units=("edges", "features"))
    chosen = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(0)) < 0.4
    outputs = outputs_after(intervention, problem.predictor, problem.pack, chosen)
    for row, (table, mine) in enumerate(zip(problem.tables, problem.pack.split(chosen))):
        units: list[Unit] = [(table.names[k], tuple(ids)) for k, ids in zip(table.kind, table.ids.tolist())]  # type: ignore[misc]
        gone = [unit for unit, inside in zip(units, mine) if bool(inside) != intervention.keeps]
        expected = probabilities(model, edited(DATA, gone), int(problem.pack.key(row)))  # type: ignore[arg-type]
        assert torch.allclose(outputs[row], expected, atol=1e-6)


def test_soft_outputs_of_several_interventions_are_those_of_each(problem_of: Callable[..., Problem]) -> None:
    """Where weights of 0 are removals, soft sets of 0 and 1 give what the real ones do."""
    problem = problem_of(WeightedNet("sum"), DATA, [3, 8, 9])
    masks = torch.rand(2, problem.pack.units.count, generator=torch.Generator().manual_seed(0)).round()
    both = problem.pack.take(torch.arange(3).repeat(2))
    with problem.predictor.soft(both) as run:
        found = soft_outputs(run, (ONLY, WITHOUT), list(masks))
    for intervention, mask, outputs in zip((ONLY, WITHOUT), masks, found):
        expected = outputs_after(intervention, problem.predictor, problem.pack, mask.bool())
        assert torch.allclose(outputs, expected, atol=1e-5)


def test_questions_ask_what_they_say() -> None:
    asked = {name: [(test.intervention.keeps, test.same) for test in tests] for name, tests in QUESTIONS.items()}
    assert asked == {
        "why": [(True, True), (False, False)],
        "factual": [(True, True)],
        "counterfactual": [(False, False)],
    }
