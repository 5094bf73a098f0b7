"""How surely a set decides: probabilities of sufficiency and necessity over contexts.

The two tests ask of S alone and of all but S. A *context* T is some part of the units outside of S, and asks the same
questions between these two ends. In a context every unit is there with probability p, and p is uniform on [0, 1], so
that contexts of every size are equally likely:

    PS(S)  = P[f(S ∪ T) = c]
    PN(S)  = P[f(T) ≠ c | f(S ∪ T) = c]
    PNS(S) = P[f(S ∪ T) = c and f(T) ≠ c]

"= c" is what the criterion of the question says. Where S adds or changes something, f(T) is the context with these
edits carried out. What is `fixed` is always there, and what is `absent` is in no context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from cf2.sets.oracle import Oracle
from cf2.sets.tests import Criterion

MAX_STATES_PER_CALL = 1 << 26  # states of units that are written down at once
CONFIDENCE = 0.95  # of an interval

# Contexts of an instance by its row, over n units: bool [count, n], the same in every call.
Draw = Callable[[int, int], Tensor]


class Probability(NamedTuple):
    """A probability and its 95 % interval, whose ends are the value where all contexts were tried."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Strength:
    """PS, PN and PNS of one set; `pn` is None where the answer holds in no context."""

    ps: Probability
    pn: Probability | None
    pns: Probability
    contexts: int
    every: bool  # whether these are all contexts there are

    @property
    def evaluations(self) -> int:
        """Runs of the model that it cost: with S and without it."""
        return 2 * self.contexts


def draw_contexts(count: int, units: int, generator: torch.Generator) -> Tensor:
    """Contexts over some units: each has a p of its own, with which its units are there; bool [count, units]."""
    p = torch.rand((count, 1), generator=generator)
    return torch.rand((count, units), generator=generator) < p


def every_context(units: int) -> tuple[Tensor, Tensor]:
    """All contexts over some units, bool [2^units, units], and the probability of each under the mixture.

    Of a units that are there and b that are not it is ∫ p^a (1-p)^b dp = B(a+1, b+1).

    >>> contexts, probability = every_context(2)
    >>> contexts.sum(1).tolist(), [round(p, 3) for p in probability.tolist()]
    ([0, 1, 1, 2], [0.333, 0.167, 0.167, 0.333])
    """
    contexts = (torch.arange(2**units)[:, None] >> torch.arange(units)[None]) & 1 > 0
    by_size = [1 / ((units + 1) * comb(units, size)) for size in range(units + 1)]
    return contexts, torch.tensor(by_size, dtype=torch.double)[contexts.sum(1)]


def clopper_pearson(hits: int, count: int) -> Probability:
    """A share with the interval of Clopper and Pearson, which covers at least as often as it says.

    >>> [round(part, 3) for part in clopper_pearson(10, 10)]
    [1.0, 0.692, 1.0]
    """
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return Probability(hits / count, low, high)


def strengths(
    oracle: Oracle, criterion: Criterion, rows: Tensor, sets: Tensor, count: int, draw: Draw
) -> list[Strength]:
    """PS, PN and PNS of sets [R, U, bool] of instances `rows` [R], which may repeat.

    All sets of an instance meet the same `count` contexts that `draw` gives. A set outside of which there are so few
    units that all contexts are at most `count` is measured exactly.
    """
    free = oracle.valid.clone()
    for flag in (oracle.absent, oracle.fixed):
        free = free if flag is None else free & ~flag
    measured = []
    for part in torch.arange(len(rows)).split(max(1, MAX_STATES_PER_CALL // (2 * count * max(oracle.width, 1)))):
        measured += _strengths(oracle, criterion, rows[part], sets[part], free, count, draw)
    return measured


def _strengths(
    oracle: Oracle, criterion: Criterion, rows: Tensor, sets: Tensor, free: Tensor, count: int, draw: Draw
) -> list[Strength]:
    """The same in one packed pass."""
    contexts, weights = [], []
    for row, chosen in zip(rows.tolist(), sets):
        own, outside = free[row], free[row] & ~chosen
        there = (~own).expand(count, -1).clone()  # what cannot go is there, what is absent is as it was
        units, weight = int(outside.sum()), None
        if 2 ** min(units, 63) <= count:
            bits, weight = every_context(units)
            there = there[: len(bits)]
            there[:, outside] = bits.to(rows.device)
        else:
            there[:, own] = draw(row, int(own.sum())).to(rows.device)
        contexts.append(there)
        weights.append(weight)
    lengths = torch.tensor([len(part) for part in contexts], device=rows.device)
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    states, chosen = torch.cat(contexts), sets[owner]
    both = torch.cat([states | chosen, states & ~chosen])
    instances = rows[owner].repeat(2)
    holds = criterion.take(instances).holds(oracle.outputs(instances, both)).cpu()
    parts = [half.split(lengths.tolist()) for half in holds.chunk(2)]
    return [_strength(*row) for row in zip(*parts, weights)]


def _strength(kept: Tensor, still: Tensor, weight: Tensor | None) -> Strength:
    """From whether the answer holds with S and without it in every context [n], and the weights of all contexts."""
    decided = kept & ~still
    if weight is None:
        hits, both = int(kept.sum()), int(decided.sum())
        pn = clopper_pearson(both, hits) if hits else None
        return Strength(clopper_pearson(hits, len(kept)), pn, clopper_pearson(both, len(kept)), len(kept), False)
    ps, pns = (min(float(weight[event].sum()), 1.0) for event in (kept, decided))
    pn = pns / ps if ps else None
    ps_, pns_ = Probability(ps, ps, ps), Probability(pns, pns, pns)
    return Strength(ps_, None if pn is None else Probability(pn, pn, pn), pns_, len(kept), True)
