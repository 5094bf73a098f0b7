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
WIDER = 8  # where a set was grown in vain, so many times the candidates are tried in each step


def start_edits(trials: Trials, ranking: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """A first set of edits per instance [B, U], and whether it passes [B]; where none does, nothing is edited."""
    rows = torch.arange(trials.pack.num_instances, device=ranking.device)
    sets, outcome, _ = prefixes(trials, ranking)
    passed = outcome.passes.clone()
    sets = torch.where(passed[:, None], sets, trials.admissible(rows, torch.zeros_like(sets)))
    hit = passed.nonzero().flatten()
    sets[hit] = prune(trials, hit, sets[hit], ranking[hit], passed[hit])
    for adds in (2 * budget.adds, WIDER * budget.adds):
        size = sets.sum(1)
        large = trials.size(rows, sets) > 2 * _cheapest(trials)
        todo = rows[~passed | large] if adds == 2 * budget.adds else rows[~passed]
        known = size[todo] - 1 if trials.price is None else size[todo] + 2  # more edits may be the cheaper ones
        most = torch.where(passed[todo], known.clamp(max=MOST), MOST)
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
