"""Answers to problems over sets of units, whatever the units are: ranked, verified, and put into explanations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cf2.errors import require
from cf2.graphs.targets import stream
from cf2.graphs.typed import Types
from cf2.methods.contract import Method, Problem, Ranking, SetProblem, choose_once, named, search_from
from cf2.methods.reduction import REDUCED_NOTE, REFUSAL
from cf2.models.outputs import takes_tolerance
from cf2.models.predictor import Spent
from cf2.options import Key, Spec
from cf2.results.explanation import STATUSES, Explanation, UnitTable
from cf2.results.explanations import by_key
from cf2.sets.alternatives import Besides, list_answers, without_supersets
from cf2.sets.oracle import Oracle
from cf2.sets.search import Choice, Search, proof_budget
from cf2.sets.strength import SEARCH_CONTEXTS, Draw, Strength, Sure, draw_contexts, find_sure, holding, strengths
from cf2.sets.tests import QUESTIONS, VERDICT_RUNS, Verdict, passes
from cf2.sets.trials import Incumbents

CONTEXT_STREAM = 1 << 31  # keeps contexts apart from what a method draws with the same seed
SEARCH_STREAM = 1 << 32  # and those of a search for a sure set apart from these
SURE_CONTEXTS = 256  # by which a sure set is judged
SAME_COST = 1e-6  # prices of two sets that are closer are equal: they are sums of floats
USED = 1e4  # by how much a unit of an earlier answer falls in the ranking of a further search
NOTHING = "No unit can be removed; the prediction depends only on the rest of the input."
UNCONFIRMED = "The search ended with a set that the final check does not confirm."
INTERRUPTED = "The search was interrupted. This is the smallest passing set so far; smaller ones may exist."
UNSURE_YET = "It was interrupted before contexts were measured."
SPENT = (
    "The search was stopped early because there are {units:,} units. max_units={units} removes this limit; "
    "max_units=2000 with reduce='gradient' searches only the units with the largest gradients."
)
ALREADY = "The model already predicts {asked}; nothing has to change."
DEFAULT = "The prediction stays the same when all removable units are removed."
NOT_PREDICTED = (
    "The model predicts {said}, not {asked}, so there is nothing to explain. "
    'To find what would have to change, use question="counterfactual", target={number}.'
)
UNSURE = "It decides in {share:.2f} of contexts (95 % interval {low:.2f} to {high:.2f})."
UNSURE_DEFAULT = (
    "The prediction stays the same when all removable units are removed, so all units together do not decide it, and "
    'no larger set was tried. Use question="factual" or question="counterfactual" instead.'
)

Others = tuple[list[Explanation], bool]  # further answers of an instance, and whether these are all there are


def check_asked(spec: Spec, method: Method, search: Search | None) -> None:
    """Refuse options that do not go together, whatever is explained."""
    require(
        spec.surely is None or (spec.question == "why" and spec.alternatives == 1),
        "Expected question='why' and one answer for `surely`",
        got=f"question={spec.question!r}, alternatives={spec.alternatives}",
    )
    require(
        spec.surely is None or method.searches or search is not None,
        "Expected a method that searches for sets, for `surely`",
        got=repr(spec.method),
        do="Pass search=True, or method='cf2'.",
    )
    require(
        not spec.contexts_add or (spec.contexts > 0 and spec.surely is None and spec.edits == ("remove",)),
        "Expected `contexts`, no `surely` and edits='remove' for `contexts_add`",
        got=f"contexts={spec.contexts}, surely={spec.surely}, edits={', '.join(spec.edits)}",
    )
    require(
        spec.tolerance is None or takes_tolerance(spec.output),
        'Expected output="regression" for `tolerance`',
        got=f"output={spec.output!r}",
        do="Classes and labels have no tolerance.",
    )


def check_class_names(named: int, outputs: Tensor) -> None:
    """Refuse another number of names than the outputs [B, classes] have classes; 0: none are named."""
    expected = f"Expected `class_names` to hold {outputs.size(1)} names, one for each class of the model"
    require(named in (0, outputs.size(1)), expected, got=named)


class Noisy(NamedTuple):
    """Some instances of a problem with edges of noise as further units, which contexts may have."""

    rows: Tensor  # [R], which instances of the problem they are
    oracle: Oracle
    places: list[Tensor]  # by instance, where the units of the problem are among those of the oracle
    added: list[Tensor]  # by instance, the edges that each context has beside those of the graph, bool [contexts, U]


class Facts(NamedTuple):
    """What an explanation says of its instance, whatever is asked."""

    units: UnitTable
    task: str
    output: str  # the name of its `OutputKind`
    label: int | None = None
    directed: bool = False
    types: Types | None = None
    note: str = ""
    default: Callable[[], str] = lambda: DEFAULT  # what is said where the answer stays when everything is gone


class Answers:
    """Answers to what is asked of problems, whatever their units are; `facts` says what an instance is."""

    def __init__(
        self,
        spec: Spec,
        method: Method,
        settings: Any,
        search: Search | None,
        facts: Callable[[SetProblem, int], Facts],
        class_names: Sequence[str] = (),
        last_word: Callable[[SetProblem, Tensor, Verdict], Verdict] | None = None,
        again: Callable[[SetProblem, Tensor, float], list[Explanation]] | None = None,
        with_noise: Callable[[SetProblem, Tensor, int], Iterator[Noisy]] | None = None,
    ) -> None:
        self.class_names = class_names
        self.spec, self.method, self.settings, self.search, self.facts = spec, method, settings, search, facts
        self.searches = method.searches or search is not None
        self.last_word, self.again, self.with_noise = last_word, again, with_noise
        # Whether the search of a very large instance ends by itself, unless it is asked to go on.
        self.bounded = self.searches and spec.max_units is None and self._effort().effort in ("quick", "standard")
        # What makes the model ready again after an interrupt, which then ends the search and not the call.
        self.resume: Callable[[], None] | None = None
        self.interrupted = False
        self.unfinished = set[Key]()  # of which no set was known when it was interrupted
        self.best: Incumbents | None = None  # of the problem that is searched now

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """An interrupt ends what is done here and whatever would follow, unless nobody can resume."""
        try:
            yield
        except KeyboardInterrupt:
            if self.resume is None:
                raise
            self.interrupted = True
            self.resume()

    def so_far(self) -> str:
        """How far the search of the present instances is, in words; nothing before it has begun."""
        best = self.best
        if best is None or not best.rounds:
            return ""
        known = best.size[best.size.isfinite()].tolist()
        if len(best.size) == 1:
            found = f"the best set has {known[0]:g} units" if known else "no set yet"
        else:
            found = f"{len(known):,} of {len(best.size):,} have a set"
            found += f", of {sum(known) / len(known):.1f} units on average" if known else ""
        return f"Round {best.rounds:,}: {found}."

    def of(self, problem: SetProblem, started: float) -> list[Explanation]:
        """Explanations of a problem's instances in their order, the best answer of each first."""
        spec, predicted = self.spec, problem.criterion.holds(problem.outputs)
        if self.searches and bool(predicted.any()) and not bool(predicted.all()):
            # Only where the model gives the answer that is asked about, there is something to search.
            answered = self.of(problem.take(predicted.nonzero().flatten()), started)
            return self._apart(problem, predicted, answered, started)
        refused = is_too_large(spec, int(problem.oracle.counts[0]))
        skipped = refused or not problem.oracle.width or (self.searches and not bool(predicted.any()))
        ranking = _no_ranking(problem) if skipped else self._interruptible(problem)
        ranking, verdict = self._judged(problem, ranking)
        if self.again is not None and bool(verdict.mixed.any()) and not self.interrupted:
            again = self.again(problem, verdict.mixed, started)
            if again:
                return self._apart(problem, verdict.mixed, again, started)
        sure: dict[int, Sure] = {}
        if spec.surely is not None and not skipped:
            with self.until_interrupted():
                if not self.interrupted:
                    ranking, sure = self._surely(problem, ranking, verdict.passes(problem.tests))
            if self.interrupted:
                ranking = replace(ranking, choice=_unsure(ranking.choice, problem.num_instances))
            ranking, verdict = self._judged(problem, ranking)
        searched, others = self.searches and not skipped, dict[int, Others]()
        if searched and spec.alternatives > 1 and not self.interrupted:
            with self.until_interrupted():
                others = self._others(problem, ranking, verdict)
        empty = _holds_empty(problem, self._confirmed(problem, ranking.choice, verdict)) if searched else None
        best = self._explanations(problem, ranking, verdict, refused, started, empty, sure)
        oracle = problem.oracle
        prices = problem.split(oracle.price[oracle.valid].cpu()) if oracle.price is not None else [None] * len(best)
        return [e for row, first in enumerate(best) for e in claimed(first, *others.get(row, ([], False)), prices[row])]

    def _class(self, number: int) -> str:
        return str(self.class_names[number]) if number < len(self.class_names) else f"class {number}"

    def _apart(
        self, problem: SetProblem, some: Tensor, answered: Iterable[Explanation], started: float
    ) -> list[Explanation]:
        """Answers in the order of instances, of which `some` [B, bool] are answered, and the others are now."""
        rest = (~some).nonzero().flatten()
        others = self.of(problem.take(rest), started) if len(rest) else []
        parts = {True: by_key(answered), False: by_key(others)}
        return [e for own in some.tolist() for e in next(parts[own])]

    def _judged(self, problem: SetProblem, ranking: Ranking) -> tuple[Ranking, Verdict]:
        """The ranking with what may be chosen of its choice, and the final check of that, whose last word is plain."""
        selected = problem.oracle.admissible(ranking.choice.selected)
        verdict = problem.judge(selected)
        if self.last_word is not None and not is_too_large(self.spec, int(problem.oracle.counts[0])):
            verdict = self.last_word(problem, selected, verdict)
        return replace(ranking, choice=replace(ranking.choice, selected=selected)), verdict

    def _interruptible(self, problem: SetProblem) -> Ranking:
        """What the method says; of a search that is interrupted, the smallest sets that had passed."""
        self.best, ranking = Incumbents(problem.oracle.valid), None
        with self.until_interrupted(), suppress(Spent), problem.bounded() if self.bounded else nullcontext():
            ranking = self._ranking(replace(problem, best=self.best))
        if ranking is not None:
            return ranking
        known = self.best.size.isfinite().tolist()
        if self.interrupted:
            self.unfinished.update(key for key, has in zip(problem.keys, known) if not has)
            if not any(known):
                raise KeyboardInterrupt
        selected = self.best.sets[problem.oracle.valid]
        status = ["found" if has else "not found" for has in known]
        spent = SPENT.format(units=int(problem.oracle.counts.max()))
        notes = [INTERRUPTED if self.interrupted else spent] * len(known)
        choice = Choice(selected, self.best.evaluations, status, notes=notes)
        return Ranking(selected.float(), choice)

    def _ranking(self, problem: SetProblem) -> Ranking:
        """What the method says of the units, with the choice of `sizes` or of a search from its scores."""
        ranking, sizes = named(self.method, self.method.rank)(problem, self.settings), self.spec.sizes
        if sizes is not None and not self.searches and isinstance(problem, Problem):
            selected = choose_once(problem, ranking.scores, k=problem.sizes(sizes), threshold=None)
            ranking = replace(ranking, choice=replace(ranking.choice, selected=selected))
        return ranking if self.search is None else search_from(problem, ranking, self.search)

    @property
    def _confidence(self) -> float:
        """The margin that an answer must pass its tests by."""
        return self._effort().confidence if self.searches else 0.0

    def _effort(self) -> Search:
        """How hard to look, and by which margin an answer must pass."""
        if self.search is not None:
            return self.search
        return Search(
            **{f.name: getattr(self.settings, f.name) for f in fields(Search) if hasattr(self.settings, f.name)}
        )

    def _others(self, problem: SetProblem, ranking: Ranking, verdict: Verdict) -> dict[int, Others]:
        """Further answers of the instances that have one, by row."""
        most, search = self.spec.alternatives, self._effort()
        trials = problem.trials(problem.constraints, search.confidence)
        alive = self._confirmed(problem, ranking.choice, verdict) & (problem.oracle.counts > 0)
        others: dict[int, Others] = {}
        for row in alive.nonzero().flatten().tolist():  # all answers at once, where they can be listed
            answers = list_answers(trials, row, most, proof_budget(search))
            if answers is not None:
                alive[row] = False
                rows = torch.full((len(answers.sets),), row, device=alive.device)
                others[row] = (self._listed(problem.take(rows), answers.sets), answers.complete)
        known = problem.oracle.dense(ranking.choice.selected, False)[:, None]
        for _ in range(most - 1):  # elsewhere one after the other, each by a search for something else
            rows = alive.nonzero().flatten()
            if not len(rows):
                break
            part = problem.take(rows)
            part = replace(part, constraints=Besides(known[rows], part.constraints))
            used = known[rows].any(1)[trials.valid[rows]]
            scores = ranking.scores[alive[problem.oracle.owner]]
            start = Ranking(scores - USED * used, Choice(used & False, torch.zeros(len(rows), device=rows.device)))
            further, judged = self._judged(part, search_from(part, start, search))
            passed = self._confirmed(part, further.choice, judged)
            made = self._explanations(part, further, judged)
            for position in passed.nonzero().flatten().tolist():
                others.setdefault(int(rows[position]), ([], False))[0].append(made[position])
            alive[rows[~passed]] = False
            sets = torch.zeros_like(known[:, 0])
            own = part.oracle.dense(further.choice.selected, False)
            sets[rows[passed], : own.size(1)] = own[passed]
            known = torch.cat([known, sets[:, None]], 1)
        return others

    def _listed(self, repeated: SetProblem, sets: Tensor) -> list[Explanation]:
        """Explanations of sets that are known to be minimal answers of one instance, repeated once for each."""
        if not len(sets):
            return []
        count, bound = int(repeated.oracle.counts[0]), int(sets.sum(1).min())
        status, minimal = ["found"] * len(sets), [True] * len(sets)
        cost = torch.zeros(len(sets), device=sets.device)
        choice = Choice(sets[:, :count].reshape(-1), cost, status, minimal, lower_bound=[bound] * len(sets))
        scores = torch.zeros(len(sets) * count, device=sets.device)
        return self._explanations(repeated, *self._judged(repeated, Ranking(scores, choice)))

    def _explanations(
        self,
        problem: SetProblem,
        ranking: Ranking,
        verdict: Verdict,
        refused: bool = False,
        started: float | None = None,
        empty: Tensor | None = None,
        sure: Mapping[int, Sure] = MappingProxyType({}),
    ) -> list[Explanation]:
        """What was said, tried and verified, as one frozen value per instance; `claimed` says what follows from it.

        `empty` says of which instances the model gives the same answer with everything removed [B], and `sure` what
        was found by row where a sure set was looked for.
        """
        spec, choice, criterion = self.spec, ranking.choice, problem.criterion
        settings = asdict(self.settings)
        scores = [part.cpu().float().numpy() for part in problem.split(ranking.scores)]
        selected = [part.cpu().numpy() for part in problem.split(choice.selected)]
        P, only, without = (part.float().cpu().numpy() for part in (problem.outputs, verdict.only, verdict.without))
        sufficient, necessary = verdict.sufficient.tolist(), verdict.necessary.tolist()
        confirmed = verdict.passes(problem.tests, self._confidence).tolist()
        given = criterion.holds(problem.outputs).tolist()
        said, asked = criterion.said(problem.outputs).tolist(), criterion.answers.tolist()
        tied, plain = verdict.tied.tolist(), verdict.plain.tolist()
        evaluations, default = choice.evaluations.tolist(), None if empty is None else empty.tolist()
        if default is not None:
            for row, own in sure.items():
                default[row] = own.default  # its tests pass, so that this was not asked once more
        measured, runs = self._strengths(problem, choice.selected, sure)
        seconds = 0.0 if started is None else (time.perf_counter() - started) / max(problem.num_instances, 1)
        made = []
        for row, key in enumerate(problem.keys):
            facts = self.facts(problem, row)
            status, note = self._status(choice, row, confirmed[row], len(scores[row]), refused)
            claims = status in ("found", "impossible", "not found") or not given[row]
            if tied[row] and claims and status not in ("refused", "empty"):
                status, note = "tie", STATUSES["tie"]
            tried = status in ("impossible", "not found")
            if tried and default is not None and default[row] and given[row]:
                note = f"{facts.default()} {note}".strip()
            if not refused:
                note = f"{note} {facts.note}".strip()
            if not given[row] and status not in ("refused", "empty", "tie"):
                text = ALREADY if spec.question == "counterfactual" else NOT_PREDICTED
                called = {"said": self._class(said[row]), "asked": self._class(asked[row]), "number": asked[row]}
                status, note = "not predicted", text.format(**called)
            count, strength = 0 if refused else len(scores[row]), measured.get(row)
            made.append(
                Explanation(
                    key=key,
                    task=facts.task,
                    prediction=said[row],
                    units=UnitTable.none() if refused else facts.units,
                    scores=scores[row][:count],
                    selected=selected[row][:count],
                    probabilities=P[row],
                    probabilities_only=only[row],
                    probabilities_without=without[row],
                    sufficient=sufficient[row],
                    necessary=necessary[row],
                    minimal=choice.minimal[row] if choice.minimal else None,
                    optimal=choice.optimal[row] if choice.optimal else None,
                    status=status,
                    note=note,
                    question=spec.question,
                    method=spec.method,
                    settings=settings,
                    seed=spec.seed,
                    evaluations=int(evaluations[row]) + (1 + plain[row]) * VERDICT_RUNS + runs[row],
                    seconds=seconds,
                    directed=facts.directed,
                    label=facts.label,
                    target=None if spec.target is None else asked[row],
                    lower_bound=choice.lower_bound[row] if choice.lower_bound else None,
                    ps=None if strength is None else strength.ps[:],
                    pn=None if strength is None or strength.pn is None else strength.pn[:],
                    pns=None if strength is None else strength.pns[:],
                    contexts=strength.contexts if strength else 0,
                    all_contexts=strength is not None and strength.every,
                    counterexample=strength.lost if strength else None,
                    always_bound=strength.bound if strength else None,
                    surely=spec.surely,
                    curve=sure[row].curve if row in sure else (),
                    default=default[row] if default is not None and tried else None,
                    output=facts.output,
                    tolerance=getattr(criterion, "tolerance", None),
                    types=facts.types,
                    plain=None if self.last_word is None or refused else plain[row],
                    ranking="gradient" if refused or problem.oracle.has_slopes else "trials",
                )
            )
        return made

    def _draw(self, problem: SetProblem, stream_of: int, count: int) -> Draw:
        """Contexts that depend on the key and the seed and on nothing else."""
        seed = (self.spec.seed or 0) + stream_of
        return lambda row, free: draw_contexts(count, free, stream(seed, problem.keys[row]))

    @property
    def _contexts(self) -> int:
        """How many contexts a set is judged by."""
        return self.spec.contexts or (0 if self.spec.surely is None else SURE_CONTEXTS)

    def _strengths(
        self, problem: SetProblem, selected: Tensor, sure: Mapping[int, Sure]
    ) -> tuple[dict[int, Strength], list[int]]:
        """How surely chosen units [units] decide, by row, and what that cost [B].

        It is measured where there are units and the model gives the answer in question, and not yet known.
        """
        count, measured = self._contexts, {row: own.strength for row, own in sure.items()}
        asked = problem.criterion.holds(problem.outputs) & (problem.oracle.counts > 0)
        asked[list(sure)] = False
        rows = asked.nonzero().flatten()
        refused = is_too_large(self.spec, int(problem.oracle.counts[0]))
        if not count or not len(rows) or refused or self.interrupted:
            return measured, [0] * problem.num_instances
        sets, draw = problem.oracle.dense(selected, False), self._draw(problem, CONTEXT_STREAM, count)
        if self.spec.contexts_add and self.with_noise is not None:
            runs = torch.zeros(problem.num_instances, dtype=torch.long)
            for noisy in self.with_noise(problem, rows, count):
                found, runs[noisy.rows] = self._strengths_in_noise(problem, noisy, sets, draw)
                measured |= zip(noisy.rows.tolist(), found)
            return measured, runs.tolist()
        held = holding(problem.oracle, problem.criterion)
        measured |= zip(rows.tolist(), strengths(held, rows, sets[rows], count, draw))
        return measured, held.evaluations.tolist()

    def _strengths_in_noise(
        self, problem: SetProblem, noisy: Noisy, sets: Tensor, draw: Draw
    ) -> tuple[list[Strength], Tensor]:
        """How surely sets [B, U] decide in contexts that have edges of noise as well, and what that cost."""
        count = self._contexts
        own = torch.zeros((len(noisy.rows), noisy.oracle.width), dtype=torch.bool, device=sets.device)
        for position, (row, place) in enumerate(zip(noisy.rows.tolist(), noisy.places)):
            own[position, place[sets[row, : len(place)]]] = True
        held = holding(noisy.oracle, problem.criterion.take(noisy.rows))
        instances = torch.arange(len(own), device=sets.device)

        def noisy_draw(position: int, free: Tensor) -> Tensor:
            known = torch.zeros_like(free)  # an added edge may lead to features that are no units of the problem
            known[noisy.places[position]] = True
            return draw(int(noisy.rows[position]), free & known) & ~noisy.added[position]

        measured = []
        for strength, place in zip(strengths(held, instances, own, count, noisy_draw, exact=False), noisy.places):
            unit_at = {wide: unit for unit, wide in enumerate(place.tolist())}
            lost = None if strength.lost is None else tuple(unit_at[wide] for wide in strength.lost)
            measured.append(replace(strength, lost=lost))
        return measured, held.evaluations

    def _surely(self, problem: SetProblem, ranking: Ranking, passed: Tensor) -> tuple[Ranking, dict[int, Sure]]:
        """Sets that decide as surely as was asked, from the smallest ones that pass; by row, what was found."""
        goal, count, rows = self.spec.surely, self._contexts, passed.nonzero().flatten()
        if goal is None or not len(rows):
            return ranking, {}
        choice, oracle = ranking.choice, problem.oracle
        trials, held = problem.trials(problem.constraints), holding(oracle, problem.criterion)
        sets = oracle.dense(choice.selected, False)
        draws = self._draw(problem, SEARCH_STREAM, SEARCH_CONTEXTS), self._draw(problem, CONTEXT_STREAM, count)
        sure = find_sure(trials, held, rows, sets[rows], goal, count, *draws)
        facts = {
            name: list(getattr(choice, name) or [None] * len(passed))
            for name in ("status", "minimal", "optimal", "notes")
        }
        for row, own in sure.items():
            if not bool((own.chosen == sets[row]).all()):  # no smaller set was tried by the contexts
                facts["minimal"][row] = facts["optimal"][row] = None
            facts["notes"][row] = facts["notes"][row] or ""
            if not own.reached:
                share, low, high = own.strength.pns
                note = f"{UNSURE_DEFAULT if own.default else ''} {UNSURE.format(share=share, low=low, high=high)}"
                facts["status"][row], facts["notes"][row] = "not found", f"{facts['notes'][row]} {note}".strip()
            sets[row] = own.chosen
        facts["notes"] = [note or "" for note in facts["notes"]]
        evaluations = choice.evaluations + trials.evaluations + held.evaluations
        choice = replace(choice, selected=sets[oracle.valid], evaluations=evaluations, **facts)
        return replace(ranking, choice=choice), sure

    def _confirmed(self, problem: SetProblem, choice: Choice, verdict: Verdict) -> Tensor:
        """Whether what a search has found is found by the final check as well [B]."""
        found = torch.tensor([status == "found" for status in choice.status or ()], device=problem.outputs.device)
        return found & verdict.passes(problem.tests, self._confidence)

    def _status(self, choice: Choice, row: int, confirmed: bool, units: int, refused: bool) -> tuple[str, str]:
        """The status of an explanation, which comes from the final check, and what a reader should know beside it."""
        limit = self.spec.max_units or 0
        if refused:
            return "refused", REFUSAL.format(units=units, limit=limit)
        if not units:
            return "empty", NOTHING
        status = "unverified" if choice.status is None else choice.status[row]
        notes = [choice.notes[row]] if choice.notes else []
        if status == "found" and not confirmed:
            status, notes = "not found", [UNCONFIRMED]
        if self.spec.reduce is not None and limit and units > limit:
            notes.insert(0, REDUCED_NOTE.format(limit=limit, units=units))
        return status, " ".join(notes).strip()


