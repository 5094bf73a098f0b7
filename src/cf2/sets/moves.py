"""The moves of a search: prune, repair, grow, exchange, and widen the margin; each over many instances at once.

A move proposes sets by ranking or slope, and only what `Trials` says of them decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cf2.sets.trials import ALIKE, EQUAL, Outcome, Trials, best_of, names_of, race, score, top

# -- pruning --------------------------------------------------------------------------------------------------

MAX_STEPS_AHEAD = 4  # steps of a pruning that are run at once where there is a single instance


def prune(
    trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, passed: Tensor, below: Tensor | None = None
) -> Tensor:
    """Drop runs of the least important units, halving their length, then single ones, while the tests pass.

    This is delta debugging (Zeller and Hildebrandt, 2002) guided by a ranking: about log U trials where few units are
    needed, where single drops would take U. A set that has not `passed` keeps the tests that it passes now. With sizes
    `below` which to get, a set is left as it is once as many runs have proved needed: it cannot get smaller any more.
    """
    # The columns are sorted once and stay: what is dropped leaves a gap, and `skip` counts over the gaps.
    order = ranking.argsort(dim=1, stable=True)
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
    # A binary tree of outcomes: with one instance a call costs so much more than a row that 2^depth rows are cheaper
    # than depth calls. The results go to the table of trials, where the real steps find them.
    depth = MAX_STEPS_AHEAD if len(state.rows) == 1 else MAX_STEPS_AHEAD - 1
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

    Each round tries every single drop. Where several work, as many as still work together go at once. Passing is not
    monotone in S (a smaller set can pass where a larger one fails), so single drops have to be tried again after each.
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


# -- moves ----------------------------------------------------------------------------------------------------

STEPS_BEFORE_GIVING_UP = 2  # units beyond the first after which it is judged whether growing leads anywhere


@dataclass(frozen=True)
class Budget:
    """How much of everything an effort spends."""

    repairs: int  # moves towards a first passing set
    restarts: int  # prunings in other orders, where there are many units
    grown: int  # units that a set grown from nothing may have, where a small passing set is known
    exchanges: int  # swaps without a smaller set before an instance is left alone
    drops: int  # candidates tried in each move that drops a unit
    adds: int  # candidates tried in each move that adds one
    proof: int  # sets tried to prove an answer smallest
    rounds: int = 1  # exchanges from so many starts
    partly: bool = False  # whether a proof goes on where it cannot reach the end, for a lower bound
    swaps: int = 0  # swaps without a wider margin before a smallest set is left alone
    slack: int = 1  # a restart is given up when it looks to end with so many times the units of the best set


# -- 1. start ----------------------------------------------------------------------------------------------


def prefixes(trials: Trials, *rankings: Tensor) -> tuple[Tensor, Outcome, Tensor]:
    """The shortest tried prefix of any ranking that passes, else the tried prefix nearest to passing.

    With what the tests gave, and which ranking it was [B]. Lengths grow by half as much again: all of them would cost U
    trials, and pruning takes off what is too much for log U.
    """
    rows, sets, ways = [], [], []
    for way, ranking in enumerate(rankings):
        place = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
        for length in _lengths(trials.width) or [0]:
            fits = ((trials.counts > length) | (length == trials.width)).nonzero().flatten()
            rows.append(fits)
            sets.append(trials.admissible(fits, place[fits] < length))
            ways.append(torch.full_like(fits, way))
    row, candidates, way_of = torch.cat(rows), torch.cat(sets), torch.cat(ways)
    size = trials.size(row, candidates)

    def value(outcome: Outcome) -> Tensor:
        return torch.where(outcome.passes, 1e6 - size, outcome.score.clamp(min=-1e5))

    outcome = race(trials, row, row, candidates, torch.full_like(row, len(trials.tests) - 1), value)
    winner = best_of(row, value(outcome), len(trials.counts))  # everything is a candidate of each
    return candidates[winner], outcome.take(winner), way_of[winner]


def _lengths(width: int) -> list[int]:
    """Sizes to try: a few small ones, then by half as much again each, and everything."""
    lengths, length = [], 2
    while length < width:
        lengths.append(length)
        length = max(length + 2, int(length * 1.5))
    return [*lengths, width] if width else []


FIRST_REPAIRS = 4  # moves of a repair after which it is asked whether any set passes at all

Settle = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]  # sets, passed -> both, and where nothing passes


def repair(
    trials: Trials, sets: Tensor, start: Outcome, budget: Budget, settle: Settle | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Add or drop the most promising unit of sets that fail, until they pass or the budget is spent.

    A tabu search (Glover, 1989): a unit that was moved is held for five moves, or the walk would take it back at once.
    `start` is what the tests gave for `sets`: where nothing nearer to passing is found, a set stays as it is. Sets that
    fail after a few moves are given to `settle`, which may know that none passes; where it does not, the walk goes on.
    With the sets, which of them pass, and for which instances none does [B].
    """
    passed = start.passes.clone()
    best = start.score.clone()
    nearest, current = sets.clone(), sets.clone()
    tabu = torch.zeros(sets.shape, dtype=torch.long, device=sets.device)
    never = torch.zeros_like(passed)
    for move in range(1, budget.repairs + 1):
        if move == FIRST_REPAIRS + 1 and settle is not None and not passed.all():
            nearest, passed, never = settle(nearest, passed)
        rows = (~passed & ~never & (trials.counts > 0)).nonzero().flatten()
        if not len(rows):
            break
        held = tabu[rows] > move
        picked, outcome, unit = _move(trials, rows, current[rows], held, budget.drops, budget.adds)
        current[rows], passed[rows] = picked, outcome.passes
        tabu[rows, unit] = move + 5
        nearer = (outcome.score > best[rows] + EQUAL) | outcome.passes
        best[rows] = torch.where(nearer, outcome.score, best[rows])
        nearest[rows] = torch.where(nearer[:, None], picked, nearest[rows])
    return nearest, passed, never


