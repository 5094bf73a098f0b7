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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cf2.sets.oracle import Oracle
from cf2.sets.tests import WITHOUT, Criterion, Test
from cf2.sets.trials import Trials, best_of, top

MAX_STATES_PER_CALL = 1 << 26  # states of units that are written down at once
CONFIDENCE = 0.95  # of an interval
MAX_NODES = 100  # of a branch and bound for the least hitting set
HOLDS = Test("holds", WITHOUT, same=True)  # asked of what is gone in a state

# Contexts of an instance by its row and the units [U] that may be gone: states [count, U], the same in every call.
Draw = Callable[[int, Tensor], Tensor]


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
    lost: tuple[int, ...] | None = None  # units without which the answer is lost though the set is there, the fewest
    bound: int = 0  # no set of fewer units keeps the answer in every context


def draw_contexts(count: int, free: Tensor, generator: torch.Generator) -> Tensor:
    """Contexts as states [count, U]: each has a p of its own, with which every `free` [U] unit is as it was."""
    p = torch.rand((count, 1), generator=generator)
    bits = torch.rand((count, int(free.sum())), generator=generator) < p
    there = (~free).expand(count, -1).clone()
    there[:, free] = bits.to(free.device)
    return there


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


def clopper_pearson(hits: int, count: int, confidence: float = CONFIDENCE) -> Probability:
    """A share with the interval of Clopper and Pearson, which covers at least as often as it says.

    >>> [round(part, 3) for part in clopper_pearson(10, 10)]
    [1.0, 0.692, 1.0]
    """
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return Probability(hits / count, low, high)


def holding(oracle: Oracle, criterion: Criterion) -> Trials:
    """Whether the answer holds in states, none of which is run twice."""
    return Trials(oracle, criterion, (HOLDS,))


