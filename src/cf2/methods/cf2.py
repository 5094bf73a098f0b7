"""CF²: factual and counterfactual reasoning (Tan et al., WWW 2022, https://doi.org/10.1145/3485447.3511948).

`cf2-relaxed` is the paper's procedure: minimise ‖M‖₁ + ‖F‖₁ + λ(α L_f + (1 - α) L_c) over soft masks, then
threshold. `cf2` takes the soft masks as a guide and searches for the smallest set that passes both tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cf2.methods.contract import (
    CheckedSettings,
    Method,
    Problem,
    Ranking,
    SetProblem,
    best_changes,
    integer,
    learning_rate,
    number,
    search_from,
)
from cf2.methods.reduction import first_gains
from cf2.methods.relaxation import Descent, Step, descend, start
from cf2.sets.search import Choice, Effort, Search
from cf2.sets.tests import Test

SETTLED = 20  # epochs of the masks of a second search


@dataclass(frozen=True)
class Relaxed(CheckedSettings):
    """Settings of the relaxed problem; `lam=None` scales λ to the instance's own number of units."""

    epochs: int = integer(500)
    lr: float = learning_rate(0.05)
    alpha: float = number(0.6, 0, 1)
    gamma: float = number(0.5, 0, 1)
    lam: float | None = number(None, 0, 1e30)
    threshold: float = number(0.5, 0, 1)
    patience: int | None = integer(None)
    messages: bool = False


def relaxed_loss(step: Step, tests: Sequence[Test], settings: Relaxed, lam: Tensor) -> Tensor:
    """‖M‖₁ + ‖F‖₁ + λ(α L_f + (1 - α) L_c) of every instance [B], equation (12); one test alone has the weight 1.

    L_f = ReLU(γ + P(ŷ_s) - P(ŷ)) with what M keeps, equation (10), and L_c = ReLU(γ + P(ŷ) - P(ŷ_s)) without what M
    removes, equation (11). The criterion's margin is P(ŷ) - P(ŷ_s) for classes.
    """
    strength = torch.zeros_like(step.size)
    for test, outputs in zip(tests, step.outputs):
        margin = step.criterion.margin(outputs)
        weight = 1.0 if len(tests) == 1 else settings.alpha if test.same else 1 - settings.alpha
        strength = strength + weight * torch.relu(settings.gamma - margin if test.same else settings.gamma + margin)
    return step.size + lam * strength


def relax(problem: Problem, settings: Relaxed) -> Descent:
    """Soft masks of all instances of a problem."""
    # The size starts at about the number of units and each hinge at about γ, so λ = 2 · units puts them level.
    units, tests = problem.pack.units.counts, problem.tests
    lam = 2.0 * units.clamp(min=1) if settings.lam is None else torch.full_like(units, settings.lam, dtype=torch.float)

    return descend(
        problem,
        lambda step: relaxed_loss(step, tests, settings, lam[step.rows]),
        start(problem.pack, problem.seed),
        epochs=settings.epochs,
        lr=settings.lr,
        interventions=tuple(test.intervention for test in tests),
        patience=settings.patience,
        threshold=settings.threshold,
        messages=settings.messages,
    )


def rank_relaxed(problem: Problem, settings: Relaxed) -> Ranking:
    """The paper's procedure: relax, then threshold."""
    soft = relax(problem, settings)
    return Ranking(soft.mask, Choice(soft.mask > settings.threshold, 3 * len(problem.tests) * soft.epochs))


@dataclass(frozen=True)
class Verified(Relaxed):
    """Settings of the relaxed problem that guides the search, and of the search."""

    epochs: int = integer(2)
    lr: float = learning_rate(0.1)
    messages: bool = True
    effort: Effort = "standard"
    confidence: float = 0.0
    proof: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        Search(self.effort, self.confidence, self.proof)


