"""Explanations of any function that says what comes out when exactly these units are there; no graph, no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

import numpy as np
import torch
from torch import Tensor

from cf2.errors import CF2Error, reading, require, require_number, shown, unknown_name
from cf2.methods import registry
from cf2.methods.contract import SetProblem
from cf2.models import outputs as forms
from cf2.options import Output, SetOptions, Spec, bounded, meanings, plain_number, with_options
from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from cf2.results.names import Names
from cf2.runs.answers import Answers, Facts, check_asked, check_class_names
from cf2.runs.progress import say_interrupted, told
from cf2.sets.oracle import Oracle
from cf2.sets.tests import QUESTIONS

MAX_UNITS = 100_000  # of one function
MAX_ENTRIES = 1 << 24  # of the states of one call of a function, and
MAX_ROWS = 4096  # the most states of one

Function: TypeAlias = Callable[[np.ndarray], Any]


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one function, by what is asked of them: of a group, its first unit stands for all."""

    unit: Tensor  # [n], which of the U units of the search each unit of the function is a part of
    first: Tensor  # [U], the first unit of the function in each
    fixed: Tensor  # [U] bool, always there
    selectable: Tensor  # [U] bool
    price: Tensor  # [U]
    names: list[str]  # [n]; that of the first unit of a group names the group

    def context(self) -> dict[str, Any]:
        """What a reader and `cf2.check` need of them, ready for JSON."""
        flags = {"units": self.unit, "fixed": self.fixed, "free": self.selectable, "costs": self.price}
        return {"names": self.names} | {name: flag.tolist() for name, flag in flags.items()}


@with_options(SetOptions)
def explain_sets(
    f: Function | Sequence[Function],
    n: int | Sequence[int],
    *,
    names: Any = None,
    keep: Any = None,
    forbid: Any = None,
    groups: Any = None,
    costs: Any = None,
    **selected: Unpack[SetOptions],
) -> Explanations:
    """Explain the output of any function by the units of its input.

    With several functions, `names`, `keep`, `forbid` and `costs` apply to all of them, or are lists with one entry per
    function. `groups` is always such a list.

    Parameters
    ----------
    f : callable, or a list of callables
        Gets a NumPy array of bool [R, n]: R inputs, true where a unit is present. Returns one row of outputs per input,
        [R, C] or [R], as an array or tensor. It must return the same output for the same input.
    n : int, or a list of int
        Number of units; with several functions, one number per function.
    names : list of str, optional
        Names of the units.
    keep, forbid : units by number or name, optional
        Units that are always present; units that must not be in an answer. If a group has such a unit, the whole group
        is kept or forbidden.
    groups : list of lists of units, optional
        Units that are removed together. A group counts as one unit.
    costs : sequence of float, or costs by unit, optional
        Cost of each unit in the size of an answer (default: 1). The cost of a group is the sum over its units.
    {options}

    Returns
    -------
    Explanations
        One per function, in their order. `e.chosen_names` lists the units of an answer, `e.chosen("units")[:, 1]` their
        numbers. `cf2.check(found, f, n)` checks every claim.

    Examples
    --------
    >>> import cf2, numpy as np
    >>> def grows(there):  # it takes water, and sun or a lamp
    ...     return np.where(there[:, 0] & (there[:, 1] | there[:, 2]), 1.0, -1.0)
    >>> e = cf2.explain_sets(grows, 3, names=["water", "sun", "lamp"], question="factual")[0]
    >>> e.chosen_names, e.sufficient, e.optimal
    (['water', 'sun'], True, True)
    """
    functions, counts = functions_of(f, n)
    asked = {"names": names, "keep": keep, "forbid": forbid, "groups": groups, "costs": costs}
    for name, given in asked.items():
        several = given if isinstance(given, list | tuple) and not callable(f) else ()
        shared = not several or any(isinstance(own, str | int | float) for own in several)  # units, not lists of them
        asked[name] = [given] * len(counts) if shared else several
        listed = len(asked[name]) == len(counts)
        expected = f"Expected `{name}` to be a list with an entry for each of {len(counts)} functions"
        require(listed, expected, got=shown(given, 80))
    units = [_units(count, *own) for count, *own in zip(counts, *asked.values())]
    for name in selected:
        if name not in SetOptions.__annotations__:
            raise unknown_name("an option of `explain_sets`", name, [*SetOptions.__annotations__, *asked])
    classes = Names(class_names=selected.pop("class_names", None))
    target = classes.number(selected.pop("target", None))
    if isinstance(target, list):
        require(len(target) == len(counts), f"Expected {len(counts)} classes in `target`", got=len(target))
        target = tuple(enumerate(target))
    progress = selected.pop("progress", None)
    settings = {name: value for name, value in selected.items() if name not in meanings()}
    chosen: dict[str, Any] = {name: value for name, value in selected.items() if name in meanings()}
    spec = Spec(**chosen, units=("units",), target=target, settings=settings)
    context = {"method": spec.method, "spec": spec.to_json()}
    context |= {"class_names": list(classes.classes())} if classes.classes() else {}
    context["graphs"] = {str(row): own.context() for row, own in enumerate(units)}
    method = registry.get(spec.method)
    check_asked(spec, method, None)
    started = time.perf_counter()
    problem, output = _problem(FunctionOracle(functions, units), spec, len(classes.classes()))

    def facts(part: SetProblem, row: int) -> Facts:
        first = units[part.keys[row]].first.numpy()  # type: ignore[index]
        ids = np.stack([np.full_like(first, -1), first], 1)
        return Facts(UnitTable(("units",), np.zeros(len(first), np.int8), ids), "input", output)

    answers = Answers(spec, method, method.make_settings(settings), None, facts, classes.classes())
    answers.resume = lambda: None  # an interrupt ends the search: nothing was borrowed that must be made ready again
    with told(progress, len(counts), answers.so_far) as tell:
        explained = [e for e in answers.of(problem, started) if e.key not in answers.unfinished]
        if tell is not None:
            tell(len({e.key for e in explained}))
    if answers.interrupted:
        context["partial"] = say_interrupted(explained, len(counts))
    return Explanations(tuple(explained), context)


