"""Explanations of any function that says what comes out when exactly these units are there; no graph, no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cf2.errors import CF2Error, require, require_number
from cf2.models import outputs as forms
from cf2.options import Output, Question, Spec
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from cf2.results.names import Names
from cf2.runs.session import ALREADY, NOT_PREDICTED, UNCONFIRMED
from cf2.sets.alternatives import Besides, list_answers, without_supersets
from cf2.sets.oracle import Oracle
from cf2.sets.search import Choice, Effort, Search, proof_budget, search
from cf2.sets.tests import QUESTIONS, VERDICT_RUNS, Criterion, Verdict, judge
from cf2.sets.trials import Trials, left_out

MAX_ROWS = 4096  # states of one call of the function
USED = 1e4  # by how much a unit of an earlier answer falls in the ranking of a further search
DEFAULT = "The function gives the same answer when every unit is removed."

Function: TypeAlias = Callable[[np.ndarray], Any]


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one function: groups of its own units that go or stay together, and what is asked of them."""

    count: int  # of the function's own units
    members: Tensor  # [U, count] bool, the function's units in each unit of the search
    fixed: Tensor  # [count] bool, always there
    selectable: Tensor  # [U] bool
    price: Tensor  # [U]
    names: list[str]  # [U]


def explain_sets(
    f: Function | Sequence[Function],
    n: int | Sequence[int],
    *,
    names: Any = None,
    question: Question = "why",
    target: int | str | Sequence[int | str] | None = None,
    output: Output = "auto",
    tolerance: float | None = None,
    class_names: Sequence[str] | None = None,
    keep: Any = None,
    forbid: Any = None,
    groups: Any = None,
    costs: Any = None,
    alternatives: int = 1,
    effort: Effort = "standard",
    confidence: float = 0.0,
    proof: int | None = None,
) -> Explanations:
    """Explain the output of any function by the units of its input that it rests on.

    With several functions, `names`, `keep`, `forbid`, `groups` and `costs` are lists with one entry for each, or None.

    Parameters
    ----------
    f : callable, or a list of callables
        Gets a NumPy array of bool [R, n]: R inputs, each true where a unit is there. Returns one row of outputs for
        each, [R, C] or [R], as an array or tensor. It must give the same output for the same input.
    n : int, or a list of int
        The number of units; with several functions, one number for each.
    names : list of str, optional
        What the units are called.
    question, target, output, tolerance, class_names, alternatives
        As in `cf2.explain`. With several functions, `target` may be a list.
    keep, forbid : units by number or name, optional
        Units that are always there; units that must not be in an answer.
    groups : list of lists of units, optional
        Units that go or stay together. A group counts as one unit.
    costs : sequence of float, or costs by unit, optional
        What each unit adds to the size of an answer, 1 if not given; a group costs what its units cost together.
    effort, confidence, proof
        As in `cf2.explain`: how hard to search, how wide the margin of an answer must be, and how many sets may be
        tried to prove it the smallest.

    Returns
    -------
    Explanations
        One per function, in their order. `e.chosen_names` lists the units of an answer.

    Examples
    --------
    >>> import cf2, numpy as np
    >>> def grows(there):  # it takes water, and sun or a lamp
    ...     return np.where(there[:, 0] & (there[:, 1] | there[:, 2]), 1.0, -1.0)
    >>> e = cf2.explain_sets(grows, 3, names=["water", "sun", "lamp"], question="factual")[0]
    >>> e.chosen_names, e.sufficient, e.optimal
    (['water', 'sun'], True, True)
    """
    single = callable(f)
    try:
        functions: list[Function] = [f] if single else list(f)  # type: ignore[list-item, arg-type]
        counts: list[int] = [n] if single else list(n)  # type: ignore[list-item, arg-type]
    except TypeError as error:
        got = f"{f!r} and {n!r}"[:80]
        raise CF2Error("Expected a function and a number of units, or a list of both", got=got) from error
    require(all(map(callable, functions)), "Expected `f` to be a function, or a list of functions", got=repr(f)[:80])
    require(
        len(counts) == len(functions) > 0, f"Expected a number of units for each of {len(functions)} functions", got=n
    )
    for count in counts:
        require_number("n", count, 0, integer=True)
    asked = {"names": names, "keep": keep, "forbid": forbid, "groups": groups, "costs": costs}
    own = [
        _units(
            count,
            **{option: given if single else _entry(option, given, row, counts) for option, given in asked.items()},
        )
        for row, count in enumerate(counts)
    ]
    called = Names(class_names=class_names)
    wanted = called.number(target)
    if wanted is not None and not isinstance(wanted, int | np.integer):
        wanted = tuple(enumerate(wanted))
    settings = Search(effort, confidence, proof)
    spec = Spec(
        units=("units",),
        question=question,
        target=wanted,
        output=output,
        tolerance=tolerance,
        alternatives=alternatives,
        settings=asdict(settings),
    )
    context = {"method": spec.method, "spec": spec.to_json()}
    context |= {"class_names": list(called.classes())} if class_names is not None else {}
    context["graphs"] = {str(row): {"names": units.names} for row, units in enumerate(own)}
    return Explanations(tuple(_explained(functions, own, spec, settings)), context)


