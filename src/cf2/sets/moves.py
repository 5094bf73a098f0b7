"""The moves of a search: prune, repair, grow, leap, exchange and widen, each over many instances at once.

A move proposes sets by a ranking or by slopes. Only trials decide whether a set passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from cf2.sets.trials import ALIKE, EQUAL, Outcome, Trials, best_of, in_order, names_of, race, score, top

# -- pruning --------------------------------------------------------------------------------------------------

PRUNED_TOGETHER = 12  # sets that a call tries at least, where a call costs more than what is computed in it
SHARE_DROPPED = 0.15  # of the runs that are tried: on Mutag₀ from 12 to 18 %, by their length


class _Pruning(NamedTuple):
    """Where the pruning of a set stands."""

    free: list[int]  # units of the set that may be dropped, the least important first
    length: int  # units in a run
    skip: int  # in the present pass over the runs, so many units at the front have proved needed
    gone: list[int]  # units that were dropped and are still in the table of sets

    @property
    def run(self) -> list[int]:
        """The units that are tried next."""
        return self.free[self.skip : self.skip + self.length]

    def after(self, dropped: bool, below: int) -> _Pruning:
        """What follows once the run is dropped or has proved needed."""
        free, length, skip, gone = self
        if dropped:
            free, gone = free[:skip] + free[skip + length :], gone + self.run
        else:
            skip += length
        # A run that proved needed holds at least one unit of any answer inside of this set. With `below` such runs, the
        # set cannot get small enough any more (nearly: passing is not monotone).
        if skip >= length * below:
            length = 0
        elif skip >= len(free):
            length, skip = length // 2, 0
        return _Pruning(free, length, skip, gone)

    @property
    def done(self) -> bool:
        """Whether no run is left to try."""
        return not self.free or not self.length


def prune(
    trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, passed: Tensor, below: Tensor | None = None
) -> Tensor:
    """Drop runs of the least important units, halving their length, then single ones, while the tests pass.

    This is delta debugging (Zeller and Hildebrandt, 2002) guided by a ranking: about log U trials if few units are
    needed, while single drops take U. A set that has not `passed` keeps the tests that it passes now. If it is given,
    `below` [R] is a size that each set has to get below: pruning stops as soon as that many runs have proved needed.
    """
    sets, need = sets.clone(), _needs(trials, rows, sets, passed)
    order = ranking.argsort(dim=1, stable=True)
    free = [units[own].tolist() for units, own in zip(order, (sets & ~trials.must[rows]).gather(1, order))]
    limits = [trials.width + 1] * len(rows) if below is None else below.tolist()
    state = [_Pruning(units, max(len(units) // 2, 1), 0, []) for units in free]
    most = PRUNED_TOGETHER if trials.rows_together or trials.oracle.local else 0
    while live := [position for position, own in enumerate(state) if not own.done]:
        asked, then = _pruned_ahead(state, live, limits, most)
        owner = torch.tensor([position for position, _ in asked], device=rows.device)
        good = trials.passes(
            rows[owner], _without(sets[owner], [[*own.gone, *own.run] for _, own in asked]), need[owner]
        )
        passing = good.tolist()
        for number, position in enumerate(live):
            next_one: int | None = number
            while next_one is not None:
                number = next_one
                state[position] = asked[number][1].after(passing[number], limits[position])
                next_one = then.get((number, passing[number]))
        sets[live] = _without(sets[live], [state[position].gone for position in live])
        for position in live:
            state[position].gone.clear()
    return sets


def _pruned_ahead(
    state: list[_Pruning], live: list[int], limits: list[int], most: int
) -> tuple[list[tuple[int, _Pruning]], dict[tuple[int, bool], int]]:
    """The next step of `live` prunings and the likeliest later ones, `most` in all, with their position.

    Also, by the number of a step and whether its run is dropped, the number of the step that follows.
    """
    asked, then = [(position, state[position]) for position in live], dict[tuple[int, bool], int]()

    def outcomes(number: int, share: float) -> list[tuple[float, int, bool]]:
        return [(-share * (1 - SHARE_DROPPED), number, False), (-share * SHARE_DROPPED, number, True)]

    queue = [outcome for number in range(len(asked)) if len(asked) < most for outcome in outcomes(number, 1.0)]
    heapify(queue)
    while queue and len(asked) < most:
        share, number, dropped = heappop(queue)
        position, own = asked[number]
        after = own.after(dropped, limits[position])
        if not after.done:
            then[number, dropped] = len(asked)
            for outcome in outcomes(len(asked), -share):
                heappush(queue, outcome)
            asked.append((position, after))
    return asked, then


def _without(sets: Tensor, units: list[list[int]]) -> Tensor:
    """Sets [R, U] without the units listed for each."""
    owner = torch.arange(len(units)).repeat_interleave(torch.tensor([len(own) for own in units]))
    sets[owner.to(sets.device), torch.tensor(list(chain.from_iterable(units)), device=sets.device).long()] = False
    return sets


def _needs(trials: Trials, rows: Tensor, sets: Tensor, passed: Tensor) -> Tensor:
    """Which tests [R, tests] a pruned set must keep passing: all of them, or those that it passes now."""
    need = torch.ones(len(rows), len(trials.tests), dtype=torch.bool, device=rows.device)
    failed = (~passed).nonzero().flatten()
    for column, test in enumerate(trials.tests):
        need[failed, column], _ = trials.test(test, rows[failed], sets[failed])
    return need


def prune_single(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor) -> Tensor:
    """Drop units until every one left is needed by itself: the proof of `minimal`.

    Passing is not monotone in S (a smaller set can pass where a larger one fails), so all single drops are tried again
    after each round. The last round, in which none passes, is the proof.
    """
    sets = sets.clone()
    todo = torch.arange(len(rows), device=rows.device)
    while len(todo):
        fewer = drop_loose(trials, rows[todo], sets[todo], ranking[todo])
        smaller = (fewer != sets[todo]).any(1)
        sets[todo] = fewer
        todo = todo[smaller]
    return sets


def drop_loose(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor) -> Tensor:
    """Try every single drop of sets [R, U]; if several pass, as many as still pass together are dropped at once."""
    sets = sets.clone()
    owner, unit = (sets & ~trials.must[rows]).nonzero(as_tuple=True)
    good = trials.passes(rows[owner], flipped(sets[owner], unit))
    loose = torch.zeros_like(sets)
    loose[owner[good], unit[good]] = True
    some = loose.any(1)
    sets[some] = _drop_together(trials, rows[some], sets[some], loose[some], ranking[some])
    return sets


def flipped(sets: Tensor, units: Tensor) -> Tensor:
    """Sets [R, U] with one unit [R] each added if it is not there, and dropped if it is."""
    flips = torch.zeros_like(sets).scatter_(1, units[:, None], True)
    return sets ^ flips


def _drop_together(trials: Trials, rows: Tensor, sets: Tensor, loose: Tensor, ranking: Tensor) -> Tensor:
    """Drop the least important `loose` units, each of which can be dropped alone: all, or half of them, … or one."""
    sets = sets.clone()
    order = ranking.masked_fill(~loose, float("inf")).argsort(dim=1, stable=True).argsort(1)
    count = loose.sum(1)
    left = torch.arange(len(rows), device=rows.device)
    while len(left):
        candidates = sets[left] & ~(loose[left] & (order[left] < count[left, None]))
        single = count[left] == 1  # has passed before
        good = single.clone()
        good[~single] = trials.passes(rows[left[~single]], candidates[~single])
        sets[left[good]] = candidates[good]
        left = left[~good]
        count[left] = (count[left] // 2).clamp(min=1)
    return sets


# -- moves ----------------------------------------------------------------------------------------------------

STEPS_BEFORE_GIVING_UP = 2  # units beyond the first after which growing may be given up


@dataclass(frozen=True)
class Budget:
    """What an effort spends on each move."""

    repairs: int  # moves towards a first passing set
    restarts: int  # prunings in other orders, for instances of many units
    grown: int  # units that a set grown from nothing may have, if a small passing set is known; 0: none is grown
    exchanges: int  # swaps without a smaller set after which an exchange ends
    drops: int  # candidates tried in each move that drops a unit
    adds: int  # candidates tried in each move that adds a unit
    proof: int  # sets tried to prove an answer smallest
    rounds: int = 1  # exchanges from so many starts
    partly: bool = False  # whether a proof that cannot reach the end is made as far as it goes, for a lower bound
    swaps: int = 0  # swaps without a wider margin after which widening ends
    doubt: float = math.inf  # slack by which a guess may be wrong: an exchange that promises still less ends
    slack: int = 1  # a restart is given up if it would end with more than so many times the units of the best set


# -- 1. start ----------------------------------------------------------------------------------------------


LENGTHS_PER_CALL = 2  # of prefixes: fewer save trials, and more save calls


def prefixes(trials: Trials, *rankings: Tensor) -> tuple[Tensor, Outcome, Tensor]:
    """The shortest tried prefix of any ranking that passes, else the tried prefix nearest to passing.

    Returns the sets [B, U], their outcome, and the number of the ranking that each comes from [B]. Lengths grow by
    half: all of them would cost U trials, and pruning takes off what is too much for log U. Longer ones are tried only
    where no shorter one passes.
    """
    positions = [ranking.argsort(dim=1, descending=True, stable=True).argsort(1) for ranking in rankings]
    lengths, todo, tried = _lengths(trials.width) or [0], trials.rows, []
    few = len(positions) * len(lengths) * len(todo) <= trials.rows_together
    failed = trials.failed[0]  # what the prefixes so far have failed, the longer ones are likely to fail
    per_call = len(lengths) if few else LENGTHS_PER_CALL

    for first in range(0, len(lengths), per_call):
        parts = []
        for number, position in enumerate(positions):
            for length in lengths[first : first + per_call]:
                fits = todo[(trials.counts[todo] > length) | (length == trials.width)]
                parts.append((fits, trials.admissible(fits, position[fits] < length), torch.full_like(fits, number)))
        row, candidates, ranking_of = (torch.cat(part) for part in zip(*parts))
        size = trials.size(row, candidates)
        outcome = race(trials, row, row, candidates, failed[row].argmax(1), partial(_shortest, size=size))
        failed.index_add_(0, row, (~outcome.passed).to(failed.dtype))
        tried.append((row, candidates, ranking_of, size, outcome.passed, outcome.slack))
        todo = todo[~torch.isin(todo, row[outcome.passes])]
    row, candidates, ranking_of, size, passed, slack = (torch.cat(part) for part in zip(*tried))
    outcome = Outcome(passed, slack)
    winner = best_of(row, _shortest(outcome, size), len(trials.counts))  # exists: all units are a candidate, if asked
    return candidates[winner], outcome.take(winner), ranking_of[winner]


def _shortest(outcome: Outcome, size: Tensor) -> Tensor:
    """The smallest passing set first, then by the score."""
    return torch.where(outcome.passes, 1e6 - size, outcome.score.clamp(min=-1e5))


def _lengths(width: int) -> list[int]:
    """Sizes to try: 2, 4, then each half as large again, and everything."""
    lengths, length = [], 2
    while length < width:
        lengths.append(length)
        length = max(length + 2, int(length * 1.5))
    return [*lengths, width] if width else []


MOVES_PER_SLOPE = 2  # moves of a repair after which slopes are measured anew; those between learn from the trials
MIN_VAIN_REPAIRS = 15  # moves of a repair in vain that any walk is given; 5 and 10 lost answers on Cora and CiteSeer
FIRST_REPAIRS = 4  # moves of a repair after which a proof is tried that no set passes

Settle = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]  # sets, passed -> sets, passed, whether none can


def repair(
    trials: Trials, sets: Tensor, start: Outcome, budget: Budget, settle: Settle | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Add or drop the most promising unit of sets that fail, until they pass or the budget is spent.

    A tabu search (Glover, 1989): a unit that was moved is held for five moves, or the walk would take it back at once.
    `start` is the outcome of `sets`. If nothing nearer to passing is found, a set stays as it is. Sets that fail after
    a few moves are given to `settle`, which may find one or prove that none passes; otherwise the walk goes on. It ends
    early where half of the budget has led no nearer, and nothing has come halfway.
    Returns the sets [B, U], whether they pass [B], and whether it is proved that no set of an instance does [B].
    """
    passed = start.passes.clone()
    best = start.score.clone()
    nearest, walk = sets.clone(), Walk.of(trials, trials.rows, sets)
    tabu = torch.zeros(sets.shape, dtype=torch.long, device=sets.device)
    never, vain = torch.zeros_like(passed), torch.zeros_like(trials.counts)
    for move in range(1, budget.repairs + 1):
        if move == FIRST_REPAIRS + 1 and settle is not None and not passed.all():
            nearest, passed, never = settle(nearest, passed)
        stuck = (vain >= max(budget.repairs // 2, MIN_VAIN_REPAIRS)) & (best < start.score / 2)
        rows = (~passed & ~never & ~stuck & (trials.counts > 0)).nonzero().flatten()
        if not len(rows):
            break
        if move % MOVES_PER_SLOPE == 1:
            walk.measure(rows)
        outcome, unit = walk.move(rows, tabu[rows] > move, budget.drops, budget.adds)
        passed[rows], tabu[rows, unit] = outcome.passes, move + 5
        nearer = (outcome.score > best[rows] + EQUAL) | outcome.passes
        best[rows] = torch.where(nearer, outcome.score, best[rows])
        vain[rows] = torch.where(nearer, 0, vain[rows] + 1)
        nearest[rows] = torch.where(nearer[:, None], walk.sets[rows], nearest[rows])
    return nearest, passed, never


def grow(trials: Trials, rows: Tensor, most: Tensor, adds: int) -> tuple[Tensor, Tensor]:
    """From nothing, add the most promising unit again and again, up to `most` [R]: a start without a ranking.

    Rankings come from soft masks, under which most units look needed. From nothing, the few that carry the answer stand
    out. A set is given up if a test would not be passed at `most` units at its pace so far.
    """
    nothing = torch.zeros_like(trials.valid[rows])
    sets = trials.admissible(rows, nothing)
    passed = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    most = torch.minimum(most, trials.selectable[rows].sum(1))
    first_slack = torch.zeros(len(rows), len(trials.tests), device=rows.device)  # after the first unit
    step = 0
    while True:
        live = (~passed & (sets.sum(1) < most)).nonzero().flatten()
        if not len(live):
            return sets, passed
        picked, outcome, _ = _move(trials, rows[live], sets[live], nothing[live], 0, adds)
        stuck = (picked == sets[live]).all(1)  # nothing is left to add
        if step == 0:
            first_slack[live] = outcome.slack
        elif step >= STEPS_BEFORE_GIVING_UP:
            pace = (outcome.slack - first_slack[live]).clamp(min=0) / step
            stuck |= (outcome.slack + pace * (most[live] - picked.sum(1))[:, None] < 0).any(1)
        sets[live], passed[live], most[live[stuck]] = picked, outcome.passes, 0
        step += 1


def take_smaller(
    trials: Trials, rows: Tensor, sets: Tensor, passed: Tensor, candidates: Tensor, good: Tensor
) -> Tensor:
    """Write `good` [r] candidates [r, U] into the sets of instances `rows` that have no passing set or a larger one.

    Returns which candidates were taken [r].
    """
    better = good & (~passed[rows] | (trials.size(rows, candidates) < trials.size(rows, sets[rows])))
    sets[rows[better]], passed[rows[better]] = candidates[better], True
    return better


# -- 2. leap -----------------------------------------------------------------------------------------------

LEAP_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the first test in the worth of a unit; the second test has the rest
LEAPS_PER_CALL = 4  # sizes that are tried at once


def leap(trials: Trials, rows: Tensor, sets: Tensor, enough: int) -> Tensor:
    """Make passing sets [R, U] much smaller at once, as long as slopes promise that and a trial confirms it.

    An exchange takes one unit off at a time. Where there are many units, each adds little, and a linear guess of the
    slack holds for sets that share few units with the present one. Sets of at most `enough` units are left as they are.
    """
    sets = sets.clone()
    live = (sets.sum(1) > enough).nonzero().flatten()
    while len(live):
        position, candidates, guess = _leaps(rows[live], sets[live], *trials.slopes(rows[live], sets[live]), trials)
        owner = live[position]
        value = partial(_shortest, size=candidates.sum(1))
        outcome = race(trials, owner, rows[owner], candidates, guess.argmin(1), value)
        winner = best_of(owner, value(outcome), len(rows))
        live = (winner >= 0).nonzero().flatten()
        live = live[outcome.passes[winner[live]]]
        sets[live] = candidates[winner[live]]
        live = live[sets[live].sum(1) > enough]
    return sets


def _leaps(rows: Tensor, sets: Tensor, slack: Tensor, slope: Tensor, trials: Trials) -> tuple[Tensor, Tensor, Tensor]:
    """Smaller sets that should pass: the position of the set that each is to replace, its units, and its guessed slack.

    They are prefixes of one of several rankings, by a weighted mean of the slopes [R, U, tests] of both tests: of the
    ranking whose shortest prefix that should pass is the shortest. That is tried, and longer ones.
    """
    slope = slope.double()  # sums of many slopes
    nothing = slack.double() - (slope * sets[..., None]).sum(1)
    size = sets.sum(1)
    length, place, expected = size.clone(), torch.zeros_like(sets, dtype=torch.long), torch.zeros_like(slope)
    for share in LEAP_SHARES[: 1 if slack.size(1) == 1 else None]:
        worth = slope @ slope.new_tensor([share, 1 - share])[: slack.size(1)]
        worth = worth.masked_fill(~trials.selectable[rows], float("-inf")).masked_fill(trials.must[rows], 1e30)
        own = in_order(worth)
        order = own.argsort(1)
        total = nothing[:, None] + slope.gather(1, order[..., None].expand_as(slope)).cumsum(1)
        good = (total >= 0).all(2) & worth.gather(1, order).isfinite()
        shortest = (good.cumsum(1) == 0).sum(1) + 1
        shortest = torch.maximum(shortest, trials.must[rows].sum(1))
        better = shortest < length
        length[better], place[better], expected[better] = shortest[better], own[better], total[better]
    part = torch.arange(LEAPS_PER_CALL, device=rows.device)
    spare = size - 1 - length  # units by which a set may be longer and still gain one; negative where none gains
    lengths = length[:, None] + (spare[:, None] * part) // (LEAPS_PER_CALL - 1)
    tried = (part <= spare[:, None]) & (lengths > 0)
    position, column = tried.nonzero(as_tuple=True)
    count = lengths[position, column]
    return position, place[position] < count[:, None], expected[position, count - 1].float()


# -- 3. exchange -------------------------------------------------------------------------------------------


PROPOSALS_PER_CALL = 7  # swaps of an instance that are tried at once: 4 take more calls, and 9 find larger sets
LEARNED = 0.5  # share of the error of a guess by which the slopes are corrected


def exchange(trials: Trials, rows: Tensor, sets: Tensor, budget: Budget) -> Tensor:
    """Look for a smaller passing set: drop a unit, then swap others until the tests pass.

    An exchange ends after `exchanges` proposals in vain, and one more for each unit of the best set; or after its first
    call if no proposal for a smaller set was ever expected to come within `doubt` of passing.
    """
    # Invariant: `base` has one unit less than `best`, which passes, so any `base` that passes is smaller.
    # Swaps are proposed by a linear guess of what units add to the slack of each test. It starts as the slopes and is
    # corrected by every trial: both units of a swap take half of the correction (the method of Kaczmarz, 1937), which
    # costs nothing, while a gradient costs three evaluations per test. So one is taken after each call in vain, and
    # none for a smaller set, whose slopes were learned on the way to it.
    # The walk moves to the best proposal also if it is worse than before, and never tries a set twice.
    # Tried in vain: a ridge regression over the trials of a pack (larger sets on Mutag), gradients at every step (more
    # evaluations), and implicit hitting sets by MILP (passing is not monotone).
    best, walk = sets.clone(), Walk.of(trials, rows, sets)
    base, slope = walk.sets, walk.slope
    vain, walked = torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    hope = torch.full_like(walk.slack[:, 0], float("-inf"))  # the best guess since the best set was found
    live = shrunk = (best.sum(1) > 1).nonzero().flatten()
    walk.measure(live)
    while len(live):
        base[shrunk] = best[shrunk]
        while len(shrunk):
            passed = walk.move(shrunk, torch.zeros_like(base[shrunk]), budget.drops, 0)[0].passes
            walk.note(shrunk, base[shrunk])
            # Constraints may put back what was dropped, or more, so a set that passes need not be smaller.
            passed &= trials.size(rows[shrunk], base[shrunk]) < trials.size(rows[shrunk], best[shrunk]) - EQUAL
            shrunk = shrunk[passed]
            best[shrunk] = base[shrunk]
            shrunk = shrunk[best[shrunk].sum(1) > 1]
        walk.measure(live[walked[live]])
        limit = trials.size(rows, best) - EQUAL
        swaps = walk.swaps(live, score, limit, int(vain[live].max()))
        hope.scatter_reduce_(0, swaps.owner, score(swaps.guess), "amax")
        swaps = swaps.take((~walked | (hope >= -budget.doubt))[swaps.owner])
        owner = swaps.owner
        outcome = race(trials, owner, rows[owner], swaps.sets, swaps.guess.argmin(1), _worth)
        # A test that was not run, because the set could not win any more, has infinite slack and teaches nothing.
        error = LEARNED / 2 * torch.where(outcome.slack.isfinite(), outcome.slack - swaps.guess, 0)
        slope.index_put_((owner, swaps.add), error, accumulate=True)
        slope.index_put_((owner, swaps.drop), -error, accumulate=True)
        winner = best_of(owner, _worth(outcome), len(rows))
        moved = (winner >= 0).nonzero().flatten()
        winner = winner[moved]
        base[moved], walk.slack[moved] = swaps.sets[winner], outcome.slack[winner]
        vain += torch.bincount(owner, minlength=len(rows))
        walked[moved] = True
        shrunk = moved[outcome.passes[winner]]
        best[shrunk], vain[shrunk], walked[shrunk], hope[shrunk] = base[shrunk], 0, False, float("-inf")
        size = best[moved].sum(1)
        live = moved[(vain[moved] < budget.exchanges + size) & (size > 1)]
        shrunk = shrunk[best[shrunk].sum(1) > 1]
    return best


def _worth(outcome: Outcome) -> Tensor:
    """Passing sets first, then by the score."""
    return outcome.score + 1e3 * outcome.passes


def _move(
    trials: Trials,
    rows: Tensor,
    sets: Tensor,
    held: Tensor,
    drops: int,
    adds: int,
    slopes: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Outcome, Tensor]:
    """Drop or add the unit for which the tests are nearest to passing then, by trials of the most promising ones.

    A slope is a first-order guess of what a unit adds, so it only selects up to `drops` and `adds` candidates, which
    are really run. Returns the sets, their outcome, and the unit that was moved. If a set has no candidate, it stays as
    it is and counts as failing, with unit 0.
    """
    slack, slope = trials.slopes(rows, sets) if slopes is None else slopes
    if trials.price is not None:
        slope = slope / trials.price[rows].clamp(min=1e-9)[..., None]  # per unit of price
    gain = torch.where(sets, -1.0, 1.0)[..., None] * slope  # of moving each unit
    owner, unit = _candidates(trials, rows, sets, held, drops, adds, slack, gain)
    candidates = trials.constraints.mended(rows[owner], flipped(sets[owner], unit))

    def value(outcome: Outcome) -> Tensor:
        if trials.price is None:
            return _worth(outcome)
        cheap = 1e9 - trials.size(rows[owner], candidates).double()  # of those that pass, the cheapest
        return torch.where(outcome.passes, cheap, outcome.score.double())

    outcome = race(trials, owner, rows[owner], candidates, (slack[owner] + gain[owner, unit]).argmin(1), value)
    winner = best_of(owner, value(outcome), len(rows))
    # Position -1, of sets without a candidate, is one more row at the end, which fails.
    failing = torch.zeros_like(slack[:1], dtype=torch.bool), torch.full_like(slack[:1], float("-inf"))
    passed, room = (torch.cat(pair) for pair in zip((outcome.passed, outcome.slack), failing))
    moved = torch.where((winner >= 0)[:, None], torch.cat([candidates, sets[:1]])[winner], sets)
    return moved, Outcome(passed[winner], room[winner]), torch.cat([unit, unit.new_zeros(1)])[winner]


def _candidates(
    trials: Trials, rows: Tensor, sets: Tensor, held: Tensor, drops: int, adds: int, slack: Tensor, gain: Tensor
) -> tuple[Tensor, Tensor]:
    """The positions [n] and the units [n] of the moves that promise most by the `gain` of slack [R, U, tests]."""
    guess = score(slack[:, None].double() + gain)  # double, so that only slopes tell units apart
    allowed = trials.free[rows] & torch.where(sets, drops > 0, adds > 0)
    allowed &= trials.constraints.movable(rows, sets)
    guess = guess.masked_fill(~allowed, float("-inf"))
    guess = torch.where(held & allowed, guess - 1e6, guess)  # a held unit is the last resort
    equal = ALIKE * gain.abs().sum(2).amax(1)
    kinds = [(sets, drops), (~sets, adds)]
    chosen = [top(guess.masked_fill(~kind, float("-inf")), count, equal) for kind, count in kinds if count]
    guesses, units = (torch.cat(column, 1) for column in zip(*chosen))
    owner, column = guesses.isfinite().nonzero(as_tuple=True)
    return owner, units[owner, column]


# -- edit moves -----------------------------------------------------------------------------------------------

MAX_GROWN_EDITS = 24  # edits of a set that is grown from nothing
FIRST_STEP, WIDER_STEP = 2, 8  # times the budget's candidates in each step of the first and the second growing
SOME_EDITS, MANY_EDITS = 2, 3  # a set of more edits than these is grown, and grown again with more candidates


def start_edits(trials: Trials, ranking: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """A first set of edits per instance [B, U], and whether it passes [B]; if none passes, nothing is edited."""
    # Among removals nearly everything is needed to keep an answer, so searches start from much and prune. Edits are
    # the other way round: there are thousands of candidates and one to three of them do, so sets are grown.
    rows, nothing = trials.rows, torch.zeros_like(trials.valid)
    # An edit that the constraints refuse by itself would spoil every prefix that holds it.
    alone = trials.constraints.movable(rows, nothing, alone=True)
    sets, outcome, _ = prefixes(trials, ranking.masked_fill(~alone, float("-inf")))
    passed = outcome.passes.clone()
    sets = torch.where(passed[:, None], sets, trials.admissible(rows, nothing))
    hit = passed.nonzero().flatten()
    sets[hit] = prune(trials, hit, sets[hit], ranking[hit], passed[hit])
    for step, small, limit in (
        (FIRST_STEP, SOME_EDITS, MAX_GROWN_EDITS),
        (WIDER_STEP, MANY_EDITS, 2 * MAX_GROWN_EDITS),
    ):
        size = sets.sum(1)
        todo = rows[~passed | (trials.size(rows, sets) > small * _cheapest(trials))]
        below = size[todo] - 1 if trials.price is None else size[todo] + 2  # more edits may be the cheaper ones
        most = torch.where(passed[todo], below.clamp(max=MAX_GROWN_EDITS), limit)
        take_smaller(trials, todo, sets, passed, *grow(trials, todo, most, step * budget.adds))
    return sets, passed


def _cheapest(trials: Trials) -> Tensor | float:
    """What the cheapest unit of each instance counts [B]."""
    if trials.price is None:
        return 1.0
    return trials.price.masked_fill(~trials.selectable, float("inf")).amin(1)


# -- margins --------------------------------------------------------------------------------------------------

MAX_USEFUL_SLACK = 10.0  # more slack is no better: of two classes, the other one has a probability below 5 in 100,000
EQUAL_MARGINS = 1e-3  # margins closer than this are equal: they may be the same number, summed in another order


def margin(slack: Tensor) -> Tensor:
    """By how much all tests hold: the least of the slack in each [..., tests]."""
    return slack.clamp(max=MAX_USEFUL_SLACK).amin(-1)


def margins(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    """The margins of sets that pass [R]; they have been tried before, so nothing is run."""
    return margin(torch.stack([trials.test(test, rows, sets)[1] for test in trials.tests], 1))


def widest(rows: Tensor, margins: Tensor, instances: int) -> Tensor:
    """The position of the candidate with the widest margin of every instance, the first of equals; -1 where none."""
    return best_of(rows, margins * (EQUAL / EQUAL_MARGINS), instances)


def widen(trials: Trials, rows: Tensor, sets: Tensor, swaps: int) -> Tensor:
    """Swap units of passing sets [R, U] while the tests pass by a wider margin; no set gets larger.

    Many sets of the smallest size pass. The one that is furthest from failing says more and survives small changes of
    the input. Swaps are tried in the order of what slopes promise. Widening ends after `swaps` swaps of the present set
    in vain, or when there are no more.
    """
    # Leaving out swaps that promise less than the present margin saves 1 to 5 % of the evaluations of `standard`, and
    # of 80 molecules the sets overlapped less after an edge of noise (Jaccard .39 instead of .42).
    every, walk = torch.arange(len(rows), device=rows.device), Walk.of(trials, rows, sets)
    best, limit = margins(trials, rows, sets), trials.size(rows, sets) + EQUAL
    vain = torch.zeros_like(rows)  # swaps of the present set
    live = fresh = every[: len(rows) if swaps else 0]
    while len(live):
        walk.measure(fresh)
        proposed = walk.swaps(live, margin, limit, int(vain[live].max()))
        owner = proposed.owner
        good = _wider(trials, rows[owner], proposed, best[owner] + EQUAL_MARGINS)
        value = margins(trials, rows[owner[good]], proposed.sets[good])
        winner = widest(owner[good], value, len(rows))
        wider = winner >= 0
        count = torch.bincount(owner, minlength=len(rows))
        vain += count
        fresh = wider.nonzero().flatten()
        walk.sets[fresh], best[fresh], vain[fresh] = proposed.sets[good[winner[fresh]]], value[winner[fresh]], 0
        live = live[wider[live] | ((count[live] > 0) & (vain[live] < swaps))]
    return walk.sets


def _wider(trials: Trials, rows: Tensor, swaps: Swaps, least: Tensor) -> Tensor:
    """The positions of swaps that pass every test by more than the `least` margin [r]."""
    # The margin is the least slack. So the test that is expected to have it is run first, and the others only where its
    # slack is enough.
    todo = torch.arange(len(rows), device=rows.device)
    if len(rows) > trials.rows_together:
        passed, slack = trials.put(swaps.guess.argmin(1), rows, swaps.sets)
        todo = todo[passed & (margin(slack[:, None]) > least)]
    todo = todo[trials.run(rows[todo], swaps.sets[todo]).passes]
    return todo[margins(trials, rows[todo], swaps.sets[todo]) > least[todo]]


# -- walks ----------------------------------------------------------------------------------------------------

MAX_SWAP_PARTNERS = 12  # units to drop, and units to add, from which swaps are made


class Swaps(NamedTuple):
    """Proposed sets, each another set with one unit swapped."""

    owner: Tensor  # [r], the position of the other set
    sets: Tensor  # [r, U]
    drop: Tensor  # [r]
    add: Tensor  # [r]
    guess: Tensor  # [r, tests], the slack that is expected of it

    def take(self, index: Tensor) -> Swaps:
        """Some of the swaps."""
        return Swaps(*(column[index] for column in self))


@dataclass(eq=False)
class Walk:
    """Sets that change by a unit or two at a time, and a linear guess of what each unit adds to the slack of each test.

    The guess starts as the slopes and is corrected by the trials of the sets on the way.
    """

    trials: Trials
    rows: Tensor  # [R], the instances
    sets: Tensor  # [R, U]
    slack: Tensor  # [R, tests]
    slope: Tensor  # [R, U, tests]
    tried: set[bytes]

    @classmethod
    def of(cls, trials: Trials, rows: Tensor, sets: Tensor) -> Walk:
        """A walk that starts at these sets, without any slopes."""
        slack = torch.zeros(len(rows), len(trials.tests), device=rows.device)
        slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
        walk = cls(trials, rows, sets.clone(), slack, slope, set())
        walk.note(torch.arange(len(rows), device=rows.device), sets)
        return walk

    def note(self, some: Tensor, sets: Tensor) -> None:
        """Do not propose these sets any more."""
        self.tried.update(names_of(some, sets))

    def measure(self, some: Tensor) -> None:
        """Take the slopes at some of the sets."""
        self.slack[some], self.slope[some] = self.trials.slopes(self.rows[some], self.sets[some])

    def move(self, some: Tensor, held: Tensor, drops: int, adds: int) -> tuple[Outcome, Tensor]:
        """Drop or add a unit of some of the sets and learn from the outcome, which is returned with the unit."""
        before, slack, slope = self.sets[some], self.slack[some], self.slope[some]
        moved, outcome, unit = _move(self.trials, self.rows[some], before, held, drops, adds, (slack, slope))
        position = torch.arange(len(some), device=some.device)
        sign = torch.where(before[position, unit], -1.0, 1.0)[:, None]
        measured = outcome.slack.isfinite()
        error = torch.where(measured, outcome.slack - slack - sign * slope[position, unit], 0)
        self.slope[some, unit] += LEARNED * sign * error
        self.slack[some] = torch.where(measured, outcome.slack, slack)
        self.sets[some] = moved
        return outcome, unit

    def swaps(self, live: Tensor, value: Callable[[Tensor], Tensor], limit: Tensor, skipped: int) -> Swaps:
        """The `PROPOSALS_PER_CALL` most promising swaps of the `live` ones of the sets, which are not proposed again.

        They are ranked by the `value` of the slack that is expected: slack - slope of the dropped unit + slope of the
        added one. Sets that were tried, break a constraint or are larger than the `limit` [R] are passed over.
        """
        # All pairs of the best partners are ranked at once, [live, drops · adds]. At most `skipped` of them were tried
        # before, so that many more than are wanted are taken. Constraints and prices may refuse three of four.
        trials, live_rows, base, slope = self.trials, self.rows[live], self.sets[live], self.slope[live]
        movable = trials.constraints.movable(live_rows, base)
        droppable = base & ~trials.must[live_rows] & movable
        addable = trials.selectable[live_rows] & ~base & movable
        equal = ALIKE * slope.abs().sum(2).amax(1)
        now, never = self.slack[live, None].double(), float("-inf")
        dropped_value, drop = top(value(now - slope).masked_fill(~droppable, never), MAX_SWAP_PARTNERS, equal)
        added_value, add = top(value(now + slope).masked_fill(~addable, never), MAX_SWAP_PARTNERS, equal)
        loss, gain = (slope.gather(1, unit[..., None].expand(-1, -1, slope.size(2))) for unit in (drop, add))
        guess = (now[:, None] - loss[:, :, None] + gain[:, None]).flatten(1, 2)
        exists = (dropped_value.isfinite()[:, :, None] & added_value.isfinite()[:, None]).flatten(1)
        spare = 4 if trials.constrained or trials.price is not None else 2
        ranked = skipped + spare * PROPOSALS_PER_CALL
        promise, pairs = top(value(guess).masked_fill(~exists, never), ranked, 2 * equal)
        position, column = promise.isfinite().nonzero(as_tuple=True)
        pair = pairs[position, column]
        drop, add = drop[position, pair // add.size(1)], add[position, pair % add.size(1)]
        swapped = trials.constraints.mended(live_rows[position], flipped(flipped(base[position], drop), add))
        new = torch.tensor([name not in self.tried for name in names_of(live[position], swapped)], dtype=torch.bool)
        new = new.to(live.device) & (trials.size(live_rows[position], swapped) <= limit[live[position]])
        new = (new & trials.constraints.allow(live_rows[position], swapped)).nonzero().flatten()
        count = torch.bincount(position[new], minlength=len(live))
        number = torch.arange(len(new), device=live.device) - (count.cumsum(0) - count)[position[new]]  # within its set
        new = new[number < PROPOSALS_PER_CALL]
        position = position[new]
        self.note(live[position], swapped[new])
        return Swaps(live[position], swapped[new], drop[new], add[new], guess[position, pair[new]].float())