def functions_of(f: Any, n: Any) -> tuple[list[Function], list[int]]:
    """Functions and the number of units of each, from one of both or lists of them."""
    functions, counts = ([f], [n]) if callable(f) else (_listed("f", f, "a function, or a list"), _listed("n", n))
    counts = [plain_number(count) for count in counts]
    require(all(map(callable, functions)), "Expected `f` to be a function, or a list of functions", got=shown(f, 80))
    expected = f"Expected a number of units for each of {len(functions)} functions"
    require(len(counts) == len(functions) > 0, expected, got=shown(n, 80))
    for count in counts:
        require_number("n", count, 0, MAX_UNITS, integer=True)
    return functions, counts


# -- units and their options ----------------------------------------------------------------------------------


def _units(count: int, names: Any, keep: Any, forbid: Any, groups: Any, costs: Any) -> Units:
    titles = [f"unit {unit}" for unit in range(count)] if names is None else list(map(str, _listed("names", names)))
    require(len(titles) == count, f"Expected `names` to hold {count} names, one for each unit", got=len(titles))

    def number(option: str, unit: Any) -> int:
        """The number of a unit that is given by number or by name."""
        with reading(unit, f"Expected `{option}` to hold units"):
            found = titles.index(unit) if titles.count(unit) == 1 else unit
        good = isinstance(found, int) and not isinstance(found, bool) and found in range(count)
        expected = f"Expected `{option}` to hold units: names that one unit has, or numbers below {count}"
        require(good, expected, got=shown(unit, 80))
        return int(found)

    def numbers(option: str, given: Any) -> list[int]:
        return [number(option, unit) for unit in _listed(option, given)]

    together = [numbers("groups", group) for group in _listed("groups", groups)]
    grouped = [unit for group in together for unit in group]
    require(len(set(grouped)) == len(grouped), "Expected every unit in one group of `groups` at most", got=groups)
    leader, of_group = torch.arange(count), list(titles)
    for group in filter(None, together):
        leader[group] = min(group)
        of_group[min(group)] = " + ".join(titles[unit] for unit in group)
    first, unit = torch.unique(leader, return_inverse=True)
    price = torch.ones(count)
    by_unit = costs if isinstance(costs, Mapping) else dict(enumerate(_listed("costs", costs)))
    some = costs is None or isinstance(costs, Mapping) or len(by_unit) == count
    require(some, f"Expected `costs` by unit, or a list of {count}, one for each", got=len(by_unit))
    for own, cost in by_unit.items():
        require_number("costs", cost, 0, 1e6)
        require(cost > 0, "Expected `costs` above 0", got=cost)
        price[number("costs", own)] = float(cost)
    flagged = (
        unit[numbers(option, [given] if isinstance(given, str | int) else given)]
        for option, given in (("keep", keep), ("forbid", forbid))
    )
    kept, forbidden = (torch.isin(torch.arange(len(first)), own) for own in flagged)
    return Units(unit, first, kept, ~(kept | forbidden), torch.zeros(len(first)).index_add(0, unit, price), of_group)


