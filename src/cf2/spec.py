"""One request as one value: every option of an explanation, written down once.

A Spec is made from Python keywords, from the command line or from a manifest, and is passed whole to the session,
the workers and the run directory.

>>> Spec(units="edges,features").units
('edges', 'features')
>>> Spec.from_json(Spec(seed=3).to_json()) == Spec(seed=3)
True
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args

from cf2.errors import CF2Error, require, require_number, unknown_name

LARGEST = 2**63 - 1  # what a seed, a class or a number of units may be: torch has no larger whole numbers
Key = int | tuple[int, ...]  # what is explained: a node's id, a graph's position, or several ids

Level = Literal["auto", "node", "graph", "pair"]
Question = Literal["why", "factual", "counterfactual"]
Output = Literal[
    "auto",
    "logits",
    "log_probabilities",
    "probabilities",
    "multilabel",
    "multilabel_logits",
    "multilabel_probabilities",
    "regression",
]
Masking = Literal["auto", "messages"]
Reduce = Literal["gradient"]
Reverse = Literal["auto", "none"]


def _option(default: Any, meaning: str) -> Any:
    """A field with the sentence that `help()`, `--help` and the documentation say of it."""
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"meaning": meaning})
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Spec:
    """Every option of a request, checked when it is made. The options are described in `meanings()`."""

    method: str = _option("cf2", "The method by name; `cf2 methods` lists them.")
    units: tuple[str, ...] = _option(
        ("edges",), "What an explanation is made of: edges, features, node_features, columns, or several of them."
    )
    question: Question = _option(
        "why",
        "What is asked. why: a set that is sufficient and necessary. factual: a sufficient one. "
        "counterfactual: one without which the model gives another answer.",
    )
    target: int | tuple[tuple[Key, int], ...] | None = _option(
        None,
        "The class to explain instead of the predicted one, the same for all or one per key; the label of a "
        "multi-label model; the column of a regression with several.",
    )
    search: bool = _option(
        False, "Search for a set that passes the tests, from the scores of a method that only ranks."
    )
    seed: int | None = _option(None, "Draw a random start from this seed; None starts from a fixed sequence.")
    output: Output = _option(
        "auto",
        "What the model returns: logits, log_probabilities or probabilities of classes (auto looks at the values), "
        "multilabel (target= is the label) or regression. Where logits and probabilities of labels cannot be told "
        'apart, say "multilabel_logits" or "multilabel_probabilities".',
    )
    tolerance: float | None = _option(
        None,
        "Of a regression: the same answer is one within ± this; None: a tenth of the range of up to 64 predictions.",
    )
    level: Level = _option(
        "auto", "Whether one graph is explained by its nodes (node), as a whole (graph) or by pairs."
    )
    leave_out_pair: bool = _option(
        True, "Whether the edge between a pair that is explained is left out of the graph; if not, it is a unit."
    )
    node_type: str | None = _option(None, "Of a HeteroData: the type of the nodes that are explained.")
    edge_type: tuple[str, str, str] | None = _option(
        None, "Of a HeteroData: the type (source, relation, destination) of the pairs that are explained."
    )
    reverse: Reverse = _option(
        "auto",
        "Of a HeteroData: auto makes one unit of an edge and its mirror image, where the edges of two types mirror "
        "each other exactly; none does not.",
    )
    directed: bool | None = _option(
        None, "Whether an edge and its reverse are two units; None looks whether every edge has a reverse."
    )
    masking: Masking = _option(
        "auto", "Where soft masks act: on edge weights if the model takes any (auto), or always on messages."
    )
    device: str | None = _option(None, "The torch device to run on; None stays where the model is.")
    max_units: int | None = _option(None, "The most units an instance may have; a larger one is refused or reduced.")
    reduce: Reduce | None = _option(
        None, "What to do with an instance over max_units: gradient lets only the units that matter most be chosen."
    )
    settings: dict[str, Any] = _option({}, "Settings of the method, by name.")

    def __post_init__(self) -> None:
        self._become("units", _names(self.units))
        self._become("target", _target(self.target))
        self._become("edge_type", _edge_type(self.edge_type))
        named = self.node_type is None or isinstance(self.node_type, str)
        require(named, "Expected `node_type` to be the name of a type", got=repr(self.node_type))
        require(
            isinstance(self.settings, Mapping) and all(isinstance(name, str) for name in self.settings),
            "Expected `settings` to be values by name",
            got=repr(self.settings),
        )
        self._become("settings", {name: _number(value) for name, value in self.settings.items()})
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not (isinstance(value, str) and value in choices) and not (value is None and name == "reduce"):
                raise unknown_name(f"`{name}`", value, choices)
        require(isinstance(self.method, str), "Expected `method` to be a name", got=repr(self.method))
        flags = (("search", (True, False)), ("directed", (True, False, None)), ("leave_out_pair", (True, False)))
        for name, allowed in flags:
            self._become(name, _number(getattr(self, name)))
            require(
                any(getattr(self, name) is value for value in allowed),
                f"Expected `{name}` to be {' or '.join(map(str, allowed))}",
                got=repr(getattr(self, name)),
            )
        for name, low in (("seed", 0), ("max_units", 1)):
            self._become(name, _number(getattr(self, name)))
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), low, integer=True)
                require(getattr(self, name) <= LARGEST, f"Expected `{name}` to be below 2⁶³", got=getattr(self, name))
        self._become("tolerance", _number(self.tolerance))
        if self.tolerance is not None:
            require_number("tolerance", self.tolerance, 0, 1e300)
            require(self.tolerance > 0, "Expected `tolerance` to be above 0", got=self.tolerance)
        if self.device is not None:
            named = isinstance(self.device, str) or type(self.device).__name__ == "device"  # no torch to name options
            require(named, "Expected `device` to be the name of a torch device", got=repr(self.device))
            self._become("device", str(self.device))

    def _become(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The method, and the seed where there is one: what tells the jobs of a run apart."""
        return self.method if self.seed is None else f"{self.method}-seed{self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` makes the same Spec of them."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Spec:
        """The Spec that `to_json` was called on; an option that does not exist is an error."""
        return Spec.make(**stored)

    @staticmethod
    def make(**options: Any) -> Spec:
        """A Spec from options by name; an unknown one is refused with the nearest name."""
        known = meanings()
        for name in options:
            if name not in known:
                raise unknown_name("an option", name, known)
        return Spec(**options)


