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
from cf2.sets.tests import WITHOUT, Criterion, Test
from cf2.sets.trials import Trials, best_of, top

MAX_STATES_PER_CALL = 1 << 26  # states of units that are written down at once
CONFIDENCE = 0.95  # of an interval
HOLDS = Test("holds", WITHOUT, same=True)  # asked of what is gone in a state

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


def holding(oracle: Oracle, criterion: Criterion) -> Trials:
    """Whether the answer holds in states, none of which is run twice."""
    return Trials(oracle, criterion, (HOLDS,))


def strengths(held: Trials, rows: Tensor, sets: Tensor, count: int, draw: Draw) -> list[Strength]:
    """PS, PN and PNS of sets [R, U, bool] of instances `rows` [R], which may repeat.

    All sets of an instance meet the same `count` contexts that `draw` gives. A set outside of which there are so few
    units that all contexts are at most `count` is measured exactly. `held` counts what was run.
    """
    free = _free(held.oracle)
    measured = []
    for part in torch.split(torch.arange(len(rows)), max(1, MAX_STATES_PER_CALL // (2 * count * max(held.width, 1)))):
        measured += _strengths(held, rows[part], sets[part], free, count, draw)
    return measured


def _free(oracle: Oracle) -> Tensor:
    """The units that contexts may have or not have [B, U]."""
    free = oracle.valid.clone()
    for flag in (oracle.absent, oracle.fixed):
        free = free if flag is None else free & ~flag
    return free


def _strengths(held: Trials, rows: Tensor, sets: Tensor, free: Tensor, count: int, draw: Draw) -> list[Strength]:
    """The same in one packed pass."""
    contexts, weights = [], []
    for row, chosen in zip(rows.tolist(), sets):
        outside, weight = free[row] & ~chosen, None
        units = int(outside.sum())
        if 2 ** min(units, 63) <= count:
            bits, weight = every_context(units)
            there = (~free[row]).expand(len(bits), -1).clone()  # what cannot go is there, what is absent as it was
            there[:, outside] = bits.to(rows.device)
        else:
            there = _drawn(free[row], row, draw)
        contexts.append(there)
        weights.append(weight)
    lengths = torch.tensor([len(part) for part in contexts], device=rows.device)
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    states, chosen = torch.cat(contexts), sets[owner]
    kept, still = (_holds(held, rows[owner], part) for part in (states | chosen, states & ~chosen))
    parts = [torch.split(half.cpu(), lengths.tolist()) for half in (kept, still)]
    return [_strength(*row) for row in zip(*parts, weights)]


def _drawn(free: Tensor, row: int, draw: Draw) -> Tensor:
    """The contexts of an instance with these free units [U], as states [count, U]."""
    bits = draw(row, int(free.sum())).to(free.device)
    there = (~free).expand(len(bits), -1).clone()
    there[:, free] = bits
    return there


def _holds(held: Trials, rows: Tensor, states: Tensor) -> Tensor:
    """Whether the answer holds in states [R, U]: bool [R]."""
    return held.test(HOLDS, rows, ~states)[0]


def _strength(kept: Tensor, still: Tensor, weight: Tensor | None) -> Strength:
    """From whether the answer holds with S and without it in every context [n], and the weights of all contexts."""
    decided = kept & ~still
    if weight is None:
        hits, both = int(kept.sum()), int(decided.sum())
        pn = clopper_pearson(both, hits) if hits else None
        return Strength(clopper_pearson(hits, len(kept)), pn, clopper_pearson(both, len(kept)), len(kept), False)
    ps, pns = (1.0 if event.all() else float(weight[event].sum()) for event in (kept, decided))
    exact = [Probability(value, value, value) for value in (ps, pns / ps if ps else 0.0, pns)]
    return Strength(exact[0], exact[1] if ps else None, exact[2], len(kept), True)


# -- sets that decide surely ----------------------------------------------------------------------------------

SEARCH_CONTEXTS = 64  # by which a search compares sets
RUNGS = ((8, 8), (24, 3), (SEARCH_CONTEXTS, 1))  # contexts that candidates have met, and how many are kept after them
MAX_CANDIDATES = 32  # units that are tried in a step, the most promising by slope
MAX_STEPS = 64
ROOM = 1.5  # standard errors by which a search goes beyond what fresh contexts must show
WINDOW = 0.1  # and back to smaller sets until it is this much below what is asked


@dataclass(frozen=True, eq=False)
class Sure:
    """The smallest set of an instance that decides surely enough, or the surest one known, judged on fresh contexts."""

    chosen: Tensor  # [U] bool
    strength: Strength
    reached: bool
    default: bool  # the answer holds when everything is gone: then the whole set decides nothing
    curve: tuple[tuple[int, float], ...]  # sizes, ascending, and the best PNS of each on the contexts of the search


def find_sure(
    trials: Trials, held: Trials, rows: Tensor, sets: Tensor, goal: float, count: int, draw: Draw, fresh: Draw
) -> dict[int, Sure]:
    """By instance of `rows` [R], the smallest set found that passes the tests and has a PNS of at least `goal`.

    It grows from passing `sets` [R, U] by the unit that gains most on contexts that `draw` gives, a few for all units
    and more for the best (successive halving). From the end it goes back by the unit that costs least. What came up is
    then judged on `count` contexts that `fresh` gives and that nothing was chosen by, from the largest set down to the
    first whose interval ends below `goal`. That order is fixed before any fresh context is looked at, so testing
    several sets makes the claim for the last of them no weaker.
    """
    search = _SureSearch(trials, held, rows, sets, draw)
    needed = _share_needed(goal, count)
    aim = min(needed + ROOM * (needed * (1 - needed) / SEARCH_CONTEXTS) ** 0.5, 1.0)
    search.walk(~search.default, _outside, lambda: search.share < aim)
    first = sets.sum(1)
    search.walk(~search.default, _inside, lambda: (search.share > goal - WINDOW) & (search.sets.sum(1) > first))
    judged = [sorted(best.items(), reverse=True) for best in search.best]
    last: dict[int, tuple[Tensor, Strength, bool]] = {}
    level, alive = 0, [place for place, own in enumerate(judged) if own]
    while alive:
        chosen = torch.stack([judged[place][level][1][1] for place in alive])
        measured = strengths(held, rows[alive], chosen, count, fresh)
        going = []
        for place, own, strength in zip(alive, chosen, measured):
            good = strength.pns.low >= goal
            if good or place not in last:
                last[place] = (own, strength, good)
            if good and level + 1 < len(judged[place]):
                going.append(place)
        alive, level = going, level + 1
    default, curves = search.default.tolist(), [[(size, own[0]) for size, own in part[::-1]] for part in judged]
    return {int(rows[place]): Sure(*own, default[place], tuple(curves[place])) for place, own in last.items()}


def _share_needed(goal: float, count: int) -> float:
    """The least share of `count` contexts whose interval begins at `goal` or above; 1 where none does."""
    hits = (n for n in range(int(goal * count), count + 1) if clopper_pearson(n, count).low >= goal)
    return next(hits, count) / count


def _outside(sets: Tensor, may: Tensor) -> Tensor:
    """The units that a step may add."""
    return may & ~sets


def _inside(sets: Tensor, may: Tensor) -> Tensor:
    """The units that a step may drop."""
    return may & sets


class _SureSearch:
    """Sets that change by one unit at a time, and what that does on the contexts of the search."""

    def __init__(self, trials: Trials, held: Trials, rows: Tensor, sets: Tensor, draw: Draw) -> None:
        self.trials, self.held, self.rows, self.sets = trials, held, rows, sets.clone()
        free = _free(held.oracle)
        self.may = (trials.selectable & free)[rows]
        if trials.required is not None:
            self.may = self.may & ~trials.required[rows]
        self.default = _holds(held, rows, ~free[rows])
        self.contexts = torch.stack([_drawn(free[row], row, draw) for row in rows.tolist()])  # [R, n, U]
        self.kept, self.still = self._seen(self.contexts | sets[:, None]), self._seen(self.contexts & ~sets[:, None])
        self.best: list[dict[int, tuple[float, Tensor]]] = [{} for _ in rows.tolist()]
        self._note(torch.arange(len(rows), device=rows.device))

    @property
    def share(self) -> Tensor:
        """PNS of the sets on these contexts [R]."""
        return (self.kept & ~self.still).double().mean(1)

    def walk(
        self, allowed: Tensor, candidates: Callable[[Tensor, Tensor], Tensor], going: Callable[[], Tensor]
    ) -> None:
        """Flip the best of the candidates of each set that is `allowed` to change, as long as it is `going` on."""
        for _ in range(MAX_STEPS):
            todo = (allowed & going()).nonzero().flatten()
            owner, unit = candidates(self.sets[todo], self.may[todo]).nonzero(as_tuple=True)
            owner, unit = self._promising(todo, owner, unit)
            flipped = self.sets[todo[owner]].clone()
            flipped[torch.arange(len(unit), device=unit.device), unit] ^= True
            good = self.trials.allowed(self.rows[todo[owner]], flipped)
            owner, unit = self._best(todo, owner[good], unit[good])
            if not len(owner):
                return
            todo = todo[owner]
            self.sets[todo, unit] ^= True
            sets, contexts = self.sets[todo, None], self.contexts[todo]
            self.kept[todo] = self._seen(contexts | sets, todo)
            self.still[todo] = self._seen(contexts & ~sets, todo)
            self._note(todo)
            allowed = torch.zeros_like(allowed).index_fill(0, todo, True)  # the others cannot move

    def _promising(self, todo: Tensor, owner: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Of instances with many candidates, those with the steepest slopes in both tests together."""
        counts = torch.bincount(owner, minlength=len(todo))
        crowded = (counts > MAX_CANDIDATES).nonzero().flatten()
        if not len(crowded):
            return owner, unit
        _, slope = self.trials.slopes(self.rows[todo[crowded]], self.sets[todo[crowded]])
        value = torch.full(self.may[todo].shape, float("inf"), device=slope.device)
        sign = torch.where(self.sets[todo[crowded]], -1.0, 1.0)  # a unit that is dropped gives back what it adds
        value[crowded] = slope.sum(2) * sign
        table = torch.full_like(value, float("-inf"))
        table[owner, unit] = value[owner, unit]
        table[crowded] = _only_top(table[crowded], MAX_CANDIDATES)
        owner, unit = (table > float("-inf")).nonzero(as_tuple=True)
        return owner, unit

    def _best(self, todo: Tensor, owner: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """The unit of each of some sets whose flip gives the highest PNS: where a set has one, its place, and that."""
        value, start = torch.zeros(len(owner), dtype=torch.double, device=owner.device), 0
        for stop, keep in RUNGS:
            value = value + self._value(todo[owner], unit, slice(start, stop))
            if keep > 1:
                table = torch.full(self.may[todo].shape, float("-inf"), dtype=torch.double, device=owner.device)
                table[owner, unit] = value
                owner, unit = (_only_top(table, keep) > float("-inf")).nonzero(as_tuple=True)
                value = table[owner, unit]
            start = stop
        position = best_of(owner, value, len(todo))
        position = position[position >= 0]
        return owner[position], unit[position]

    def _value(self, place: Tensor, unit: Tensor, part: slice) -> Tensor:
        """In how many contexts of a part each set decides with a unit of it flipped [K]; of equals, slack decides.

        Where the unit is in the context, f(S ∪ T) stays as it is, and elsewhere f(T) does. So one run is enough, and
        none where the set cannot decide whatever that run says.
        """
        value = torch.zeros(len(place), dtype=torch.double, device=place.device)
        length = part.stop - part.start
        for some in torch.split(
            torch.arange(len(place)), max(1, MAX_STATES_PER_CALL // (length * max(self.held.width, 1)))
        ):
            own, flip = place[some], unit[some]
            contexts, sets = self.contexts[own, part], self.sets[own, None]
            there = contexts.gather(2, flip[:, None, None].expand(-1, length, 1)).squeeze(2)
            open_ = torch.where(there, self.kept[own, part], ~self.still[own, part])
            candidate, context = open_.nonzero(as_tuple=True)
            inside = there[candidate, context]
            states = torch.where(
                inside[:, None], (contexts & ~sets)[candidate, context], (contexts | sets)[candidate, context]
            )
            states[torch.arange(len(states), device=states.device), flip[candidate]] ^= True
            holds, slack = self.held.test(HOLDS, self.rows[own[candidate]], ~states)
            worth = (holds ^ inside).double() + 1e-3 * torch.where(inside, -slack, slack).clamp(-1, 1)
            value[some] = value[some].index_add(0, candidate, worth)
        return value

    def _seen(self, states: Tensor, places: Tensor | None = None) -> Tensor:
        """Whether the answer holds in states [R, n, U] of all sets or of those at some places: bool [R, n]."""
        rows = (self.rows if places is None else self.rows[places]).repeat_interleave(states.size(1))
        return _holds(self.held, rows, states.flatten(0, 1)).view(states.shape[:2])

    def _note(self, places: Tensor) -> None:
        """Keep the sets at some places where they pass the tests and are the surest of their size."""
        passed, share = self.trials.passes(self.rows[places], self.sets[places]), self.share
        for place in places[passed].tolist():
            size, own = int(self.sets[place].sum()), float(share[place])
            if own > self.best[place].get(size, (-1.0,))[0]:
                self.best[place][size] = (own, self.sets[place].clone())


def _only_top(table: Tensor, count: int) -> Tensor:
    """A table [R, U] with all but the `count` highest values of each row at -∞; of equals the first are kept."""
    values, columns = top(table, count, torch.full((len(table),), 1e-9, dtype=table.dtype, device=table.device))
    return torch.full_like(table, float("-inf")).scatter(1, columns, values)