def _listed(option: str, given: Any, what: str = "a list") -> list[Any]:
    """The entries of a list, array or tensor as plain values."""
    expected = f"Expected `{option}` to be {what}"
    require(not isinstance(given, str | bytes | Mapping), expected, got=shown(given, 80))
    with reading(given, expected):
        return [plain_number(entry) for entry in bounded(() if given is None else given, MAX_UNITS)]


# -- the oracle -----------------------------------------------------------------------------------------------


class FunctionOracle(Oracle):
    """What functions return when exactly these units are there."""

    def __init__(self, functions: Sequence[Function], units: Sequence[Units], form: Output = "auto") -> None:
        super().__init__(torch.tensor([len(own.first) for own in units]))
        self.functions, self.units, self.form = functions, units, form
        self.selectable = self.dense(torch.cat([own.selectable for own in units]), False)
        fixed, price = (torch.cat([getattr(own, flag) for own in units]) for flag in ("fixed", "price"))
        self.fixed = self.dense(fixed, False) if bool(fixed.any()) else None
        self.price = self.dense(price, 0.0) if bool((price != 1).any()) else None

    def take(self, rows: Tensor) -> FunctionOracle:
        """The same for some of the functions, which may repeat."""
        picked = rows.tolist()
        return FunctionOracle([self.functions[row] for row in picked], [self.units[row] for row in picked], self.form)

    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What functions `rows` [R] return of these states [R, U, bool], as probabilities or numbers: [R, C]."""
        return forms.probabilities(self.returned(rows, states), self.form)

    def returned(self, rows: Tensor, states: Tensor) -> Tensor:
        """The outputs as the functions return them [R, C]."""
        states = states if self.fixed is None else states | self.fixed[rows]
        found: Tensor | None = None
        for row in torch.unique(rows).tolist():
            own, at = self.units[row], (rows == row).nonzero().flatten()
            for part in torch.split(at, min(MAX_ROWS, max(1, MAX_ENTRIES // max(len(own.unit), 1)))):
                said = returned_by(self.functions[row], states[part][:, own.unit].numpy())
                found = said.new_zeros((len(rows), said.size(1))) if found is None else found
                expected = f"Expected {found.size(1)} outputs per row, as before"
                require(said.size(1) == found.size(1), expected, got=said.size(1))
                found[part] = said
        return torch.zeros(0, 1) if found is None else found


def returned_by(function: Function, states: np.ndarray) -> Tensor:
    """What a function returns of states [R, n], as numbers [R, C]."""
    expected = f"Expected the function to return one row of numbers for each of {len(states)} inputs"
    try:
        said = function(states)
        rows = said.detach().cpu() if isinstance(said, Tensor) else torch.as_tensor(np.asarray(said))
        require(not rows.is_complex(), expected, got="complex numbers")
        rows = rows.to_dense().double()
    except CF2Error:
        raise
    except Exception as error:  # of the user's own function
        do = "`states` is a NumPy array of bool; torch.from_numpy(states) makes a tensor of it."
        raise CF2Error(expected, got=f"{type(error).__name__}: {error}", do=do) from error
    rows = rows[:, None] if rows.dim() == 1 else rows
    good = rows.dim() == 2 and len(rows) == len(states) and rows.size(1) > 0
    require(good, expected, got=f"shape {tuple(rows.shape)}")
    require(bool(torch.isfinite(rows).all()), "Expected finite outputs", got="NaN or infinity")
    return rows


def _problem(oracle: FunctionOracle, spec: Spec, named: int) -> tuple[SetProblem, str]:
    """The functions with what is asked of them, and what kind of output they have; settles what the outputs are."""
    every = torch.arange(len(oracle.functions))
    rows, again = (oracle.returned(every, oracle.valid) for _ in range(2))
    require(
        torch.equal(rows, again),
        "Expected a function that returns the same output for the same input",
        got="different outputs in two calls",
        do="Fix the random seed inside the function.",
    )
    nothing = oracle.returned(every, torch.zeros_like(oracle.valid))  # both ends tell a logit from a probability
    oracle.form = forms.settle(torch.cat([rows, nothing]), spec.output)
    kind, outputs = forms.FORMS[oracle.form].kind, forms.probabilities(rows, oracle.form)
    check_class_names(named, outputs)
    tolerance, keys, wanted = spec.tolerance, every.tolist(), spec.question == "counterfactual"
    if kind.takes_tolerance and tolerance is None:
        tolerance = forms.default_tolerance(outputs, forms.target_columns(outputs, keys, spec.target, kind))
    criterion = forms.criterion_for(outputs, keys, spec.target, kind, wanted=wanted, tolerance=tolerance)
    return SetProblem(oracle, keys, outputs, criterion, QUESTIONS[spec.question], None, spec.seed), kind.name
