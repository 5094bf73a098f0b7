"""How a search for edits starts: from nothing, because a few of a thousand possible edits do.

A set that explains is found by leaving units out of everything. A counterfactual that may add edges or change features
is the other way round: carrying out everything that could be done is no graph that anybody asked about.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.verify.moves import Budget, grow, prefixes
from cf2.verify.pruning import prune
from cf2.verify.trials import Trials

MOST = 24  # edits of a set that is grown from nothing
WIDER = 8  # where a set was grown in vain, or is large, so many times the candidates are tried in each step
LARGE = 3  # edits of a set that is grown again, with more candidates


def start_edits(trials: Trials, ranking: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """A first set of edits per instance [B, U], and whether it passes [B]; where none does, nothing is edited."""
    rows = torch.arange(trials.pack.num_instances, device=ranking.device)
    first = ranking
    if trials.rules is not None:  # what the rules refuse by itself spoils every prefix
        alone = trials.rules.movable(rows, torch.zeros_like(trials.valid), alone=True)
        first = ranking.masked_fill(~alone, float("-inf"))
    sets, outcome, _ = prefixes(trials, first)
    passed = outcome.passes.clone()
    sets = torch.where(passed[:, None], sets, trials.admissible(rows, torch.zeros_like(sets)))
    hit = passed.nonzero().flatten()
    sets[hit] = prune(trials, hit, sets[hit], ranking[hit], passed[hit])
    for adds in (2 * budget.adds, WIDER * budget.adds):
        size = sets.sum(1)
        large = trials.size(rows, sets) > (2 if adds == 2 * budget.adds else LARGE) * _cheapest(trials)
        todo = rows[~passed | large]
        known = size[todo] - 1 if trials.price is None else size[todo] + 2  # more edits may be the cheaper ones
        most = torch.where(passed[todo], known.clamp(max=MOST), MOST if adds == 2 * budget.adds else 2 * MOST)
        grown, good = grow(trials, todo, most, adds)
        better = good & (~passed[todo] | (trials.size(todo, grown) < trials.size(todo, sets[todo])))
        sets[todo[better]] = grown[better]
        passed[todo[better]] = True
    return sets, passed


def _cheapest(trials: Trials) -> Tensor | float:
    """What the cheapest unit of each instance counts [B]."""
    if trials.price is None:
        return 1.0
    return trials.price.masked_fill(~trials.selectable, float("inf")).amin(1)