def is_too_large(spec: Spec, units: int) -> bool:
    """Whether an instance with so many units is refused."""
    return spec.max_units is not None and spec.reduce is None and units > spec.max_units


def _no_ranking(problem: SetProblem) -> Ranking:
    """The ranking of instances that are not explained."""
    units = problem.oracle.owner
    return Ranking(units * 0.0, Choice(torch.zeros_like(units, dtype=torch.bool), torch.zeros(problem.num_instances)))


def _unsure(choice: Choice, instances: int) -> Choice:
    """A choice of which it is not known how surely it decides."""
    notes = [f"{note} {UNSURE_YET}".strip() for note in choice.notes or [""] * instances]
    return replace(choice, status=["not found"] * instances, minimal=None, optimal=None, notes=notes)


def claimed(
    first: Explanation, further: Sequence[Explanation] = (), complete: bool = False, price: Tensor | None = None
) -> list[Explanation]:
    """All answers of one instance, the smallest first, with what they claim: no claim is made anywhere else.

    Each comes with what its own search has tried. A further one was looked for beside those before it: below its bound
    nothing passes, but for sets that hold one of those, which are no smaller than that. `price` [units] is what each
    unit adds to the size of a set; a bound counts units, so there is none where some cost more than others.
    """
    bound, smallest = 0, first.num_units
    for e in (first, *further):
        bound = max(bound, min(e.lower_bound or 0, smallest))
        smallest = min(smallest, e.size if e.status == "found" else smallest)
    sets = [torch.from_numpy(e.selected) for e in (first, *further)]
    costs = [float(chosen.sum() if price is None else price[chosen].sum()) for chosen in sets]
    least = min(costs) if complete or first.optimal else -1.0
    answers = []
    for e, cost in zip((first, *(replace(e, scores=first.scores, seconds=0.0) for e in further)), costs):
        found = e.status == "found"
        bounded = price is None and first.lower_bound is not None and e.status in ("found", "not found")
        optimal = cost <= least + SAME_COST or (bounded and 0 < e.size <= bound)
        answers.append(
            replace(
                e,
                minimal=e.minimal if found else None,
                optimal=True if found and optimal else None,
                lower_bound=bound if bounded else None,
                complete=complete,
            )
        )
    kept = without_supersets(sets, costs)
    return [replace(answers[position], rank=rank) for rank, position in enumerate(kept)]


def _holds_empty(problem: SetProblem, found: Tensor) -> Tensor | None:
    """Whether the model gives the same answer with everything removed [B], where no set was found; None: all were."""
    failed = (~found).nonzero().flatten()
    if not len(failed) or problem.tests == QUESTIONS["factual"]:
        return None
    oracle = problem.oracle.take(failed)
    said = oracle.checked(torch.zeros_like(oracle.valid) if oracle.absent is None else oracle.absent)
    empty = torch.zeros(problem.num_instances, dtype=torch.bool, device=failed.device)
    empty[failed] = passes(problem.criterion.take(failed), said, same=True)
    return empty