def grow(trials: Trials, rows: Tensor, most: Tensor, adds: int) -> tuple[Tensor, Tensor]:
    """From nothing, add the most promising unit again and again: a small passing set where the ranking misled.

    Rankings come from soft masks, under which most units look needed; from nothing, the few that carry the answer stand
    out. Given up early where a test, going on at its pace so far, would not be passed in time.
    """
    nothing = torch.zeros_like(trials.valid[rows])
    sets = trials.admissible(rows, nothing)
    passed = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    most = torch.minimum(most, trials.selectable[rows].sum(1))
    first = torch.zeros(len(rows), len(trials.tests), device=rows.device)  # the slack with the first unit
    step = 0
    while True:
        live = (~passed & (sets.sum(1) < most)).nonzero().flatten()
        if not len(live):
            return sets, passed
        picked, outcome, _ = _move(trials, rows[live], sets[live], nothing[live], 0, adds)
        stuck = (picked == sets[live]).all(1)  # nothing is left to add
        if step == 0:
            first[live] = outcome.slack
        elif step >= STEPS_BEFORE_GIVING_UP:
            pace = (outcome.slack - first[live]).clamp(min=0) / step
            stuck |= (outcome.slack + pace * (most[live] - picked.sum(1))[:, None] < 0).any(1)
        sets[live], passed[live], most[live[stuck]] = picked, outcome.passes, 0
        step += 1


# -- 2. exchange -------------------------------------------------------------------------------------------


PROPOSALS_PER_CALL = 4  # swaps of an instance that are tried at once
CALLS_PER_SLOPE = 2  # calls after which slopes are measured anew where the walk is
LEARNED = 0.5  # share of the error of a guess by which it is corrected


