"""What every method gets, what it gives back, and what it says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from cf2.errors import CF2Error, require, require_number, shown, unknown_name
from cf2.graphs.graph import Instance
from cf2.graphs.targets import stream
from cf2.models.oracle import GraphOracle
from cf2.models.predictor import NoSlopes, Predictor
from cf2.options import MAX_COUNT, Key
from cf2.sets.oracle import Oracle
from cf2.sets.search import WHY, Choice, Search, search
from cf2.sets.tests import QUESTIONS, Criterion, Test, Verdict, judge
from cf2.sets.trials import Constraints, Incumbents, Trials, best_of, in_order
from cf2.units.constraints import choices_of
from cf2.units.kinds import InstanceUnits, UnitKind
from cf2.units.packs import Pack

EQUAL_SCORES = "The method gave all units the same score, so the first ones were selected."

LARGE = 5_000  # units beyond which an instance is searched alone, for about as long as these bounds:
MAX_FLOATS_IN_ALL = 4e9  # kept by all runs of the model
MIN_RUNS = 50  # on the whole instance, which are allowed beside that


@dataclass(frozen=True, eq=False)
class SetProblem:
    """Instances that are explained together: the model's answers for them, and the question."""

    oracle: Oracle
    keys: Sequence[Key]
    outputs: Tensor  # [B, classes], probabilities of the inputs as they are
    criterion: Criterion
    tests: tuple[Test, ...] = QUESTIONS["why"]
    constraints: Constraints | None = None  # what a set must keep to beside its tests
    seed: int | None = None
    best: Incumbents | None = None  # what a search of all instances keeps up to date

    def sizes(self, given: int | Sequence[tuple[Key, int]]) -> Tensor:
        """How many units of its instance may be chosen, for every unit [units]; 0 for keys without a size."""
        by_key = dict.fromkeys(self.keys, given) if isinstance(given, int) else dict(given)
        sizes = [by_key.get(key, 0) for key in self.keys]
        return torch.tensor(sizes, device=self.outputs.device)[self.oracle.owner]

    def bounded(self) -> AbstractContextManager[None]:
        """Within it, a search of one very large instance ends by `Spent` when it has run the model for long enough."""
        return nullcontext()

    @property
    def num_instances(self) -> int:
        """B, the number of instances."""
        return len(self.keys)

    def split(self, values: Tensor) -> list[Tensor]:
        """A value per unit -> one tensor per instance."""
        return list(torch.split(values, self.oracle.counts.tolist()))

    def trials(self, constraints: Constraints | None = None, confidence: float = 0.0) -> Trials:
        """Trials of candidate sets, none of them run yet."""
        return Trials(self.oracle, self.criterion, self.tests, confidence, constraints)

    def judge(self, selected: Tensor) -> Verdict:
        """The final check of one set per instance [units, bool]."""
        return judge(self.oracle, self.criterion, self.oracle.dense(selected, False), self.outputs)

    def take(self, rows: Tensor) -> Self:
        """Some of the instances, which may repeat."""
        return replace(
            self,
            oracle=self.oracle.take(rows),
            keys=[self.keys[row] for row in rows.tolist()],
            outputs=self.outputs[rows],
            criterion=self.criterion.take(rows),
            constraints=None if self.constraints is None else self.constraints.take(rows),
            best=None,
        )