# -- units and their options ----------------------------------------------------------------------------------


def _entry(option: str, given: Any, row: int, counts: Sequence[int]) -> Any:
    """What an option says of one of several functions."""
    if given is None:
        return None
    listed = isinstance(given, list | tuple) and len(given) == len(counts)
    require(
        listed,
        f"Expected `{option}` to be a list with an entry for each of {len(counts)} functions",
        got=repr(given)[:80],
    )
    return given[row]


def _units(count: int, names: Any, keep: Any, forbid: Any, groups: Any, costs: Any) -> Units:
    names = [f"unit {unit}" for unit in range(count)] if names is None else [str(name) for name in names]
    require(len(names) == count, f"Expected `names` to hold {count} names, one for each unit", got=len(names))
    kept, forbidden = (_chosen(option, given, names) for option, given in (("keep", keep), ("forbid", forbid)))
    price = torch.ones(count)
    for unit, cost in costs.items() if isinstance(costs, Mapping) else enumerate([] if costs is None else costs):
        require_number("costs", cost, 0, 1e6)
        price[_number("costs", unit, names)] = float(cost)
    require(bool((price > 0).all()), "Expected `costs` above 0", got=costs)
    together = [[_number("groups", unit, names) for unit in group] for group in ([] if groups is None else groups)]
    grouped = [unit for group in together for unit in group]
    require(len(set(grouped)) == len(grouped), "Expected every unit in one group of `groups` at most", got=groups)
    # A group stands where its first unit was; the others are no units of the search any more.
    by_first = {group[0]: group for group in together if group}
    rows = [by_first.get(unit, [unit]) for unit in range(count) if unit in by_first or unit not in grouped]
    members = torch.zeros(len(rows), count, dtype=torch.bool)
    for row, group in enumerate(rows):
        members[row, group] = True
    return Units(
        count,
        members,
        kept,
        ~(members & (kept | forbidden)).any(1),
        members.float() @ price,
        [" + ".join(names[unit] for unit in group) for group in rows],
    )


def _chosen(option: str, given: Any, names: list[str]) -> Tensor:
    units = [given] if isinstance(given, str | int) else [] if given is None else list(given)
    chosen = torch.zeros(len(names), dtype=torch.bool)
    chosen[[_number(option, unit, names) for unit in units]] = True
    return chosen


def _number(option: str, unit: Any, names: list[str]) -> int:
    """The number of a unit that is given by number or by name."""
    number = names.index(unit) if isinstance(unit, str) and unit in names else unit
    good = isinstance(number, int | np.integer) and not isinstance(number, bool) and number in range(len(names))
    require(good, f"Expected `{option}` to hold units: names, or numbers below {len(names)}", got=repr(unit)[:80])
    return int(number)


# -- the oracle -----------------------------------------------------------------------------------------------


