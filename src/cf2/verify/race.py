"""Trials of candidates of which one wins: a test that cannot decide which one is not run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cf2.verify.trials import EQUAL, Outcome, Trials, best_of

Value = Callable[[Outcome], Tensor]  # how candidates compare [R]; it never falls where a slack or a pass rises


def race(trials: Trials, owner: Tensor, rows: Tensor, sets: Tensor, likely: Tensor, value: Value) -> Outcome:
    """`Trials.run` of candidates [R, U], exact for the one of every `owner` [R] that `best_of` takes by `value`.

    The test that a set is `likely` to fail [R] comes first. What was not run counts as passed by any margin, and such
    a set is worse than the winner all the same.
    """
    if trials.few or trials.rules is not None or len(trials.tests) != 2 or not len(rows):
        return trials.run(rows, sets)
    outcome = Outcome(sets.new_ones(len(rows), 2), torch.full((len(rows), 2), float("inf"), device=rows.device))
    _fill(trials, outcome, rows, sets, likely)
    owners = int(owner.max()) + 1
    leader = best_of(owner, value(outcome), owners)[owner] == torch.arange(len(rows), device=rows.device)
    whole = outcome.passes | leader
    _fill(trials, outcome, rows, sets, torch.where(whole, 1 - likely, -1))
    worth = value(outcome)
    top = worth.new_full((owners,), float("-inf")).scatter_reduce(0, owner[whole], worth[whole], "amax")
    _fill(trials, outcome, rows, sets, torch.where(~whole & (worth >= top[owner] - 2 * EQUAL), 1 - likely, -1))
    return outcome


def _fill(trials: Trials, outcome: Outcome, rows: Tensor, sets: Tensor, column: Tensor) -> None:
    """Run one test of each set [R], or none (-1), and note what it gave."""
    for number, test in enumerate(trials.tests):
        at = (column == number).nonzero().flatten()
        if len(at):
            outcome.passed[at, number], outcome.slack[at, number] = trials.test(test, rows[at], sets[at])
