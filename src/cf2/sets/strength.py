"""How surely a set decides: probabilities of sufficiency and necessity over contexts.

The two tests keep S alone, or all but S. A *context* T is some of the units outside of S, and S is kept or removed
beside it. In a context every unit is there with probability p, and p is uniform on [0, 1], so that contexts of every
size are equally likely:

    PS(S)  = P[f(S ∪ T) = c]
    PN(S)  = P[f(T) ≠ c | f(S ∪ T) = c]
    PNS(S) = P[f(S ∪ T) = c and f(T) ≠ c]

"= c" is what the criterion of the question says. If S adds or changes something, f(T) is the context with these edits
carried out. `fixed` units are in every context, and `absent` units in none. (PN, PS and PNS are those of Pearl, 1999.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cf2.sets.moves import flipped
from cf2.sets.oracle import Oracle
from cf2.sets.tests import WITHOUT, Criterion, Test
from cf2.sets.trials import Trials, best_of, top

MAX_STATES_PER_CALL = 1 << 26  # entries of a table of states
CONFIDENCE = 0.95  # of an interval
MAX_NODES = 100  # of a branch and bound for the least hitting set
HOLDS = Test("holds", WITHOUT, same=True)  # its sets are the units that are gone in a state

# The contexts of an instance, from its row and the units [U] that may be gone: states [n, U], the same in every call.
Draw = Callable[[int, Tensor], Tensor]


class Probability(NamedTuple):
    """A probability and its 95 % interval, whose ends are the value where all contexts were tried."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Strength:
    """PS, PN and PNS of one set; `pn` is None if the answer holds in no context."""

    ps: Probability
    pn: Probability | None
    pns: Probability
    contexts: int
    every: bool  # whether these are all contexts there are
    lost: tuple[int, ...] | None = None  # the fewest units whose removal loses the answer although the set is there
    bound: int = 0  # no set of fewer units keeps the answer in every context


def draw_contexts(count: int, free: Tensor, generator: torch.Generator) -> Tensor:
    """Contexts as states [count, U]: each has its own p, with which every `free` [U] unit is there."""
    p = torch.rand((count, 1), generator=generator)
    bits = torch.rand((count, int(free.sum())), generator=generator) < p
    there = (~free).expand(count, -1).clone()
    there[:, free] = bits.to(free.device)
    return there


def every_context(units: int) -> tuple[Tensor, Tensor]:
    """All contexts over some units, bool [2^units, units], and the probability of each under the mixture.

    With a units there and b units gone, the probability is ∫ p^a (1-p)^b dp = B(a+1, b+1).

    >>> contexts, probability = every_context(2)
    >>> contexts.sum(1).tolist(), [round(p, 3) for p in probability.tolist()]
    ([0, 1, 1, 2], [0.333, 0.167, 0.167, 0.333])
    """
    contexts = (torch.arange(2**units)[:, None] >> torch.arange(units)[None]) & 1 > 0
    by_size = [1 / ((units + 1) * comb(units, size)) for size in range(units + 1)]
    return contexts, torch.tensor(by_size, dtype=torch.double)[contexts.sum(1)]


def clopper_pearson(hits: int, count: int, confidence: float = CONFIDENCE) -> Probability:
    """A share with the interval of Clopper and Pearson (1934), which covers the truth at least as often as it says.

    >>> [round(part, 3) for part in clopper_pearson(10, 10)]
    [1.0, 0.692, 1.0]
    """
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return Probability(hits / count, low, high)


def holding(oracle: Oracle, criterion: Criterion) -> Trials:
    """Trials of whether the answer holds in states."""
    return Trials(oracle, criterion, (HOLDS,))