@dataclass(frozen=True, eq=False)
class Problem(SetProblem):
    """A problem of packed graphs."""

    oracle: GraphOracle
    instances: Sequence[Instance] = ()
    tables: Sequence[InstanceUnits] = ()  # the units of each instance in the user's ids
    trained: Any = None  # what the method needs beside the model, see `Method.needs`

    @property
    def predictor(self) -> Predictor:
        """The model."""
        return self.oracle.predictor

    def bounded(self) -> AbstractContextManager[None]:
        if self.num_instances > 1 or int(self.oracle.counts[0]) <= LARGE:
            return nullcontext()
        once = self.predictor.cost(len(self.pack.x), self.pack.edge_index.size(1))
        return self.predictor.bounded(MAX_FLOATS_IN_ALL + MIN_RUNS * once)

    @property
    def pack(self) -> Pack:
        """The instances side by side."""
        return self.oracle.pack

    def repacked(self, pack: Pack) -> Problem:
        """The same instances with other units, or other flags of them."""
        return replace(self, oracle=GraphOracle(self.predictor, pack))

    def take(self, rows: Tensor) -> Self:
        """Some of the instances, which may repeat."""
        instances, tables = ([part[row] for row in rows.tolist()] for part in (self.instances, self.tables))
        return replace(super().take(rows), instances=instances, tables=tables)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The score of every unit of a problem [units], higher is more important, and the units that are chosen."""

    scores: Tensor
    choice: Choice


@dataclass(frozen=True)
class Method:
    """A method, with everything that other code needs to know about it.

    Attributes
    ----------
    name, title, summary : str
        What it is called on the command line and in tables, and one sentence about it.
    settings : type
        A frozen dataclass that checks itself. A field `k` means that the method can be asked for a fixed size.
    rank : callable
        (problem, settings) -> Ranking.
    units : tuple of str or None
        The kinds of unit that it can score; None: all.
    edits : bool
        Whether it can score what may be added or changed, and not only what can be removed.
    levels : tuple of str or None
        What it is defined for: ``"node"``, ``"graph"``; None: every target.
    searches : bool
        Whether it looks for a set that passes the tests by itself.
    draws : bool
        Whether its scores are drawn at random, so that a comparison gives it a seed.
    needs : str
        What must be handed over as `trained`: ``"nothing"``; ``"training"``, what `fit` makes; ``"truth"``, the true
        edges by key.
    fit : callable or None
        (problems, settings, seed) -> Trained, for methods that are trained first.
    paper : tuple of str
        Which of the paper's constants of a data set are settings of it: ``k``, ``lam``, ``threshold``.
    """

    name: str
    title: str
    summary: str
    settings: type
    rank: Callable[[Problem, Any], Ranking]
    units: tuple[str, ...] | None = None
    edits: bool = False
    levels: tuple[str, ...] | None = None
    searches: bool = False
    draws: bool = False
    needs: Literal["nothing", "training", "truth"] = "nothing"
    fit: Callable[..., Any] | None = None
    paper: tuple[str, ...] = ()

    def make_settings(self, given: Mapping[str, Any]) -> Any:
        """The frozen settings, or an error that names the unknown or missing one."""
        items = {item.name: item for item in fields(self.settings)}
        for name in given:
            if name not in items:
                raise unknown_name(f"a setting of method {self.name!r}", name, items)
        for name, item in items.items():
            if item.type == "bool" and not isinstance(given.get(name, False), bool):
                raise CF2Error(f"Expected `{name}` to be True or False", got=shown(given[name], 80))
            if name not in given and item.default is MISSING and item.default_factory is MISSING:
                raise CF2Error(f"Expected the setting `{name}` of method {self.name!r}", got="none")
        try:
            return self.settings(**given)
        except CF2Error:
            raise
        except Exception as error:  # an array where a word is expected has no truth value, and so on
            raise CF2Error(f"Expected other settings of method {self.name!r}", got=shown(dict(given))) from error

    def check_units(self, kinds: Sequence[UnitKind]) -> None:
        """Refuse kinds of unit that the method cannot score."""
        added = [kind.name for kind in kinds if kind.absent]
        require(
            self.edits or not added,
            f"Expected edits='remove' for method {self.name!r}, which scores only what is there",
            got=" and ".join(added).replace("_", " "),
            do="Use a method that can: `cf2 methods` lists them.",
        )
        names = [kind.name for kind in kinds if not kind.absent]
        wrong = [] if self.units is None else [name for name in names if name not in self.units]
        require(
            not wrong,
            f"Expected units of the kinds that method {self.name!r} scores, {', '.join(self.units or ())}",
            got=", ".join(wrong),
            do="Select these units, or use another method.",
        )

    @property
    def ranks(self) -> bool:
        """Whether it gives scores from which any number of units can be chosen."""
        return not self.searches and "k" in {f.name for f in fields(self.settings)}

    def check_level(self, level: str) -> None:
        """Refuse a target that the method is not defined for."""
        require(
            self.levels is None or level in self.levels,
            f"Expected a prediction of a {' or '.join(self.levels or ())} for method {self.name!r}",
            got=f"that of a {level}",
            do="Use another method.",
        )


def named(method: Method, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a method that says by name if the model lacks the gradients that the method needs."""

    def run(*given: Any) -> Any:
        try:
            return function(*given)
        except NoSlopes as error:
            raise CF2Error(
                f"Expected a model with gradients for method {method.name!r}: it needs an `edge_weight` argument or "
                "torch_geometric message passing layers, and an output that can be differentiated",
                got="one without",
                do='Use a method that only runs the model, such as method="cf2" or "greedy".',
            ) from error

    return run


def number(default: float | None, low: float = 0, high: float = float("inf")) -> Any:
    """A setting that is a number from `low` to `high`, both included, or None if that is the default."""
    return field(default=default, metadata={"low": low, "high": high})


def integer(default: int | None, low: int = 1, high: float = MAX_COUNT) -> Any:
    """A setting that is a whole number."""
    return field(default=default, metadata={"low": low, "high": high, "integer": True})


def learning_rate(default: float) -> Any:
    """The setting of how far each step of Adam goes."""
    return number(default, 1e-6, 10)


