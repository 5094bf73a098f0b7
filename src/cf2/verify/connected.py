"""Exhaustion for nodes and pairs: what is joined to the target first, then what makes it necessary.

What the model says of S alone depends only on T, the part of S that the target can still see. T grows edge by edge from
the target, so there are few such sets, and a set S can pass only if its T does. So all T are tried alone, and only
those that pass are completed by further units, of which only removal can notice anything.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Protocol

import torch
from torch import Tensor

from cf2.core.packing import owners, spans
from cf2.verify.field import Fields
from cf2.verify.trials import Trials


class Search(Protocol):
    """What is tried of one instance; see `proof.Exhaustion`."""

    trials: Trials
    row: int
    top: int
    exhausted: int
    budget: int
    partly: bool
    certain: bool
    complete: bool
    free: list[int]

    def spend(self, sets: int) -> bool: ...
    def combined(self, base: Tensor, units: list[int], number: int) -> Iterator[Tensor]: ...
    def found(self, good: Tensor) -> bool: ...
    def done(self, number: int) -> None: ...


def applies(trials: Trials) -> bool:
    """Whether trials have fields of their own, and some test looks at S alone."""
    plain = trials.fields is not None and trials.required is None and trials.price is None
    return plain and _alone(trials) is not None


def _alone(trials: Trials) -> int | None:
    return next((column for column, test in enumerate(trials.tests) if test.intervention.keeps), None)


def connected(search: Search) -> Generator[tuple[Tensor, int | None], Tensor, None]:
    """All sets that could pass, by size: those T that pass alone, each with every choice of further units."""
    trials, column = search.trials, _alone(search.trials)
    level = torch.zeros_like(trials.valid[search.row : search.row + 1])
    counts: list[int] = []
    alone: list[Tensor] = []  # by size, what passes alone
    for number in range(search.top + 1):
        if number:
            level = _grown(search, level)
        counts.append(len(level))
        if not search.partly and not search.certain and not _in_sight(search, counts, alone):
            return
        if not search.spend(len(level)):
            return
        good = level.new_zeros(0)
        for part in torch.split(level, 4096):
            good = torch.cat([good, (yield part, column)])
        alone.append(level[good])
        if number < search.exhausted:
            continue
        if not search.spend(_completions(search, alone, number)):
            return
        for size, sets in enumerate(alone):
            for base in sets:
                rest = [unit for unit in search.free if not base[unit]]
                for some in search.combined(base, rest, number - size):
                    passing = yield some, None
                    if search.found(some[passing]):
                        search.complete = True
                        return
        search.done(number)


def _completions(search: Search, alone: list[Tensor], number: int) -> int:
    """How many sets of so many units have a part that passes alone."""
    count = len(search.free)
    return sum(len(sets) * math.comb(count - size, number - size) for size, sets in enumerate(alone) if size <= number)


def _in_sight(search: Search, counts: list[int], alone: list[Tensor]) -> bool:
    """Whether the budget will hold to the end, if there are ever more parts as there have been so far."""
    growth = counts[-1] / counts[-2] if len(counts) > 2 else 2.0
    sets, level = 0.0, float(counts[-1])
    for number in range(len(counts) - 1, search.top + 1):
        sets += level + (_completions(search, alone, number) if number >= search.exhausted else 0)
        level *= growth
        if sets > search.budget:
            return False
    return True


def _grown(search: Search, level: Tensor) -> Tensor:
    """Every set of the level with one unit more, at an edge of what its target can see; each once."""
    trials, fields = search.trials, search.trials.fields
    assert isinstance(fields, Fields)
    parts = [level[:0]]
    for some in torch.split(level, 1024):
        rows = torch.full((len(some),), search.row, device=some.device)
        field = fields.find(rows, some if trials.fixed is None else some | trials.fixed[rows])
        at, ptr, _ = spans(fields.ptr, field.nodes)
        trial, unit = field.of_node[owners(ptr)], fields.unit[fields.column[at]]
        new = (unit >= 0).nonzero().flatten()
        trial, unit = trial[new], unit[new]
        keep = trials.selectable[search.row, unit] & ~some[trial, unit]
        grown = some[trial[keep]].clone()
        grown[torch.arange(len(grown), device=grown.device), unit[keep]] = True
        parts.append(torch.unique(grown, dim=0))
    once: Tensor = torch.unique(torch.cat(parts), dim=0)
    return once