def strengths(
    held: Trials, rows: Tensor, sets: Tensor, count: int, draw: Draw, *, exact: bool = True
) -> list[Strength]:
    """PS, PN and PNS of sets [R, U, bool] of instances `rows` [R], which may repeat.

    All sets of an instance are measured in the same `count` contexts, those of `draw`. If `exact`, and there are at
    most `count` contexts outside of a set at all, it is measured in all of these instead. `held` counts evaluations.
    """
    removable = _removable(held.oracle)
    most = count if exact else 0  # contexts that are all tried
    per_call = max(1, MAX_STATES_PER_CALL // (2 * count * max(held.width, 1)))
    parts = torch.split(torch.arange(len(rows)), per_call)
    return [own for part in parts for own in _strengths(held, rows[part], sets[part], removable, most, draw)]


def _removable(oracle: Oracle) -> Tensor:
    """The units that are there in some contexts and gone in others [B, U]."""
    free = oracle.valid.clone()
    for flag in (oracle.absent, oracle.fixed):
        free = free if flag is None else free & ~flag
    return free


def _contexts(row: int, chosen: Tensor, free: Tensor, most: int, draw: Draw) -> tuple[Tensor, Tensor | None]:
    """Contexts of a set as states [n, U], and the probability of each if these are all contexts there are."""
    outside = free & ~chosen
    units = int(outside.sum())
    if 2 ** min(units, 63) > most:
        return draw(row, free), None
    bits, weight = every_context(units)
    there = (~free).expand(len(bits), -1).clone()  # units that no context removes, and S
    there[:, outside] = bits.to(free.device)
    return there, weight


def _strengths(held: Trials, rows: Tensor, sets: Tensor, free: Tensor, most: int, draw: Draw) -> list[Strength]:
    """The strengths of sets by one packed pass; exact for sets with at most `most` contexts."""
    # `passed` counts what rounding may decide either way as kept. A share counts what the model says, and a bound only
    # contexts in which the answer is lost for certain.
    contexts, weights = zip(*(_contexts(row, own, free[row], most, draw) for row, own in zip(rows.tolist(), sets)))
    lengths = torch.tensor([len(part) for part in contexts], device=rows.device)
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    states, chosen_of = torch.cat(contexts), sets[owner]
    halves = (held.test(HOLDS, rows[owner], ~part) for part in (states | chosen_of, states & ~chosen_of))
    said = torch.stack([column for passed, room in halves for column in (passed & (room >= 0), passed)])
    measured = []
    for position, said_of in enumerate(torch.split(said, lengths.tolist(), dim=1)):
        kept, may_keep, still, may_still = said_of
        row, chosen = rows[position], sets[position]
        with_set = contexts[position] | chosen
        no_noise = (with_set | free[row]).all(1)  # with added noise, what is gone is not what loses the answer
        lost = ~with_set[~kept & no_noise]
        fewest = tuple(lost[lost.sum(1).argmin()].nonzero().flatten().tolist()) if len(lost) else None
        absent = held.oracle.absent
        removes = absent is None or not bool((chosen & absent[row]).any())
        hit = [~with_set[~may_keep & no_noise], ~contexts[position][~may_still & no_noise & removes] | chosen]
        bound = _least_hitting(torch.cat(hit)[:, free[row]].cpu())
        measured.append(replace(_strength(kept.cpu(), still.cpu(), weights[position]), lost=fewest, bound=bound))
    return measured


def _least_hitting(gone: Tensor) -> int:
    """A lower bound of the size of a set that holds a unit of each of the sets `gone` [n, units]."""
    # If the answer is lost without some units, then a set that keeps it in every context holds at least one of them.
    # So such a set hits every set of units whose removal has lost the answer: a least hitting set, which is hard. The
    # dual bound of the branch and bound is sound wherever its limit of nodes stops it.
    from scipy.optimize import Bounds, LinearConstraint, milp

    gone = gone[gone.any(1)]
    if not len(gone):
        return 0
    is_hit = LinearConstraint(torch.unique(gone, dim=0).double().numpy(), 1)
    ones = np.ones(gone.size(1))
    solved = milp(ones, integrality=ones, bounds=Bounds(0, 1), constraints=is_hit, options={"node_limit": MAX_NODES})
    return 1 if solved.mip_dual_bound is None else max(ceil(solved.mip_dual_bound - 1e-6), 1)


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
RUNGS = ((8, 6), (24, 2), (SEARCH_CONTEXTS, 1))  # after so many contexts, so many candidates are kept
MAX_CANDIDATES = 32  # units that are tried in a step, the most promising by slope
MAX_STEPS = 64
STANDARD_ERRORS = 1.0  # by which a search aims beyond the share that fresh contexts must show
MORE_STANDARD_ERRORS = 3.0  # the same for the second attempt, if the first one was not sure enough on these
MAX_JUDGED = 4  # sets judged one after the other
JUDGED_CONFIDENCE = 1 - (1 - CONFIDENCE) / 2  # two attempts are judged, so that each has half of the error


@dataclass(frozen=True, eq=False)
class Sure:
    """The smallest set of an instance that is sure enough on fresh contexts, or else the surest one judged."""

    chosen: Tensor  # [U] bool
    strength: Strength
    reached: bool
    default: bool  # the answer holds when everything is gone, so that the set of all units decides nothing
    curve: tuple[tuple[int, float], ...]  # sizes, ascending, and the best PNS of each on the contexts of the search


def find_sure(
    trials: Trials, held: Trials, rows: Tensor, sets: Tensor, goal: float, count: int, draw: Draw, fresh: Draw
) -> dict[int, Sure]:
    """By instance of `rows` [R], the smallest set found that passes the tests and has a PNS of at least `goal`.

    A set grows from passing `sets` [R, U], and then shrinks, by its PNS in the contexts of `draw`. It is judged on
    `count` contexts of `fresh`.
    """
    # Each step adds the unit that decides most of the contexts in which the set does not decide yet, or drops the unit
    # that costs least. All candidates meet a few contexts and only the best meet more (successive halving, Karnin et
    # al., 2013).
    # The smallest set that seems sure enough is judged on fresh contexts, and while one is sure, the next smaller
    # follows. If the first one is not, the search goes on to a surer set, and down from there. The sets of these two
    # sequences do not depend on the fresh contexts, and each sequence ends with its first set that fails. So a sequence
    # errs no more often than a single test does, and each has half of the error (`JUDGED_CONFIDENCE`).
    search = _SureSearch(trials, held, rows, sets, draw)
    needed = _share_needed(goal, count)
    error = (needed * (1 - needed) / SEARCH_CONTEXTS) ** 0.5
    aim, higher_aim = (min(needed + errors * error, 1.0) for errors in (STANDARD_ERRORS, MORE_STANDARD_ERRORS))
    search.grow(~search.default, aim)
    grown = search.sets.clone()
    search.shrink(~search.default & (search.share >= needed), needed, sets.sum(1))
    judged: list[dict[int, Strength]] = [{} for _ in search.best]
    _judge(search, [_smallest(best, aim) for best in search.best], goal, count, fresh, judged)
    failed = torch.tensor([bool(by_size) and not any(_low(s) >= goal for s in by_size.values()) for by_size in judged])
    failed = failed.to(rows.device) & ~search.default
    search.sets[failed] = grown[failed]
    search.measure(failed.nonzero().flatten())
    search.grow(failed, higher_aim)
    search.shrink(failed & (search.share >= aim), aim, sets.sum(1))
    # Among sets that decide in all contexts of the search, a larger one is surer.
    last = [_smallest(best, higher_aim) if higher_aim < 1 else max(best, default=None) for best in search.best]
    begin = [size if bad else None for size, bad in zip(last, failed.tolist())]
    _judge(search, begin, goal, count, fresh, judged)
    found = {}
    for position, by_size in enumerate(judged):
        sure = [size for size, strength in by_size.items() if _low(strength) >= goal]
        if by_size:
            size = min(sure) if sure else max(by_size, key=lambda size: (by_size[size].pns.value, -size))
            curve = tuple((size, share) for size, (share, _) in sorted(search.best[position].items()))
            chosen, default = search.best[position][size][1], bool(search.default[position])
            found[int(rows[position])] = Sure(chosen, by_size[size], bool(sure), default, curve)
    return found


def _smallest(best: dict[int, tuple[float, Tensor]], aim: float) -> int | None:
    """The smallest size whose set has a PNS of `aim` in the contexts of the search, or else that of the surest set."""
    good = [size for size, (share, _) in best.items() if share >= aim]
    return min(good) if good else max(best, key=lambda size: (best[size][0], -size), default=None)


def _judge(
    search: _SureSearch,
    begin: Sequence[int | None],
    goal: float,
    count: int,
    fresh: Draw,
    judged: list[dict[int, Strength]],
) -> None:
    """Measure the set of size `begin` of each instance in fresh contexts, and smaller ones as long as they are sure."""
    sizes = {position: size for position, size in enumerate(begin) if size is not None and size not in judged[position]}
    for _ in range(MAX_JUDGED):
        if not sizes:
            return
        chosen = torch.stack([search.best[position][size][1] for position, size in sizes.items()])
        measured = strengths(search.held, search.rows[list(sizes)], chosen, count, fresh)
        following = {}
        for (position, size), strength in zip(sizes.items(), measured):
            judged[position][size] = strength
            smaller = max((other for other in search.best[position] if other < size), default=None)
            if _low(strength) >= goal and smaller is not None and smaller not in judged[position]:
                following[position] = smaller
        sizes = following


def _low(strength: Strength) -> float:
    """A lower bound of the PNS of a set, at `JUDGED_CONFIDENCE`."""
    if strength.every:
        return strength.pns.value
    hits = round(strength.pns.value * strength.contexts)
    return clopper_pearson(hits, strength.contexts, JUDGED_CONFIDENCE).low


def _share_needed(goal: float, count: int) -> float:
    """The least share of `count` contexts whose interval begins at `goal` or above; 1 if none does."""
    hits = (n for n in range(int(goal * count), count + 1) if clopper_pearson(n, count, JUDGED_CONFIDENCE).low >= goal)
    return next(hits, count) / count


class _SureSearch:
    """Sets of some instances that grow and shrink, with the contexts in which they decide."""

    def __init__(self, trials: Trials, held: Trials, rows: Tensor, sets: Tensor, draw: Draw) -> None:
        self.trials, self.held, self.rows, self.sets = trials, held, rows, sets.clone()
        removable = _removable(held.oracle)
        self.movable = (trials.free & removable)[rows]
        holds, room = held.test(HOLDS, rows, removable[rows])
        self.default = holds & (room >= 0)  # the answer stays when everything is gone
        self.contexts = torch.stack([draw(row, removable[row]) for row in rows.tolist()])  # [R, n, U]
        # Whether the answer holds in a context with the set, and without it [R, n]; the set decides if only with it.
        self.kept, self.still = (torch.zeros_like(self.contexts[:, :, 0]) for _ in range(2))
        self.slack = torch.zeros(self.kept.shape, dtype=torch.float, device=rows.device)  # the lesser one of both
        self.best: list[dict[int, tuple[float, Tensor]]] = [{} for _ in rows.tolist()]  # by size: PNS and set
        self.measure(torch.arange(len(rows), device=rows.device))

    @property
    def decided(self) -> Tensor:
        """Whether the sets decide in each context [R, n]."""
        return self.kept & ~self.still

    @property
    def share(self) -> Tensor:
        """PNS of the sets on these contexts [R]."""
        return self.decided.double().mean(1)

    def grow(self, allowed: Tensor, aim: float) -> None:
        """Add units until the PNS of a set is `aim`, each by the contexts in which the set does not decide yet."""
        for _ in range(MAX_STEPS):
            todo = (allowed & (self.share < aim)).nonzero().flatten()
            order = self.decided[todo].int().argsort(dim=1, stable=True)
            todo = self._step(todo, self.movable[todo] & ~self.sets[todo], order, (~self.decided[todo]).sum(1))
            if not len(todo):
                return
            allowed = torch.zeros_like(allowed).index_fill(0, todo, True)  # the others cannot move

    def shrink(self, allowed: Tensor, least: float, smallest: Tensor) -> None:
        """Drop the unit that costs least until the PNS of a set is below `least` or its size that of `smallest` [R]."""
        for _ in range(MAX_STEPS):
            todo = (allowed & (self.share >= least) & (self.sets.sum(1) > smallest)).nonzero().flatten()
            # Contexts in which it decides by the least slack come first: they show first that a unit matters.
            order = torch.where(self.decided[todo], self.slack[todo], float("inf")).argsort(dim=1, stable=True)
            todo = self._step(todo, self.movable[todo] & self.sets[todo], order, self.decided[todo].sum(1))
            if not len(todo):
                return
            allowed = torch.zeros_like(allowed).index_fill(0, todo, True)

    def _step(self, todo: Tensor, units: Tensor, order: Tensor, count: Tensor) -> Tensor:
        """Flip, in each set at `todo` [r], the one of `units` [r, U] with the highest PNS then; which sets moved.

        Candidates meet the contexts of their instance in the `order` [r, n], and only the first `count` [r] of them.
        """
        # Successive halving: each rung meets the next contexts with the candidates that are left, and keeps the best.
        # The value of a candidate is the number of contexts in which it decides, so far.
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
        self.measure(todo)
        return todo

    def _candidates(self, todo: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Flips that are allowed, of the most promising `units` [r, U]: the position in `todo` and the unit of each."""
        crowded = (units.sum(1) > MAX_CANDIDATES).nonzero().flatten()
        if len(crowded):
            rows, sets = self.rows[todo[crowded]], self.sets[todo[crowded]]
            slope = self.trials.slopes(rows, sets)[1].sum(2)  # in both tests together
            gain = torch.where(sets, -slope, slope).masked_fill(~units[crowded], float("-inf"))
            units = units.index_copy(0, crowded, _only_top(gain, MAX_CANDIDATES) > float("-inf"))
        owner, unit = units.nonzero(as_tuple=True)
        good = self.trials.constraints.allow(self.rows[todo[owner]], flipped(self.sets[todo[owner]], unit))
        return owner[good], unit[good]

    def _worth(self, positions: Tensor, units: Tensor, candidate: Tensor, context: Tensor) -> Tensor:
        """Whether candidates decide in contexts, and a little by slack, by pairs of both [P].

        A candidate is the set at one of `positions` [K] with one of `units` [K] flipped.
        """
        # A pair needs one run: if the unit is in the context, f(S ∪ T) stays as it is, otherwise f(T) does. It needs
        # none if that half already says that the set cannot decide.
        position, flip = positions[candidate], units[candidate]
        worth = torch.zeros(len(position), dtype=torch.double, device=position.device)
        inside = self.contexts[position, context, flip]
        undecided = torch.where(inside, self.kept[position, context], ~self.still[position, context])
        step = max(1, MAX_STATES_PER_CALL // max(self.held.width, 1))
        for part in torch.split(undecided.nonzero().flatten(), step):
            there, at, contexts = inside[part], position[part], self.contexts[position[part], context[part]]
            states = torch.where(there[:, None], contexts & ~self.sets[at], contexts | self.sets[at])
            holds, slack = self.held.test(HOLDS, self.rows[at], ~flipped(states, flip[part]))
            worth[part] = (holds ^ there) + 1e-3 * torch.where(there, -slack, slack).clamp(-1, 1).double()
        return worth

    def measure(self, positions: Tensor) -> None:
        """Run the sets at some positions in all contexts; of sets that pass, the surest of each size is kept."""
        sets, contexts, n = self.sets[positions, None], self.contexts[positions], self.contexts.size(1)
        rows = self.rows[positions].repeat_interleave(n)
        halves = [self.held.test(HOLDS, rows, ~states.flatten(0, 1)) for states in (contexts | sets, contexts & ~sets)]
        (kept, room), (still, excess) = ([part.view(-1, n) for part in half] for half in halves)
        self.kept[positions], self.still[positions] = kept, still
        self.slack[positions] = torch.minimum(room, -excess).float()
        passed, shares = self.trials.passes(self.rows[positions], self.sets[positions]), self.share
        for position in positions[passed].tolist():
            size, share = int(self.sets[position].sum()), float(shares[position])
            if share > self.best[position].get(size, (-1.0,))[0]:
                self.best[position][size] = (share, self.sets[position].clone())


def _only_top(table: Tensor, count: int) -> Tensor:
    """A table [R, U] with all but the `count` highest values of each row at -∞; of equals the first are kept."""
    _, columns = top(table, count, torch.full((len(table),), 1e-9, dtype=table.dtype, device=table.device))
    chosen = torch.zeros_like(table, dtype=torch.bool).scatter(1, columns, True)
    return table.masked_fill(~chosen, float("-inf"))