@dataclass(frozen=True)
class CheckedSettings:
    """Settings whose numbers are checked by the limits that their fields were made with."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.metadata and not (value is None and item.default is None):
                require_number(item.name, value, **item.metadata)


@dataclass(frozen=True)
class RankSettings(CheckedSettings):
    """`k` units, or those above `threshold` (0.5 if neither is given)."""

    k: int | None = integer(None, high=2**31 - 1)
    threshold: float | None = number(None, 0, 1)

    def __post_init__(self) -> None:
        require(
            self.k is None or self.threshold is None,
            "Expected either a size `k` or a `threshold`, and not both",
            got=f"k={self.k}, threshold={self.threshold}",
        )
        super().__post_init__()


def choose(scores: Tensor, pack: Pack, *, k: int | Tensor | None = None, threshold: float | None = None) -> Tensor:
    """The k best units of every instance (ties: the first), or all above a threshold (0.5 without either).

    As a tensor [units], `k` says of every unit how many of its instance are chosen.
    """
    may = pack.units.admissible(torch.ones_like(scores, dtype=torch.bool))
    scores = scores.masked_fill(~may, float("-inf"))
    best = scores > (0.5 if threshold is None else threshold) if k is None else rank_within(scores, pack) < k
    return pack.units.admissible(best)


def choose_once(problem: Problem, scores: Tensor, *, k: int | Tensor | None, threshold: float | None) -> Tensor:
    """What `choose` takes of scores [units], with at most one change of each feature."""
    separate = best_changes(problem, scores)
    chosen = choose(separate, problem.pack, k=k, threshold=threshold)
    return chosen if separate is scores else chosen & (separate == scores)


def best_changes(problem: Problem, scores: Tensor) -> Tensor:
    """Scores [units] in which all but the best of several changes of one feature (ties: the first) come last."""
    choices = choices_of(problem.tables, problem.pack)
    if choices is None:
        return scores
    row, unit = (choices >= 0).nonzero(as_tuple=True)
    changes = problem.pack.units.ptr[row] + unit
    count = int(choices.max()) + 1 if len(row) else 0
    best = best_of(row * count + choices[row, unit], scores[changes], len(choices) * count)
    separate = scores.clone()
    separate[changes] -= 1e6
    best = changes[best[best >= 0]]
    separate[best] = scores[best]
    return separate


def ranked(problem: Problem, scores: Tensor, settings: Any, evaluations: int | Tensor = 1) -> Ranking:
    """Scores with what the `k` or `threshold` of the settings chooses, at a cost per instance."""
    selected = choose_once(problem, scores, k=settings.k, threshold=settings.threshold)
    cost = torch.as_tensor(evaluations, device=scores.device).expand(problem.num_instances)
    return Ranking(scores, Choice(selected, cost.long(), notes=_equal_scores(problem.pack, scores, selected)))


def _equal_scores(pack: Pack, scores: Tensor, selected: Tensor) -> list[str]:
    """A note for instances whose units all have the same score, so that the choice says nothing."""
    owner, rows = pack.units.owner, len(pack.units.counts)
    none, count = scores.new_zeros(rows), torch.bincount(owner[selected], minlength=rows)
    low, high = (none.scatter_reduce(0, owner, scores, way, include_self=False) for way in ("amin", "amax"))
    chosen = (low == high) & (count > 0) & (count < pack.units.counts)
    return [EQUAL_SCORES if some else "" for some in chosen.tolist()]


def rank_within(scores: Tensor, pack: Pack) -> Tensor:
    """The position of every unit in the ranking of its own instance, 0 for the best."""
    counts = pack.units.counts
    valid = torch.arange(int(counts.max()) if len(counts) else 0, device=scores.device)[None] < counts[:, None]
    table = torch.full(valid.shape, float("-inf"), dtype=scores.dtype, device=scores.device)
    table[valid] = scores
    return in_order(table)[valid]


def draws(pack: Pack, seed: int, draw: Callable[..., Tensor] = torch.rand) -> Tensor:
    """Random numbers [units] by `draw`, from a stream of each instance's own, whatever it is packed with."""
    counts = pack.units.counts.tolist()
    parts = [draw(count, generator=stream(seed, pack.key(row))) for row, count in enumerate(counts)]
    return torch.cat(parts).to(pack.units.ptr.device)


Asked = TypeVar("Asked", bound=SetProblem)


def search_from(
    problem: Asked,
    ranking: Ranking,
    settings: Search,
    rank: Callable[[Asked], Ranking] | None = None,
    *,
    grows: bool = True,
) -> Ranking:
    """The smallest set that passes the tests, searched from a method's scores.

    `rank` scores the units of other problems; None: the scores do not depend on the question.
    """

    def why(rows: Tensor) -> tuple[Tensor, Tensor]:
        assert rank is not None
        other = rank(replace(problem.take(rows), tests=WHY))
        return other.scores, other.choice.evaluations

    found = search(
        problem.oracle,
        problem.criterion,
        problem.tests,
        ranking.scores,
        settings,
        problem.constraints,
        None if rank is None else why,
        problem.best,
        grows,
    )
    return Ranking(ranking.scores, replace(found, evaluations=ranking.choice.evaluations + found.evaluations))