class FunctionOracle(Oracle):
    """What functions return when exactly these units are there."""

    def __init__(self, functions: Sequence[Function], units: Sequence[Units], form: Output = "auto") -> None:
        super().__init__(torch.tensor([len(own.names) for own in units]))
        self.functions, self.units, self.form = functions, units, form
        every = torch.cat([own.selectable for own in units])
        self.selectable = self.dense(every, False)
        prices = torch.cat([own.price for own in units])
        self.price = None if bool((prices == 1).all()) else self.dense(prices, 0.0)

    def take(self, rows: Tensor) -> FunctionOracle:
        """The same for some of the functions, which may repeat."""
        picked = rows.tolist()
        return FunctionOracle([self.functions[row] for row in picked], [self.units[row] for row in picked], self.form)

    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What function `rows` [R] return of these states [R, U, bool], as probabilities or numbers: [R, C]."""
        return forms.probabilities(self.returned(rows, states), self.form)

    def returned(self, rows: Tensor, states: Tensor) -> Tensor:
        """The outputs as the functions return them [R, C]."""
        found: Tensor | None = None
        for row in torch.unique(rows).tolist():
            own, at = self.units[row], (rows == row).nonzero().flatten()
            there = (states[at][:, : len(own.names)].double() @ own.members.double() > 0) | own.fixed
            for part in torch.split(torch.arange(len(at)), MAX_ROWS):
                said = _called(self.functions[row], there[part].numpy())
                found = said.new_zeros((len(rows), said.size(1))) if found is None else found
                require(
                    said.size(1) == found.size(1),
                    f"Expected {found.size(1)} outputs per row, as before",
                    got=said.size(1),
                )
                found[at[part]] = said
        return torch.zeros(0, 1) if found is None else found


def _called(function: Function, states: np.ndarray) -> Tensor:
    expected = f"Expected the function to return one row of numbers for each of {len(states)} inputs"
    try:
        said = function(states)
        rows = said.detach().cpu() if isinstance(said, Tensor) else torch.as_tensor(np.asarray(said))
        rows = rows.double()
    except CF2Error:
        raise
    except Exception as error:  # of the user's own function
        raise CF2Error(expected, got=f"{type(error).__name__}: {error}") from error
    rows = rows[:, None] if rows.dim() == 1 else rows
    require(rows.dim() == 2 and len(rows) == len(states), expected, got=f"shape {tuple(rows.shape)}")
    require(bool(torch.isfinite(rows).all()), "Expected finite outputs", got="NaN or infinity")
    return rows


# -- answers --------------------------------------------------------------------------------------------------


def _explained(
    functions: Sequence[Function], units: Sequence[Units], spec: Spec, settings: Search
) -> list[Explanation]:
    started = time.perf_counter()
    oracle = FunctionOracle(functions, units)
    every = torch.arange(len(functions))
    rows, again = (oracle.returned(every, oracle.valid) for _ in range(2))
    require(
        torch.equal(rows, again),
        "Expected a function that returns the same for the same input",
        got="other outputs the second time",
        do="Fix its random state inside of the function.",
    )
    nothing = oracle.returned(every, torch.zeros_like(oracle.valid))  # both ends tell a logit from a probability
    oracle.form = forms.settle(torch.cat([rows, nothing]), spec.output)
    kind, outputs = forms.FORMS[oracle.form].kind, forms.probabilities(rows, oracle.form)
    tolerance, keys = spec.tolerance, every.tolist()
    if kind.takes_tolerance and tolerance is None:
        tolerance = forms.default_tolerance(outputs, forms.target_columns(outputs, keys, spec.target, kind))
    wanted = spec.question == "counterfactual"
    criterion = forms.criterion_for(outputs, keys, spec.target, kind, wanted=wanted, tolerance=tolerance)
    given = criterion.holds(outputs)
    answers: dict[int, tuple[list[Explanation], bool]] = {}
    for alive in (given, ~given):
        part = alive.nonzero().flatten()
        if len(part):
            asked = _Asked(oracle.take(part), criterion.take(part), outputs[part], part, spec, settings, kind)
            answers |= asked.answers() if bool(given[part[0]]) else asked.not_predicted()
    seconds = (time.perf_counter() - started) / len(functions)
    made = []
    for row in keys:
        own, complete = answers[row]
        kept = without_supersets([torch.from_numpy(e.selected) for e in own])
        made += [
            replace(own[place], rank=rank, complete=complete, seconds=0.0 if rank else seconds)
            for rank, place in enumerate(kept)
        ]
    return made


@dataclass(frozen=True, eq=False)
class _Asked:
    """Functions with what is asked of them; all of them give the answer in question, or none does."""

    oracle: FunctionOracle
    criterion: Criterion
    outputs: Tensor  # [B, C]
    keys: Tensor  # [B]
    spec: Spec
    settings: Search
    kind: forms.OutputKind

    def answers(self) -> dict[int, tuple[list[Explanation], bool]]:
        """By key, the answers of each function and whether these are all."""
        tests, most = QUESTIONS[self.spec.question], self.spec.alternatives
        ranking = Trials(self.oracle, self.criterion, tests[-1:])
        scores = ranking.flat(left_out(ranking))
        choice = search(self.oracle, self.criterion, tests, scores, self.settings)
        choice = replace(choice, evaluations=choice.evaluations + ranking.evaluations)
        known = self.oracle.dense(choice.selected, False)[:, None]
        best = self._explanations(choice, scores)
        found = {row: ([e], False) for row, e in enumerate(best)}
        alive = torch.tensor([e.status == "found" for e in best]) & (most > 1)
        trials = Trials(self.oracle, self.criterion, tests, self.settings.confidence)
        for row in alive.nonzero().flatten().tolist():  # all answers at once, where they can be listed
            listed = list_answers(trials, row, most, proof_budget(self.settings))
            if listed is not None:
                alive[row] = False
                sizes = trials.size(torch.full((len(listed.sets),), row), listed.sets)
                optimal: list[bool | None] = [bool(size == sizes.min()) or None for size in sizes]
                sets = listed.sets[:, : int(self.oracle.counts[row])]
                repeated = self.take(torch.full((len(sets),), row))
                status, minimal = ["found"] * len(sets), [True] * len(sets)
                chosen = Choice(sets.reshape(-1), torch.zeros(len(sets)), status, minimal, optimal)
                further = repeated._explanations(chosen, torch.from_numpy(best[row].scores).repeat(len(sets)))
                found[row] = ([best[row], *further], listed.complete)
        for _ in range(most - 1):  # elsewhere one after the other, each by a search for something else
            rows = alive.nonzero().flatten()
            if not len(rows):
                break
            part = self.take(rows)
            own = known[rows][:, :, : part.oracle.width]
            lower = part.oracle.dense(torch.cat([torch.from_numpy(best[row].scores) for row in rows.tolist()]), 0.0)
            lower = (lower - USED * own.any(1))[part.oracle.valid]
            choice = search(part.oracle, part.criterion, tests, lower, self.settings, Besides(own))
            sets = torch.zeros_like(known[:, 0])
            for row, e in zip(rows.tolist(), part._explanations(choice, lower)):
                alive[row] = e.status == "found"
                if alive[row]:
                    found[row][0].append(replace(e, scores=best[row].scores, optimal=None, lower_bound=None))
                    sets[row, : e.num_units] = torch.from_numpy(e.selected)
            known = torch.cat([known, sets[:, None]], 1)
        return {int(self.keys[row]): answer for row, answer in found.items()}

    def not_predicted(self) -> dict[int, tuple[list[Explanation], bool]]:
        """By key, an explanation of each function that says that it does not give the answer in question."""
        nothing = torch.zeros(int(self.oracle.counts.sum()))
        choice = Choice(nothing.bool(), torch.zeros(len(self.keys)))
        text = ALREADY if self.spec.question == "counterfactual" else NOT_PREDICTED
        said, asked = self.criterion.said(self.outputs).tolist(), self.criterion.answers.tolist()

        def named(row: int) -> dict[str, Any]:
            return {"said": f"class {said[row]}", "asked": f"class {asked[row]}", "number": asked[row]}

        return {
            key: ([replace(e, status="not predicted", note=text.format(**named(row)))], False)
            for row, (key, e) in enumerate(zip(self.keys.tolist(), self._explanations(choice, nothing)))
        }

    def take(self, rows: Tensor) -> _Asked:
        """Some of the functions, which may repeat."""
        return replace(
            self,
            oracle=self.oracle.take(rows),
            criterion=self.criterion.take(rows),
            outputs=self.outputs[rows],
            keys=self.keys[rows],
        )

    def _explanations(self, choice: Choice, scores: Tensor) -> list[Explanation]:
        """What was chosen, after the final check, as one value per function."""
        oracle, spec = self.oracle, self.spec
        sets, scored = oracle.dense(choice.selected, False), oracle.dense(scores, 0.0)
        verdict: Verdict = judge(oracle, self.criterion, sets, self.outputs)
        confirmed = verdict.passes(QUESTIONS[spec.question]).tolist()
        empty = self.criterion.holds(oracle.checked(torch.zeros_like(oracle.valid))).tolist()
        made = []
        for row, key in enumerate(self.keys.tolist()):
            count = int(oracle.counts[row])
            status = "unverified" if choice.status is None else choice.status[row]
            note = ""
            if status == "found" and not confirmed[row]:
                status, note = "not found", UNCONFIRMED
            found, failed = status == "found", status in ("not found", "impossible")
            if failed and empty[row]:
                note = f"{DEFAULT} {note}".strip()
            bounded = choice.lower_bound is not None and oracle.price is None and (found or status == "not found")
            ids = np.stack([np.full(count, -1), np.arange(count)], 1)
            made.append(
                Explanation(
                    key=key,
                    task="input",
                    prediction=int(self.criterion.said(self.outputs)[row]),
                    units=UnitTable(("units",), np.zeros(count, np.int8), ids),
                    scores=scored[row, :count].float().numpy(),
                    selected=sets[row, :count].numpy(),
                    probabilities=self.outputs[row].float().numpy(),
                    probabilities_only=verdict.only[row].float().numpy(),
                    probabilities_without=verdict.without[row].float().numpy(),
                    sufficient=bool(verdict.sufficient[row]),
                    necessary=bool(verdict.necessary[row]),
                    minimal=choice.minimal[row] if found and choice.minimal else None,
                    optimal=choice.optimal[row] if found and choice.optimal else None,
                    status=status if count else "empty",
                    note=note,
                    question=spec.question,
                    method=spec.method,
                    settings=dict(spec.settings),
                    evaluations=int(choice.evaluations[row]) + VERDICT_RUNS,
                    target=None if spec.target is None else int(self.criterion.answers[row]),
                    lower_bound=choice.lower_bound[row] if bounded else None,  # type: ignore[index]
                    default=empty[row] if failed else None,
                    output=self.kind.name,
                    tolerance=getattr(self.criterion, "tolerance", None),
                    ranking="trials",
                )
            )
        return made
