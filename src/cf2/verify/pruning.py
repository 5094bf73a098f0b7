"""Dropping what is not needed: runs of the least important units, halving their length, and single ones."""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.verify.trials import Trials

AHEAD = 4  # steps of a pruning that are run at once where there is a single instance


def prune(
    trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, passed: Tensor, below: Tensor | None = None
) -> Tensor:
    """Drop runs of the least important units, halving their length, then single ones, while the tests pass.

    A set that has not `passed` is pruned to what keeps passing the tests that it does pass. With sizes
    `below` which to get, a set is left as it is once as many runs have proved needed.
    """
    order = ranking.argsort(dim=1, stable=True)  # once: what is dropped leaves a gap
    state = _Pruning(
        rows=rows,
        back=order.argsort(1),
        need=_needs(trials, rows, sets, passed),
        below=below,
        sets=sets.gather(1, order),
        free=_free(trials, rows, sets).gather(1, order),
    )
    ahead = 0  # steps that are known already
    while True:
        todo = state.todo()
        if not len(todo):
            return state.sets.gather(1, state.back)
        if trials.few and not ahead:
            ahead = _look_ahead(trials, state.take(todo))
        ahead = max(ahead - 1, 0)
        block = state.block(todo)
        good = trials.passes(rows[todo], state.without(todo, block), state.need[todo])
        state.step(todo, block, good)


class _Pruning:
    """How far the prunings of some sets are; their columns are in the order of the ranking."""

    def __init__(
        self, rows: Tensor, back: Tensor, need: Tensor, below: Tensor | None, sets: Tensor, free: Tensor
    ) -> None:
        self.rows, self.back, self.need, self.below, self.sets, self.free = rows, back, need, below, sets, free
        self.length = (free.sum(1) // 2).clamp(min=1)
        self.skip = torch.zeros_like(self.length)  # units at the bottom of the ranking that have proved needed

    def todo(self) -> Tensor:
        """Which are not done."""
        return ((self.length > 0) & (self.skip < self.free.sum(1))).nonzero().flatten()

    def block(self, todo: Tensor) -> Tensor:
        """The run of units that is tried next."""
        mine, first = self.free[todo], self.skip[todo, None]
        place = mine.cumsum(1) - 1
        return mine & (place >= first) & (place < first + self.length[todo, None])

    def without(self, todo: Tensor, block: Tensor) -> Tensor:
        """The sets without the run, with their columns as trials have them."""
        return (self.sets[todo] & ~block).gather(1, self.back[todo])

    def step(self, todo: Tensor, block: Tensor, good: Tensor) -> None:
        """Go on: the run is dropped where that is good, and is needed elsewhere."""
        dropped = block & good[:, None]
        self.sets[todo] &= ~dropped
        self.free[todo] &= ~dropped
        self.skip[todo[~good]] += self.length[todo[~good]]
        if self.below is not None:
            lost = todo[self.skip[todo] >= self.length[todo] * self.below[todo]]
            self.length[lost], self.skip[lost] = 1, self.sets.size(1)
        over = todo[self.skip[todo] >= self.free[todo].sum(1)]
        finer = over[self.length[over] > 1]
        self.length[over[self.length[over] == 1]] = 0
        self.length[finer] = (self.length[finer] // 2).clamp(min=1)
        self.skip[finer] = 0

    def take(self, index: Tensor) -> _Pruning:
        """Some of them, which may repeat."""
        below = None if self.below is None else self.below[index]
        made = _Pruning(self.rows[index], self.back[index], self.need[index], below, self.sets[index], self.free[index])
        made.length, made.skip = self.length[index], self.skip[index]
        return made


def _look_ahead(trials: Trials, state: _Pruning) -> int:
    """Run what the next steps may ask for, whatever each of them gives, in one call; how many steps that are."""
    depth = AHEAD if len(state.rows) == 1 else AHEAD - 1
    rows, sets = [], []
    for _ in range(depth):
        todo = state.todo()
        if not len(todo):
            break
        block = state.block(todo)
        rows.append(state.rows[todo])
        sets.append(state.without(todo, block))
        both = state.take(todo.repeat(2))
        every = torch.arange(2 * len(todo), device=todo.device)
        both.step(every, block.repeat(2, 1), every < len(todo))
        state = both
    trials.together(torch.cat(rows), torch.cat(sets))
    return depth


def _free(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    """The units of sets that may be dropped."""
    return sets if trials.required is None else sets & ~trials.required[rows]


def _needs(trials: Trials, rows: Tensor, sets: Tensor, passed: Tensor) -> Tensor:
    """Which tests [R, tests] a pruned set must keep passing: all, or those that it passes now."""
    need = torch.ones(len(rows), len(trials.tests), dtype=torch.bool, device=rows.device)
    failed = (~passed).nonzero().flatten()
    for column, test in enumerate(trials.tests):
        need[failed, column], _ = trials.test(test, rows[failed], sets[failed])
    return need


def prune_single(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor) -> Tensor:
    """Drop units until every one left is needed by itself: the proof of `minimal`.

    Each round tries every single drop. Where several work, as many as still work together go at once.
    """
    sets = sets.clone()
    todo = torch.arange(len(rows), device=rows.device)
    while len(todo):
        owner, unit = _free(trials, rows[todo], sets[todo]).nonzero(as_tuple=True)
        candidates = sets[todo[owner]].clone()
        candidates[torch.arange(len(unit), device=unit.device), unit] = False
        good = trials.passes(rows[todo[owner]], candidates)
        loose = torch.zeros_like(sets[todo])
        loose[owner[good], unit[good]] = True
        todo, loose = todo[loose.any(1)], loose[loose.any(1)]
        sets[todo] = _drop_together(trials, rows[todo], sets[todo], loose, ranking[todo])
    return sets


def _drop_together(trials: Trials, rows: Tensor, sets: Tensor, loose: Tensor, ranking: Tensor) -> Tensor:
    """Drop the least important of the loose units: all, or half of them, or a quarter, … or one, as may be."""
    sets = sets.clone()
    order = ranking.masked_fill(~loose, float("inf")).argsort(dim=1, stable=True).argsort(1)
    count = loose.sum(1)
    left = torch.arange(len(rows), device=rows.device)
    while len(left):
        candidates = sets[left] & ~(loose[left] & (order[left] < count[left, None]))
        single = count[left] == 1  # known to pass
        good = single.clone()
        good[~single] = trials.passes(rows[left[~single]], candidates[~single])
        sets[left[good]] = candidates[good]
        left = left[~good]
        count[left] = (count[left] // 2).clamp(min=1)
    return sets