def exchange(trials: Trials, rows: Tensor, sets: Tensor, budget: Budget) -> Tensor:
    """Look for a smaller passing set: drop a unit, then swap others until the tests pass.

    The walk goes through sets of one unit less than the best (`base`), so whatever passes is smaller. Swaps are
    proposed by what units are believed to add to each test: at first the slopes, and then what the trials have shown.
    Of a swap that gives something else than was guessed, both units take half of the correction (the method of
    Kaczmarz, 1937), which costs nothing where a gradient costs three trials. The walk moves to the best proposal also
    where that is no better, and never proposes a set twice. An instance is left alone after so many proposals without
    a smaller set as it has units in its best one and `exchanges` more.
    """
    every = torch.arange(len(rows), device=rows.device)
    best, base = sets.clone(), sets.clone()
    slack = torch.zeros(len(rows), len(trials.tests), device=rows.device)
    slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
    vain, calls = torch.zeros_like(rows), torch.zeros_like(rows)
    been = set(names_of(every, sets))
    live = shrunk = (best.sum(1) > 1).nonzero().flatten()
    while len(live):
        base[shrunk] = best[shrunk]
        while len(shrunk):
            slack[shrunk], slope[shrunk] = trials.slopes(rows[shrunk], best[shrunk])
            passed = _drop_one(trials, rows, base, slack, slope, shrunk, budget)
            been.update(names_of(shrunk, base[shrunk]))
            # Constraints may put back what was dropped, or more, so a set that passes need not be smaller.
            passed &= trials.size(rows[shrunk], base[shrunk]) < trials.size(rows[shrunk], best[shrunk]) - EQUAL
            shrunk = shrunk[passed]
            best[shrunk] = base[shrunk]
            shrunk = shrunk[best[shrunk].sum(1) > 1]
        stale = live[(calls[live] > 0) & (calls[live] % CALLS_PER_SLOPE == 0)]
        slack[stale], slope[stale] = trials.slopes(rows[stale], base[stale])
        limit = trials.size(rows, best) - EQUAL
        swaps = _swaps(trials, rows, base, slack, slope, live, score, limit, been, int(vain.max()))
        owner, made = swaps.owner, swaps.made
        been.update(names_of(owner, made))
        outcome = race(trials, owner, rows[owner], made, swaps.guess.argmin(1), _worth)
        # What was not run, because it could not win any more, teaches nothing.
        error = LEARNED / 2 * torch.where(outcome.slack.isfinite(), outcome.slack - swaps.guess, 0)
        slope.index_put_((owner, swaps.add), error, accumulate=True)
        slope.index_put_((owner, swaps.drop), -error, accumulate=True)
        winner = best_of(owner, _worth(outcome), len(rows))
        moved = (winner >= 0).nonzero().flatten()
        winner = winner[moved]
        base[moved], slack[moved] = made[winner], outcome.slack[winner]
        vain += torch.bincount(owner, minlength=len(rows))
        calls[moved] += 1
        shrunk = moved[outcome.passes[winner]]
        best[shrunk], vain[shrunk], calls[shrunk] = base[shrunk], 0, 0
        size = best[moved].sum(1)
        live = moved[(vain[moved] < budget.exchanges + size) & (size > 1)]
        shrunk = shrunk[best[shrunk].sum(1) > 1]
    return best


def _worth(outcome: Outcome) -> Tensor:
    return outcome.score + 1e3 * outcome.passes


def _drop_one(
    trials: Trials, rows: Tensor, base: Tensor, slack: Tensor, slope: Tensor, live: Tensor, budget: Budget
) -> Tensor:
    """Drop a unit of each `base`, and learn from what that gives; whether the tests still pass."""
    held = torch.zeros_like(base[live])
    near = slack[live], slope[live]
    base[live], outcome, unit = _move(trials, rows[live], base[live], held, budget.drops, 0, near)
    known = outcome.slack.isfinite()
    error = torch.where(known, outcome.slack - slack[live] + slope[live, unit], 0)
    slope[live, unit] -= LEARNED * error
    slack[live] = torch.where(known, outcome.slack, slack[live])
    return outcome.passes


def _move(
    trials: Trials,
    rows: Tensor,
    sets: Tensor,
    held: Tensor,
    drops: int,
    adds: int,
    slopes: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Outcome, Tensor]:
    """The best of the most promising single drops and adds, chosen by slopes and decided by trials.

    A slope is a first-order guess of what a unit adds, so it only selects candidates: those few are really run.

    With the outcome and the unit that was moved. A set that no unit can be dropped from or added to stays as it is and
    counts as failing, with unit 0.
    """
    slack, slope = trials.slopes(rows, sets) if slopes is None else slopes
    sign = torch.where(sets, -1.0, 1.0)
    if trials.price is not None:
        slope = slope / trials.price[rows].clamp(min=1e-9)[..., None]  # what a unit wins for what it counts
    guess = score(slack[:, None].double() + sign[..., None] * slope)  # so precise that only slopes tell units apart
    equal = ALIKE * slope.abs().sum(2).amax(1)
    allowed = trials.selectable[rows] & torch.where(sets, drops > 0, adds > 0)
    if trials.required is not None:
        allowed &= ~trials.required[rows]
    if trials.constraints is not None:
        allowed &= trials.constraints.movable(rows, sets)
    guess = guess.masked_fill(~allowed, float("-inf"))
    guess = torch.where(held & allowed, guess - 1e6, guess)  # a held unit is the last resort
    chosen = []
    for kind, count in ((sets, drops), (~sets, adds)):
        if count:
            chosen.append(top(guess.masked_fill(~kind, float("-inf")), count, equal))
    guessed, unit = (torch.cat(column, 1) for column in zip(*chosen))
    owner, place = guessed.isfinite().nonzero(as_tuple=True)
    unit = unit[owner, place]
    candidates = sets[owner].clone()
    candidates[torch.arange(len(owner), device=owner.device), unit] ^= True
    if trials.constraints is not None:
        candidates = trials.constraints.mended(rows[owner], candidates)

    def value(outcome: Outcome) -> Tensor:
        if trials.price is None:
            return _worth(outcome)
        cheap = 1e9 - trials.size(rows[owner], candidates).double()  # of those that pass, the cheapest
        return torch.where(outcome.passes, cheap, outcome.score.double())

    likely = (slack[owner] + sign[owner, unit, None] * slope[owner, unit]).argmin(1)
    outcome = race(trials, owner, rows[owner], candidates, likely, value)
    winner = best_of(owner, value(outcome), len(rows))
    if bool((winner >= 0).all()):
        return candidates[winner], outcome.take(winner), unit[winner]
    # One row more at the end, for the instances without a candidate.
    failing = Outcome(
        torch.cat([outcome.passed, torch.zeros_like(slack[:1], dtype=torch.bool)]),
        torch.cat([outcome.slack, torch.full_like(slack[:1], float("-inf"))]),
    )
    moved = torch.where((winner >= 0)[:, None], torch.cat([candidates, sets[:1]])[winner], sets)
    return moved, failing.take(winner), torch.cat([unit, unit.new_zeros(1)])[winner]