def rank_verified(problem: SetProblem, settings: Verified) -> Ranking:
    """Relax for a few epochs, then search for the smallest set that passes the tests."""

    def rank(part: SetProblem) -> Ranking:
        # Edits that add or change are ranked by their slopes on the graph as it is, because a graph with half of each
        # of a thousand additions teaches nothing. Without gradients, units are ranked by leaving each one out.
        edits = part.oracle.absent is not None
        if not isinstance(part, Problem) or not (edits or part.oracle.has_slopes):
            return rank_left_out(part)
        return rank_edits(part) if edits else rank_relaxed(part, settings)

    search = Search(settings.effort, settings.confidence, settings.proof)
    found = search_from(problem, rank(problem), search, rank)
    if settings.effort == "quick" or not isinstance(problem, Problem):  # without a graph there are no soft masks
        return found
    return _guided_longer(problem, settings, search, found)


def _guided_longer(problem: Problem, settings: Verified, search: Search, found: Ranking) -> Ranking:
    """Search again for instances without a set and without a proof, from masks that had time to settle."""
    # After two epochs masks say which units matter, not how they work together. If the model gives the answer for most
    # sets, the empty one too, that is what a search needs. A quick search says whether the masks lead to a set at all,
    # and only if they do, the whole search follows.
    choice, pack = found.choice, problem.pack
    missed = torch.tensor([status == "not found" for status in choice.status or ()], device=pack.units.owner.device)
    rows = missed.nonzero().flatten()
    soft = pack.units.absent is None and problem.predictor.has_slopes(pack)
    if not len(rows) or not soft or settings.epochs >= SETTLED:
        return found
    part = problem.take(rows)
    guide = rank_relaxed(part, replace(settings, epochs=SETTLED))
    tried = search_from(part, guide, replace(search, effort="quick", proof=0), grows=False)
    choice = replace(choice, evaluations=choice.evaluations.index_add(0, rows, tried.choice.evaluations))
    passed = torch.tensor([status == "found" for status in tried.choice.status or ()], device=rows.device)
    if not bool(passed.any()):
        return replace(found, choice=choice)
    scores = guide.scores[passed[part.pack.units.owner]]
    rows, part = rows[passed], part.take(passed.nonzero().flatten())
    again = search_from(part, Ranking(scores, Choice(scores > 0, choice.evaluations[rows])), search)
    own = torch.zeros_like(missed).index_fill(0, rows, True)[pack.units.owner]
    facts = {name: list(getattr(choice, name)) for name in ("status", "minimal", "optimal", "lower_bound")}
    for position, row in enumerate(rows.tolist()):
        for name, values in facts.items():
            values[row] = getattr(again.choice, name)[position]
    selected = choice.selected.masked_scatter(own, again.choice.selected)
    evaluations = choice.evaluations.index_copy(0, rows, again.choice.evaluations)
    choice = replace(choice, selected=selected, evaluations=evaluations, **facts)
    return Ranking(found.scores.masked_scatter(own, scores), choice)


def rank_edits(problem: Problem) -> Ranking:
    """Edits ranked by how much each of them alone helps, by slopes on the graph as it is."""
    (gains, cost), price = first_gains(problem), problem.pack.units.price
    scores = best_changes(problem, gains if price is None else gains / price)
    return Ranking(scores, Choice(torch.zeros_like(scores, dtype=torch.bool), cost))


def rank_left_out(problem: SetProblem) -> Ranking:
    """Units ranked by what the answer loses when each alone is left out of everything, by trials.

    For a test that keeps S, everything but the unit is kept; for one that removes S, the unit is removed.
    """
    (test,) = problem.tests[-1:]
    trials = replace(problem, tests=(test,)).trials()
    start = trials.selectable if test.intervention.keeps else torch.zeros_like(trials.valid)
    scores = trials.flat(trials.slopes(trials.rows, start)[1][:, :, 0])
    return Ranking(scores, Choice(torch.zeros_like(scores, dtype=torch.bool), trials.evaluations))


VERIFIED = Method(
    name="cf2",
    title="CF² (verified)",
    summary="relaxed optimisation as a guide, then a search for the smallest verified set",
    settings=Verified,
    rank=rank_verified,
    edits=True,
    searches=True,
)

RELAXED = Method(
    name="cf2-relaxed",
    title="CF²",
    summary="the paper's procedure: relaxed optimisation, then a threshold",
    settings=Relaxed,
    rank=rank_relaxed,
    paper=("lam", "threshold"),
)