def options() -> tuple[Field[Any], ...]:
    """The options, in their order."""
    return fields(Spec)


def meanings() -> dict[str, str]:
    """What every option means, by name."""
    return {f.name: str(f.metadata["meaning"]) for f in options()}


_CHOICES: dict[str, tuple[str, ...]] = {
    "question": get_args(Question),
    "output": get_args(Output),
    "level": get_args(Level),
    "masking": get_args(Masking),
    "reduce": get_args(Reduce),
    "reverse": get_args(Reverse),
}


def _names(given: Any) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    good = isinstance(listed, list | tuple) and len(listed) > 0 and all(isinstance(name, str) for name in listed)
    require(good, "Expected `units` to be the name of a kind of unit, or several", got=repr(given))
    names = tuple(name.strip() for name in listed)
    require(len(set(names)) == len(names), "Expected every kind of unit once in `units`", got=repr(given))
    return names


def _edge_type(given: Any) -> tuple[str, str, str] | None:
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else given
    good = isinstance(parts, list | tuple) and len(parts) == 3 and all(isinstance(part, str) for part in parts)
    require(good, "Expected `edge_type` to be (source, relation, destination)", got=repr(given))
    source, relation, destination = (part.strip() for part in parts)
    return source, relation, destination


def _number(value: Any) -> Any:
    """A number or bool of numpy or torch as the one of Python; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _target(given: Any) -> int | tuple[tuple[Key, int], ...] | None:
    given = _number(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return None if given is None else _class(given)
    try:
        pairs = given.items() if isinstance(given, Mapping) else given
        found = tuple((_key(key), _class(value)) for key, value in pairs)
    except (TypeError, ValueError) as error:
        raise CF2Error("Expected `target` to be a class, or a class for each key", got=repr(given)[:200]) from error
    by_key = dict(found)
    twice = next((key for key, value in found if by_key[key] != value), None)
    require(twice is None, "Expected one class in `target` for each key", got=f"several for {twice}")
    return found


def _class(value: Any) -> int:
    if isinstance(_number(value), bool):
        raise TypeError("a class is a number")
    number = operator.index(value)
    require(0 <= number <= LARGEST, "Expected `target` to hold classes, whole numbers from 0", got=number)
    return number


def _key(value: Any) -> Key:
    return tuple(operator.index(part) for part in value) if isinstance(value, list | tuple) else operator.index(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