# -- edit moves -----------------------------------------------------------------------------------------------

MAX_GROWN_EDITS = 24  # edits of a set that is grown from nothing
WIDER_STEP = 8  # where a set was grown in vain, or is large, so many times the candidates are tried in each step
MANY_EDITS = 3  # edits of a set that is grown again, with more candidates


def start_edits(trials: Trials, ranking: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """A first set of edits per instance [B, U], and whether it passes [B]; where none does, nothing is edited."""
    # Among removals nearly everything is needed to keep an answer, so searches start from much and prune. Edits are
    # the other way round: there are thousands of candidates and one to three of them do, so sets are grown.
    rows = torch.arange(len(trials.counts), device=ranking.device)
    first = ranking
    if trials.constraints is not None:  # what the rules refuse by itself spoils every prefix
        alone = trials.constraints.movable(rows, torch.zeros_like(trials.valid), alone=True)
        first = ranking.masked_fill(~alone, float("-inf"))
    sets, outcome, _ = prefixes(trials, first)
    passed = outcome.passes.clone()
    sets = torch.where(passed[:, None], sets, trials.admissible(rows, torch.zeros_like(sets)))
    hit = passed.nonzero().flatten()
    sets[hit] = prune(trials, hit, sets[hit], ranking[hit], passed[hit])
    for adds in (2 * budget.adds, WIDER_STEP * budget.adds):
        size = sets.sum(1)
        large = trials.size(rows, sets) > (2 if adds == 2 * budget.adds else MANY_EDITS) * _cheapest(trials)
        todo = rows[~passed | large]
        known = size[todo] - 1 if trials.price is None else size[todo] + 2  # more edits may be the cheaper ones
        limit = MAX_GROWN_EDITS if adds == 2 * budget.adds else 2 * MAX_GROWN_EDITS
        most = torch.where(passed[todo], known.clamp(max=MAX_GROWN_EDITS), limit)
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


# -- margins --------------------------------------------------------------------------------------------------

MAX_USEFUL_SLACK = 10.0  # more slack than this is no better: of two classes, the other one has less than 5 in 100,000
EQUAL_MARGINS = 1e-3  # margins closer than this are equal: they may be the same number, summed in another order


def margin(slack: Tensor) -> Tensor:
    """By how much all tests hold, from the slack in each [..., tests]: as the one does that holds least."""
    return slack.clamp(max=MAX_USEFUL_SLACK).amin(-1)


def margins(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    """The margins of sets [R] that are known to pass; they have been tried, so nothing is run again."""
    return margin(torch.stack([trials.test(test, rows, sets)[1] for test in trials.tests], 1))


def widest(rows: Tensor, margins: Tensor, instances: int) -> Tensor:
    """The position of the candidate with the widest margin of every instance, the first of equals; -1 where none."""
    return best_of(rows, margins * (EQUAL / EQUAL_MARGINS), instances)


def widen(trials: Trials, rows: Tensor, sets: Tensor, swaps: int) -> Tensor:
    """Swap units of passing sets [R, U] while the tests pass by a wider margin; no set gets larger.

    Many sets of the smallest size pass; the one that is furthest from failing says more, and survives small changes
    of the input. Swaps are tried in the order of what slopes promise. A set is left alone after `swaps` of them without
    a wider margin, or when there are no more.
    """
    every = torch.arange(len(rows), device=rows.device)
    sets = sets.clone()
    best, limit = margins(trials, rows, sets), trials.size(rows, sets) + EQUAL
    vain = torch.zeros_like(rows)  # swaps of the present set
    slack = torch.zeros(len(rows), len(trials.tests), device=rows.device)
    slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
    been = set(names_of(every, sets))
    live = fresh = every[: len(rows) if swaps else 0]
    while len(live):
        slack[fresh], slope[fresh] = trials.slopes(rows[fresh], sets[fresh])
        tried = _swaps(trials, rows, sets, slack, slope, live, margin, limit, been, int(vain.max()))
        owner, made = tried.owner, tried.made
        been.update(names_of(owner, made))
        value = torch.full((len(owner),), float("-inf"), device=rows.device)
        good = trials.run(rows[owner], made).passes
        value[good] = margins(trials, rows[owner[good]], made[good])
        place = widest(owner, value, len(rows))
        wider = (place >= 0) & (torch.cat([value, best[:1]])[place] > best + EQUAL_MARGINS)
        count = torch.bincount(owner, minlength=len(rows))
        vain += count
        fresh = wider.nonzero().flatten()
        sets[fresh], best[fresh], vain[fresh] = made[place[fresh]], value[place[fresh]], 0
        live = live[wider[live] | ((count[live] > 0) & (vain[live] < swaps))]
    return sets


# -- swaps ----------------------------------------------------------------------------------------------------

MAX_SWAP_PARTNERS = 12  # units to drop, and units to add, that a swap is made of


class Swaps(NamedTuple):
    """Sets with one unit of another set swapped for another [r]."""

    owner: Tensor  # [r], which set it was
    made: Tensor  # [r, U]
    drop: Tensor  # [r]
    add: Tensor  # [r]
    guess: Tensor  # [r, tests], what slack it is believed to have


def _swaps(
    trials: Trials,
    rows: Tensor,
    sets: Tensor,
    slack: Tensor,
    slope: Tensor,
    live: Tensor,
    value: Callable[[Tensor], Tensor],
    limit: Tensor,
    been: set[bytes],
    skipped: int,
) -> Swaps:
    """The most promising swaps of the `live` ones of sets [R, U], by the `value` of the slack that they may give.

    A swap is guessed to give slack - slope of what goes + slope of what comes. All pairs of the best partners are
    ranked at once; those that were tried (`been`), break a constraint or count more than the `limit` [R] are passed
    over.
    """
    own, base, slope = rows[live], sets[live], slope[live]
    free, other = base, trials.selectable[own] & ~base
    if trials.required is not None:
        free = free & ~trials.required[own]
    if trials.constraints is not None:
        movable = trials.constraints.movable(own, base)
        free, other = free & movable, other & movable
    equal = ALIKE * slope.abs().sum(2).amax(1)
    now, never = slack[live, None].double(), float("-inf")
    left, drop = top(value(now - slope).masked_fill(~free, never), MAX_SWAP_PARTNERS, equal)
    came, add = top(value(now + slope).masked_fill(~other, never), MAX_SWAP_PARTNERS, equal)
    loss, gain = (slope.gather(1, unit[..., None].expand(-1, -1, slope.size(2))) for unit in (drop, add))
    guess = (now[:, None] - loss[:, :, None] + gain[:, None]).flatten(1, 2)
    exists = (left.isfinite()[:, :, None] & came.isfinite()[:, None]).flatten(1)
    promise, pair = top(value(guess).masked_fill(~exists, never), skipped + 4 * PROPOSALS_PER_CALL, 2 * equal)
    position, at = promise.isfinite().nonzero(as_tuple=True)
    pair = pair[position, at]
    drop, add = drop[position, pair // add.size(1)], add[position, pair % add.size(1)]
    made, each = base[position], torch.arange(len(position), device=rows.device)
    made[each, drop], made[each, add] = False, True
    if trials.constraints is not None:
        made = trials.constraints.mended(own[position], made)
    new = torch.tensor([name not in been for name in names_of(live[position], made)], dtype=torch.bool)
    new = new.to(rows.device) & (trials.size(own[position], made) <= limit[live[position]])
    new = (new & trials.allowed(own[position], made)).nonzero().flatten()
    taken = torch.bincount(position[new], minlength=len(live))
    place = torch.arange(len(new), device=rows.device) - (taken.cumsum(0) - taken)[position[new]]
    new = new[place < PROPOSALS_PER_CALL]
    position = position[new]
    return Swaps(live[position], made[new], drop[new], add[new], guess[position, pair[new]].float())