def strengths(
    held: Trials, rows: Tensor, sets: Tensor, count: int, draw: Draw, *, exact: bool = True
) -> list[Strength]:
    """PS, PN and PNS of sets [R, U, bool] of instances `rows` [R], which may repeat.

    All sets of an instance meet the same `count` contexts that `draw` gives. If `exact`, a set outside of which there
    are so few units that all contexts are at most `count` meets these instead. `held` counts what was run.
    """
    free = _free(held.oracle)
    measured = []
    for part in torch.split(torch.arange(len(rows)), max(1, MAX_STATES_PER_CALL // (2 * count * max(held.width, 1)))):
        measured += _strengths(held, rows[part], sets[part], free, count if exact else 0, draw)
    return measured


def _free(oracle: Oracle) -> Tensor:
    """The units that contexts may have or not have [B, U]."""
    free = oracle.valid.clone()
    for flag in (oracle.absent, oracle.fixed):
        free = free if flag is None else free & ~flag
    return free


def _strengths(held: Trials, rows: Tensor, sets: Tensor, free: Tensor, most: int, draw: Draw) -> list[Strength]:
    """The same in one packed pass; exact where there are at most so many contexts."""
    contexts, weights = [], []
    for row, chosen in zip(rows.tolist(), sets):
        outside, weight = free[row] & ~chosen, None
        units = int(outside.sum())
        if 2 ** min(units, 63) <= most:
            bits, weight = every_context(units)
            there = (~free[row]).expand(len(bits), -1).clone()  # what cannot go is there, what is absent as it was
            there[:, outside] = bits.to(rows.device)
        else:
            there = draw(row, free[row])
        contexts.append(there)
        weights.append(weight)
    lengths = torch.tensor([len(part) for part in contexts], device=rows.device)
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    states, own = torch.cat(contexts), sets[owner]
    seen = (held.test(HOLDS, rows[owner], ~part) for part in (states | own, states & ~own))
    said = torch.stack([column for passed, room in seen for column in (passed & (room >= 0), passed)])
    absent, measured = held.oracle.absent, []
    # `passed` counts what rounding may decide either way as kept. A share counts what the model says, and a bound only
    # contexts in which the answer is lost for certain.
    for place, (k, may_keep, s, may_still) in enumerate(torch.split(said, lengths.tolist(), dim=1)):
        row, chosen = rows[place], sets[place]
        with_set = contexts[place] | chosen
        quiet = (with_set | free[row]).all(1)  # noise loses the answer by what is there, not by what is gone
        lost = ~with_set[~k & quiet]
        removes = absent is None or not bool((chosen & absent[row]).any())
        hit = [~with_set[~may_keep & quiet], ~contexts[place][~may_still & quiet & removes] | chosen]
        bound = _least_hitting(torch.cat(hit)[:, free[row]].cpu())
        fewest = tuple(lost[lost.sum(1).argmin()].nonzero().flatten().tolist()) if len(lost) else None
        measured.append(replace(_strength(k.cpu(), s.cpu(), weights[place]), lost=fewest, bound=bound))
    return measured


def _least_hitting(gone: Tensor) -> int:
    """How many units a set has at least that meets each of these sets [n, units].

    A set that keeps the answer in every context meets each set of units whose removal loses it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    gone = gone[gone.any(1)]
    if not len(gone):
        return 0
    met = LinearConstraint(torch.unique(gone, dim=0).double().numpy(), 1)
    taken = np.ones(gone.size(1))
    solved = milp(taken, integrality=taken, bounds=Bounds(0, 1), constraints=met, options={"node_limit": MAX_NODES})
    return 1 if solved.mip_dual_bound is None else max(ceil(solved.mip_dual_bound - 1e-6), 1)


def _holds(held: Trials, rows: Tensor, states: Tensor) -> Tensor:
    """Whether the answer holds in states [R, U]: bool [R]."""
    passed, room = held.test(HOLDS, rows, ~states)
    return passed & (room >= 0)


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
RUNGS = ((8, 6), (24, 2), (SEARCH_CONTEXTS, 1))  # contexts that candidates have met, and how many are kept after them
MAX_CANDIDATES = 32  # units that are tried in a step, the most promising by slope
MAX_STEPS = 64
ROOM = 1.0  # standard errors by which a search goes beyond what fresh contexts must show
MORE_ROOM = 3.0  # and goes on to where what it found first is not sure enough on these
MAX_JUDGED = 4  # sets in a row that meet the fresh contexts
JUDGED_CONFIDENCE = 1 - (1 - CONFIDENCE) / 2  # two rows of sets are judged, so that each has half of the error


@dataclass(frozen=True, eq=False)
class Sure:
    """The smallest set of an instance that decides surely enough, or the surest one judged, on fresh contexts."""

    chosen: Tensor  # [U] bool
    strength: Strength
    reached: bool
    default: bool  # the answer holds when everything is gone: then the whole set decides nothing
    curve: tuple[tuple[int, float], ...]  # sizes, ascending, and the best PNS of each on the contexts of the search


def find_sure(
    trials: Trials, held: Trials, rows: Tensor, sets: Tensor, goal: float, count: int, draw: Draw, fresh: Draw
) -> dict[int, Sure]:
    """By instance of `rows` [R], the smallest set found that passes the tests and has a PNS of at least `goal`.

    It grows from passing `sets` [R, U] by the unit that decides most of the contexts, of those that `draw` gives, in
    which the set does not decide yet. From the end it goes back by the unit that costs least. A few contexts are met by
    all candidates, and more by the best (successive halving). The smallest set that seems sure enough is judged on
    `count` contexts that `fresh` gives and that nothing was chosen by, and while one is sure the next smaller follows.
    If the first one is not, the search goes on to a surer one, which is judged, and so on down from there.
    What these two rows hold does not depend on the fresh contexts, and each ends with the first set that fails, so
    that judging several sets costs no more than `JUDGED_CONFIDENCE` pays.
    """
    search = _SureSearch(trials, held, rows, sets, draw)
    needed = _share_needed(goal, count)
    error = (needed * (1 - needed) / SEARCH_CONTEXTS) ** 0.5
    aim, far = (min(needed + room * error, 1.0) for room in (ROOM, MORE_ROOM))
    search.grow(~search.default, aim)
    grown = search.sets.clone()
    search.shrink(~search.default & (search.share >= needed), needed, sets.sum(1))
    met: list[dict[int, Strength]] = [{} for _ in search.best]
    _judge(search, [_smallest(best, aim) for best in search.best], goal, count, fresh, met)
    failed = torch.tensor([bool(own) and not any(_low(s) >= goal for s in own.values()) for own in met])
    failed = failed.to(rows.device) & ~search.default
    search.sets[failed] = grown[failed]
    search.note(failed.nonzero().flatten())
    search.grow(failed, far)
    search.shrink(failed & (search.share >= aim), aim, sets.sum(1))
    # Where a set decides in all contexts of the search, only its size says that another is surer.
    last = [_smallest(best, far) if far < 1 else max(best, default=None) for best in search.best]
    begin = [size if bad else None for size, bad in zip(last, failed.tolist())]
    _judge(search, begin, goal, count, fresh, met)
    found = {}
    for place, own in enumerate(met):
        sure = [size for size, strength in own.items() if _low(strength) >= goal]
        if own:
            size = min(sure) if sure else max(own, key=lambda size: (own[size].pns.value, -size))
            curve = tuple((size, share) for size, (share, _) in sorted(search.best[place].items()))
            chosen, default = search.best[place][size][1], bool(search.default[place])
            found[int(rows[place])] = Sure(chosen, own[size], bool(sure), default, curve)
    return found


def _smallest(best: dict[int, tuple[float, Tensor]], aim: float) -> int | None:
    """The smallest size whose set has a PNS of `aim`, by the contexts of the search, or else that of the surest set."""
    good = [size for size, (share, _) in best.items() if share >= aim]
    return min(good) if good else max(best, key=lambda size: (best[size][0], -size), default=None)


def _judge(
    search: _SureSearch,
    begin: Sequence[int | None],
    goal: float,
    count: int,
    fresh: Draw,
    met: list[dict[int, Strength]],
) -> None:
    """Put the set of size `begin` of each instance to the fresh contexts, and smaller ones as long as they are sure."""
    now = {place: size for place, size in enumerate(begin) if size is not None and size not in met[place]}
    for _ in range(MAX_JUDGED):
        if not now:
            return
        chosen = torch.stack([search.best[place][size][1] for place, size in now.items()])
        measured = strengths(search.held, search.rows[list(now)], chosen, count, fresh)
        going = {}
        for (place, size), strength in zip(now.items(), measured):
            met[place][size] = strength
            smaller = max((other for other in search.best[place] if other < size), default=None)
            if _low(strength) >= goal and smaller is not None and smaller not in met[place]:
                going[place] = smaller
        now = going


def _low(strength: Strength) -> float:
    """What the PNS of a set is at least, at `JUDGED_CONFIDENCE`."""
    if strength.every:
        return strength.pns.value
    hits = round(strength.pns.value * strength.contexts)
    return clopper_pearson(hits, strength.contexts, JUDGED_CONFIDENCE).low


def _share_needed(goal: float, count: int) -> float:
    """The least share of `count` contexts whose interval begins at `goal` or above; 1 where none does."""
    hits = (n for n in range(int(goal * count), count + 1) if clopper_pearson(n, count, JUDGED_CONFIDENCE).low >= goal)
    return next(hits, count) / count


class _SureSearch:
    """Sets of some instances that grow and shrink, and in which contexts of the search they decide."""

    def __init__(self, trials: Trials, held: Trials, rows: Tensor, sets: Tensor, draw: Draw) -> None:
        self.trials, self.held, self.rows, self.sets = trials, held, rows, sets.clone()
        free = _free(held.oracle)
        self.may = (trials.selectable & free)[rows]
        if trials.required is not None:
            self.may = self.may & ~trials.required[rows]
        self.default = _holds(held, rows, ~free[rows])
        self.contexts = torch.stack([draw(row, free[row]) for row in rows.tolist()])  # [R, n, U]
        self.kept, self.still = (torch.zeros_like(self.contexts[:, :, 0]) for _ in range(2))
        self.slack = torch.zeros(self.kept.shape, dtype=torch.float, device=rows.device)  # of the tighter of both
        self.best: list[dict[int, tuple[float, Tensor]]] = [{} for _ in rows.tolist()]
        self.note(torch.arange(len(rows), device=rows.device))

    @property
    def decided(self) -> Tensor:
        """In which contexts the sets decide [R, n]."""
        return self.kept & ~self.still

    @property
    def share(self) -> Tensor:
        """PNS of the sets on these contexts [R]."""
        return self.decided.double().mean(1)

    def grow(self, allowed: Tensor, aim: float) -> None:
        """Add units until the PNS of a set is `aim`, each by the contexts in which the set does not decide yet."""
        for _ in range(MAX_STEPS):
            todo = (allowed & (self.share < aim)).nonzero().flatten()
            order = _order(self.decided[todo].double())
            todo = self._step(todo, self.may[todo] & ~self.sets[todo], order, (~self.decided[todo]).sum(1))
            if not len(todo):
                return
            allowed = torch.zeros_like(allowed).index_fill(0, todo, True)  # the others cannot move

    def shrink(self, allowed: Tensor, least: float, smallest: Tensor) -> None:
        """Drop the unit that costs least until the PNS of a set is below `least` or its size that of `smallest` [R]."""
        for _ in range(MAX_STEPS):
            going = allowed & (self.share >= least) & (self.sets.sum(1) > smallest)
            todo = going.nonzero().flatten()
            # Contexts in which it decides by least come first: there a unit that matters is missed.
            order = _order(torch.where(self.decided[todo], self.slack[todo], float("inf")))
            todo = self._step(todo, self.may[todo] & self.sets[todo], order, self.decided[todo].sum(1))
            if not len(todo):
                return
            allowed = torch.zeros_like(allowed).index_fill(0, todo, True)

    def _step(self, todo: Tensor, units: Tensor, order: Tensor, count: Tensor) -> Tensor:
        """Flip, in each set at `todo` [r], the one of `units` [r, U] with the highest PNS then; which sets moved.

        The contexts of an instance are asked in their `order` [r, n], and only the first `count` [r] of them.
        """
        owner, unit = self._candidates(todo, units)
        value, start = torch.zeros(len(owner), dtype=torch.double, device=owner.device), 0
        for stop, keep in RUNGS:
            position = torch.arange(start, min(stop, order.size(1)), device=owner.device)
            candidate, column = (position[None] < count[owner][:, None]).nonzero(as_tuple=True)
            context = order[owner[candidate], position[column]]
            value = value.index_add(0, candidate, self._worth(todo[owner], unit, candidate, context))
            if keep > 1:
                table = torch.full(units.shape, float("-inf"), dtype=torch.double, device=owner.device)
                table[owner, unit] = value
                owner, unit = (_only_top(table, keep) > float("-inf")).nonzero(as_tuple=True)
                value = table[owner, unit]
            start = stop
        best = best_of(owner, value, len(todo))
        best = best[best >= 0]
        todo, unit = todo[owner[best]], unit[best]
        self.sets[todo, unit] ^= True
        self.note(todo)
        return todo

    def _candidates(self, todo: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Owners among `todo` and units, of `units` [r, U], whose flip is allowed; of many the most promising."""
        owner, unit = units.nonzero(as_tuple=True)
        owner, unit = self._promising(todo, owner, unit)
        flipped = self.sets[todo[owner]].clone()
        flipped[torch.arange(len(unit), device=unit.device), unit] ^= True
        good = self.trials.allowed(self.rows[todo[owner]], flipped)
        return owner[good], unit[good]

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

    def _worth(self, place: Tensor, unit: Tensor, candidate: Tensor, context: Tensor) -> Tensor:
        """What contexts say of candidates, sets at `place` [K] with a `unit` [K] flipped, by pairs of both [P].

        That is 1 where the candidate decides, and a little by slack. Where the unit is in the context, f(S ∪ T) stays
        as it is, and elsewhere f(T) does: one run is enough, and none where the set cannot decide whatever that says.
        """
        own, flip = place[candidate], unit[candidate]
        worth = torch.zeros(len(own), dtype=torch.double, device=own.device)
        inside = self.contexts[own, context, flip]
        open_ = torch.where(inside, self.kept[own, context], ~self.still[own, context]).nonzero().flatten()
        for some in torch.split(open_, max(1, MAX_STATES_PER_CALL // max(self.held.width, 1))):
            contexts, sets, there = self.contexts[own[some], context[some]], self.sets[own[some]], inside[some]
            states = torch.where(there[:, None], contexts & ~sets, contexts | sets)
            states[torch.arange(len(some), device=own.device), flip[some]] ^= True
            holds, slack = self.held.test(HOLDS, self.rows[own[some]], ~states)
            worth[some] = (holds ^ there) + 1e-3 * torch.where(there, -slack, slack).clamp(-1, 1).double()
        return worth

    def note(self, places: Tensor) -> None:
        """Note what the sets at some places do in all contexts, and keep them where they pass and are the surest."""
        sets, contexts, n = self.sets[places, None], self.contexts[places], self.contexts.size(1)
        rows = self.rows[places].repeat_interleave(n)
        seen = [self.held.test(HOLDS, rows, ~states.flatten(0, 1)) for states in (contexts | sets, contexts & ~sets)]
        (kept, room), (still, excess) = ([part.view(-1, n) for part in pair] for pair in seen)
        self.kept[places], self.still[places] = kept, still
        self.slack[places] = torch.minimum(room, -excess).float()
        passed, share = self.trials.passes(self.rows[places], self.sets[places]), self.share
        for place in places[passed].tolist():
            size, own = int(self.sets[place].sum()), float(share[place])
            if own > self.best[place].get(size, (-1.0,))[0]:
                self.best[place][size] = (own, self.sets[place].clone())


def _order(values: Tensor) -> Tensor:
    """The columns of each row of values [R, n] from the least on; of equals the first."""
    return values.argsort(dim=1, stable=True)


def _only_top(table: Tensor, count: int) -> Tensor:
    """A table [R, U] with all but the `count` highest values of each row at -∞; of equals the first are kept."""
    values, columns = top(table, count, torch.full((len(table),), 1e-9, dtype=table.dtype, device=table.device))
    return torch.full_like(table, float("-inf")).scatter(1, columns, values)
