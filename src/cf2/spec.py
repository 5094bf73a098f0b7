"""One request as one value: every option of an explanation, written down once.

A Spec is made from Python keywords, from the command line or from a manifest, and is passed whole to the session,
the workers and the run directory.

>>> Spec(units="edges,features").units
('edges', 'features')
>>> Spec.from_json(Spec(seed=3).to_json()) == Spec(seed=3)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args

from cf2 import values
from cf2.errors import require, require_number, unknown_name
from cf2.values import LARGEST, Pairs
from cf2.values import Edit as Edit
from cf2.values import Key as Key
from cf2.values import Reverse as Reverse

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
Valid = Literal["molecule"]


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
        "The class to explain instead of the predicted one, the same for all or one per key; of a counterfactual, the "
        "class to reach; the label of a multi-label model; the column of a regression with several.",
    )
    edits: tuple[Edit, ...] = _option(
        ("remove",), "What a counterfactual may do: remove units, add edges, change features; several of them."
    )
    candidates: Pairs | Literal["near", "target", "far"] | None = _option(
        None,
        "Pairs that may be added as edges, such as 3:17,4:9; near: all inside of the receptive field; target: those "
        "with the explained node; far: these, also with nodes all over the graph; None: near, and if in vain far too.",
    )
    keep: Pairs | None = _option(None, "Edges, as pairs such as 3:17,4:9, that must not be removed.")
    forbid: Pairs | None = _option(None, "Edges, as pairs such as 3:17,4:9, that must not be in the answer.")
    groups: str | tuple[tuple[str, tuple[tuple[int, int], ...]], ...] | None = _option(
        None, "Edges that go or stay together, as one unit: the attribute of the data that holds a number per edge."
    )
    connected: bool = _option(
        False, "The answer must be one connected piece; for a node, one that the node belongs to."
    )
    valid: Valid | None = _option(
        None, "Accept only edits with a valid result. molecule: one that RDKit can sanitise; needs `atoms`."
    )
    alternatives: int = _option(1, "How many different answers to look for per key, none a part of another.")
    robust: int = _option(
        0,
        "How many disturbed copies of the graph, with edges added or gone, the answer must pass its tests on as well.",
    )
    costs: tuple[tuple[Edit, float], ...] = _option(
        (), "What an edit of each sort adds to the size of an answer, such as add=2,change=1.5; 1 if not given."
    )
    one_hot: tuple[tuple[int, ...], ...] | None = _option(
        None, "Ranges of feature columns of which each node has one, such as 0-13,14-20; None looks at the values."
    )
    added_attributes: dict[str, Any] = _option(
        {}, "What an added edge has in `edge_attr` and the like, by name; the most common value if not given."
    )
    atoms: tuple[str, ...] | None = _option(
        None, "The element that each feature column stands for, such as C,N,O, for molecules."
    )
    search: bool = _option(
        False, "Search for a set that passes the tests, from the scores of a method that only ranks."
    )
    sizes: int | tuple[tuple[Key, int], ...] | None = _option(
        None,
        "How many units a method that only ranks chooses, the same for all or one per key, such as the sizes of the "
        "answers of another method; None: as its `k` or `threshold` says.",
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
        "each other exactly; none does not; a mapping such as user,buys,item=item,bought_by,user says for which types.",
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
        self._become("units", values.names("units", self.units))
        self._become("edits", values.names("edits", self.edits))
        self._become_edits()
        self._become("target", values.classes(self.target))
        self._become("sizes", values.sizes(self.sizes))
        self._become("edge_type", values.edge_type(self.edge_type))
        self._become("reverse", values.reverse(self.reverse))
        named = self.node_type is None or isinstance(self.node_type, str)
        require(named, "Expected `node_type` to be the name of a type", got=repr(self.node_type))
        require(
            isinstance(self.settings, Mapping) and all(isinstance(name, str) for name in self.settings),
            "Expected `settings` to be values by name",
            got=repr(self.settings),
        )
        self._become("settings", {name: values.plain_number(value) for name, value in self.settings.items()})
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            none = value is None and name in ("reduce", "valid")
            if not none and not (isinstance(value, str) and value in choices):
                raise unknown_name(f"`{name}`", value, choices)
        require(isinstance(self.method, str), "Expected `method` to be a name", got=repr(self.method))
        flags = [(name, (True, False)) for name in ("search", "connected", "leave_out_pair")]
        for name, allowed in (*flags, ("directed", (True, False, None))):
            self._become(name, values.plain_number(getattr(self, name)))
            require(
                any(getattr(self, name) is value for value in allowed),
                f"Expected `{name}` to be {' or '.join(map(str, allowed))}",
                got=repr(getattr(self, name)),
            )
        for name, low in (("seed", 0), ("max_units", 1), ("alternatives", 1), ("robust", 0)):
            self._become(name, values.plain_number(getattr(self, name)))
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), low, integer=True)
                require(getattr(self, name) <= LARGEST, f"Expected `{name}` to be below 2⁶³", got=getattr(self, name))
        self._become("tolerance", values.plain_number(self.tolerance))
        if self.tolerance is not None:
            require_number("tolerance", self.tolerance, 0, 1e300)
            require(self.tolerance > 0, "Expected `tolerance` to be above 0", got=self.tolerance)
        if self.device is not None:
            named = isinstance(self.device, str) or type(self.device).__name__ == "device"  # no torch to name options
            require(named, "Expected `device` to be the name of a torch device", got=repr(self.device))
            self._become("device", str(self.device))

    def _become_edits(self) -> None:
        """Check what may be edited, and under which rules."""
        for edit in self.edits:
            if edit not in get_args(Edit):
                raise unknown_name("`edits`", edit, get_args(Edit))
        require(
            self.edits == ("remove",) or self.question == "counterfactual",
            f"Expected question='counterfactual' for edits={', '.join(self.edits)}",
            got=f"question={self.question!r}",
            do="Only a counterfactual adds or changes something.",
        )
        for name in ("candidates", "keep", "forbid"):
            given = getattr(self, name)
            if given is not None and not (name == "candidates" and given in ("near", "target", "far")):
                self._become(name, values.pairs(name, given))
        self._become("groups", values.groups(self.groups))
        self._become("costs", values.costs(self.costs))
        self._become("one_hot", values.ranges(self.one_hot))
        if self.atoms is not None:
            self._become("atoms", values.names("atoms", self.atoms, once=False))
        self._become("added_attributes", values.attributes(self.added_attributes))

    def _become(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The method, the question where it is not `why`, and the seed where there is one: what tells jobs apart."""
        question = "" if self.question == "why" else f"-{self.question}"
        return f"{self.method}{question}" + ("" if self.seed is None else f"-seed{self.seed}")

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` makes the same Spec of them."""
        return {f.name: values.as_json(getattr(self, f.name)) for f in fields(self)}

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


def titled(method: str, question: str, several: bool) -> str:
    """What a row about a method is called, of a run that asks one question or several."""
    return f"{method}, {question}" if several and question != "why" else method


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
    "valid": get_args(Valid),
}
