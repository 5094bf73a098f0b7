"""Of the smallest sets, the most robust: the one whose tests hold by the widest margin.

Smallest sets are rarely unique. Which of them is returned should be a property of the graph and not of the way that the
search took. So units are swapped for others while that widens the margin, and of equals the first by unit counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.verify.trials import ALIKE, EQUAL, Trials, best_of, top

ENOUGH = 10.0  # more slack than this is no better: of two classes, the other one has less than 5 in 100,000
WIDER = 1e-3  # margins closer than this are equal: they may be the same number, summed in another order
BATCH = 4  # swaps of an instance that are tried at once
PARTNERS = 12  # units to drop, and units to add, that a swap is made of


def margin(slack: Tensor) -> Tensor:
    """By how much all tests hold, from the slack in each [..., tests]: as the one does that holds least."""
    return slack.clamp(max=ENOUGH).amin(-1)


def margins(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    """The margins of sets [R] that are known to pass; they have been tried, so nothing is run again.

    With neighbours, a set holds by no more than on the one where it holds by least.
    """
    slack = [trials.test(test, rows, sets)[1] for test in trials.tests]
    if trials.rules is not None:
        slack.append(trials.rules.slack(rows, sets))
    return margin(torch.stack(slack, 1))


def widest(rows: Tensor, margins: Tensor, instances: int) -> Tensor:
    """The position of the candidate with the widest margin of every instance, the first of equals; -1 where none."""
    return best_of(rows, margins * (EQUAL / WIDER), instances)


def widen(trials: Trials, rows: Tensor, sets: Tensor, swaps: int) -> Tensor:
    """Swap units of passing sets [R, U] while the tests pass by a wider margin; no set gets larger.

    The swaps are tried in the order of what slopes promise. A set is left alone after `swaps` of them without a wider
    margin, or when there are no more.
    """
    sets = sets.clone()
    best = margins(trials, rows, sets)
    tried = torch.zeros_like(rows)  # swaps of the present set
    slack = torch.zeros(len(rows), len(trials.tests), device=rows.device)
    slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
    live = fresh = torch.arange(len(rows) if swaps else 0, device=rows.device)
    while len(live):
        if len(fresh):
            slack[fresh], slope[fresh] = trials.slopes(rows[fresh], sets[fresh])
        owner, drop, add = _swaps(trials, rows[live], sets[live], slack[live], slope[live], tried[live])
        owner = live[owner]
        made = sets[owner].clone()
        made[torch.arange(len(owner), device=rows.device), drop] = False
        made[torch.arange(len(owner), device=rows.device), add] = True
        value = _margins(trials, rows[owner], made, sets[owner])
        place = widest(owner, value, len(rows))
        wider = (place >= 0) & (torch.cat([value, best[:1]])[place] > best + WIDER)
        count = torch.bincount(owner, minlength=len(rows))
        tried += count
        fresh = wider.nonzero().flatten()
        sets[fresh], best[fresh], tried[fresh] = made[place[fresh]], value[place[fresh]], 0
        live = live[wider[live] | ((count[live] == BATCH) & (tried[live] < swaps))]
    return sets


def _margins(trials: Trials, rows: Tensor, made: Tensor, before: Tensor) -> Tensor:
    """The margins of sets [R]; -∞ of those that fail, break a rule or are larger than `before`."""
    value = torch.full((len(rows),), float("-inf"), device=rows.device)
    good = trials.allowed(rows, made) & (trials.size(rows, made) <= trials.size(rows, before) + 1e-6)
    good[good.clone()] = trials.run(rows[good], made[good]).passes
    value[good] = margins(trials, rows[good], made[good])
    return value


def _swaps(
    trials: Trials, rows: Tensor, sets: Tensor, slack: Tensor, slope: Tensor, skip: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The next most promising swaps of every set: its place, the unit that goes and the one that comes."""
    free = sets if trials.required is None else sets & ~trials.required[rows]
    other = trials.selectable[rows] & ~sets
    equal = ALIKE * slope.abs().sum(2).amax(1)
    now, never = slack[:, None].double(), float("-inf")
    left, drop = top(margin(now - slope).masked_fill(~free, never), PARTNERS, equal)
    came, add = top(margin(now + slope).masked_fill(~other, never), PARTNERS, equal)
    loss, gain = (slope.gather(1, unit[..., None].expand(-1, -1, slope.size(2))) for unit in (drop, add))
    guess = margin(now[:, None] - loss[:, :, None] + gain[:, None])
    guess = guess.masked_fill(~(left.isfinite()[:, :, None] & came.isfinite()[:, None]), never).flatten(1)
    value, pair = top(guess, int(skip.max()) + BATCH, 2 * equal)
    place = torch.arange(value.size(1), device=rows.device)[None] - skip[:, None]
    owner, at = (value.isfinite() & (place >= 0) & (place < BATCH)).nonzero(as_tuple=True)
    pair = pair[owner, at]
    return owner, drop[owner, pair // add.size(1)], add[owner, pair % add.size(1)]
