"""How the values of options are read: from Python, from the command line, or as a manifest keeps them."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args

from cf2.errors import CF2Error, require, require_number, unknown_name

# -- values ----------------------------------------------------------------------------------------------


LARGEST = 2**63 - 1  # what a seed, a class or a number of units may be: torch has no larger whole numbers
Key = int | tuple[int, ...]  # what is explained: a node's id, a graph's position, or several ids
Edit = Literal["remove", "add", "change"]
EdgeType = tuple[str, str, str]  # source, relation, destination
Reverse = Literal["auto", "none"] | Mapping[EdgeType, EdgeType] | tuple[tuple[EdgeType, EdgeType], ...]
Pairs = tuple[tuple[Key | None, tuple[tuple[int, int], ...]], ...]  # pairs of nodes by key; None stands for every key


_NAMED = {"units": "kind of unit", "edits": "sort of edit", "atoms": "element"}


def read_names(option: str, given: Any, *, once: bool = True) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    good = isinstance(listed, list | tuple) and len(listed) > 0 and all(isinstance(name, str) for name in listed)
    require(good, f"Expected `{option}` to be the name of a {_NAMED[option]}, or several", got=repr(given)[:200])
    names = tuple(name.strip() for name in listed)
    good = not once or len(set(names)) == len(names)
    require(good, f"Expected every {_NAMED[option]} once in `{option}`", got=repr(given)[:200])
    return names


def listed(value: Any) -> Any:
    """Arrays and tensors as lists; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def read_pairs(option: str, given: Any) -> Pairs:
    """Pairs of nodes, the same for all keys or by key: lists, arrays [n, 2] or [2, n], or text such as 3:17,4:9."""
    try:
        if isinstance(given, Mapping):
            return tuple((_key(key), _ends(pairs)) for key, pairs in given.items()) or ((None, ()),)
        if isinstance(given, tuple | list) and given and all(_is_stored(part) for part in given):
            return tuple((None if key is None else _key(key), _ends(pairs)) for key, pairs in given)
        return ((None, _ends(given)),)
    except (TypeError, ValueError) as error:
        expected = f"Expected `{option}` to be pairs of nodes, [n, 2], or such pairs by key"
        raise CF2Error(expected, got=repr(given)[:200], do="On the command line: 3:17,4:9.") from error


def _is_stored(part: Any) -> bool:
    """Whether this is a key with its pairs, as a Spec keeps them."""
    pairs = part[1] if isinstance(part, tuple | list) and len(part) == 2 else None
    return isinstance(pairs, tuple | list) and all(isinstance(pair, tuple | list) for pair in pairs)


def _ends(given: Any) -> tuple[tuple[int, int], ...]:
    if isinstance(given, str):
        given = [pair.split(":") for pair in given.split(",")]
        given = [[int(end) for end in pair] for pair in given]
    rows = list(listed(given))
    if len(rows) == 2 and all(len(row) != 2 for row in rows):  # an edge_index
        rows = list(zip(*rows, strict=True))
    found = tuple((operator.index(a), operator.index(b)) for a, b in rows)
    if any(min(pair) < 0 for pair in found):
        raise ValueError("ids count from 0")
    return found


def read_groups(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given
    try:
        named = given.items() if isinstance(given, Mapping) else given
        return tuple((str(name), _ends(pairs)) for name, pairs in named)
    except (TypeError, ValueError) as error:
        expected = "Expected `groups` to be the name of an attribute, a number per edge, or pairs of nodes by name"
        raise CF2Error(expected, got=repr(given)[:200]) from error


def read_costs(given: Any) -> tuple[tuple[Edit, float], ...]:
    if given is None or isinstance(given, str):
        given = [part.split("=") for part in given.split(",")] if given else ()
    try:
        priced = given.items() if isinstance(given, Mapping) else given
        found = {str(name): float(plain_number(price)) for name, price in priced}
    except (TypeError, ValueError) as error:
        raise CF2Error("Expected `costs` to be a number per sort of edit", got=repr(given)[:200]) from error
    for name, price in found.items():
        if name not in get_args(Edit):
            raise unknown_name("a sort of edit in `costs`", name, get_args(Edit))
        require(0 < price <= 1e6, "Expected `costs` above 0", got=f"{name}={price}")
    return tuple(found.items())  # type: ignore[arg-type]


def read_ranges(given: Any) -> tuple[tuple[int, ...], ...] | None:
    if given is None:
        return None
    try:
        if isinstance(given, str):
            ends = [[int(end) for end in part.split("-")] for part in given.split(",")]
            given = [range(first, last + 1) for first, last in ends]
        found = tuple(tuple(operator.index(column) for column in group) for group in given)
    except (TypeError, ValueError) as error:
        expected = "Expected `one_hot` to be groups of feature columns, such as 0-13,14-20"
        raise CF2Error(expected, got=repr(given)[:200]) from error
    columns = [column for group in found for column in group]
    good = len(set(columns)) == len(columns) and all(len(group) > 1 for group in found) and min(columns, default=0) >= 0
    require(good, "Expected groups of at least two columns in `one_hot`, each column in one", got=repr(given)[:200])
    return found


def plain_number(value: Any) -> Any:
    """A number or bool of numpy or torch as the one of Python; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def read_classes(given: Any) -> int | tuple[tuple[Key, int], ...] | None:
    given = plain_number(given)
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


def read_sizes(given: Any) -> int | tuple[tuple[Key, int], ...] | None:
    """A size for all keys, or one per key: by key, as pairs, or of the best answers of explanations."""
    given = plain_number(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return None if given is None else _size(given)
    try:
        pairs: Any = given.items() if isinstance(given, Mapping) else given
        named = [(e.key, e.size) if hasattr(e, "selected") else e for e in pairs if not getattr(e, "rank", 0)]
        return tuple({_key(key): _size(size) for key, size in named}.items())
    except (TypeError, ValueError) as error:
        expected = "Expected `sizes` to be a number of units, one for each key, or explanations"
        raise CF2Error(expected, got=repr(given)[:200]) from error


def _size(value: Any) -> int:
    if isinstance(plain_number(value), bool):
        raise TypeError("a size is a number")
    number = operator.index(value)
    require(0 <= number <= LARGEST, "Expected `sizes` to hold numbers of units, from 0", got=number)
    return number


def _class(value: Any) -> int:
    if isinstance(plain_number(value), bool):
        raise TypeError("a class is a number")
    number = operator.index(value)
    require(0 <= number <= LARGEST, "Expected `target` to hold classes, whole numbers from 0", got=number)
    return number


def _key(value: Any) -> Key:
    return tuple(operator.index(part) for part in value) if isinstance(value, list | tuple) else operator.index(value)


def read_edge_type(given: Any) -> EdgeType | None:
    """A type of edges: three names, or text such as user,likes,item."""
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else given
    good = isinstance(parts, list | tuple) and len(parts) == 3 and all(isinstance(part, str) for part in parts)
    require(good, "Expected `edge_type` to be (source, relation, destination)", got=repr(given))
    source, relation, destination = (part.strip() for part in parts)
    return source, relation, destination


def read_reverse(given: Any) -> Any:
    """auto, none, or edge types by the type that each is mirrored by: a mapping, or text such as a,to,b=b,from,a;…"""
    if given in ("auto", "none"):
        return given
    try:
        if isinstance(given, str):
            given = [part.split("=") for part in given.split(";")]
        named = given.items() if isinstance(given, Mapping) else given
        found = tuple((read_edge_type(one), read_edge_type(other)) for one, other in named)
    except (TypeError, ValueError, CF2Error) as error:
        expected = "Expected `reverse` to be 'auto', 'none' or edge types by the type that mirrors each"
        cure = "As text: user,buys,item=item,bought_by,user; in Python a mapping from one tuple to the other."
        raise CF2Error(expected, got=repr(given)[:200], do=cure) from error
    every = [kind for pair in found for kind in dict.fromkeys(pair)]
    require(len(set(every)) == len(every), "Expected every edge type once in `reverse`", got=repr(given)[:200])
    return found


def read_attributes(given: Any) -> dict[str, Any]:
    """Values by name, or JSON text of them, as plain lists and numbers."""
    try:
        named = json.loads(given) if isinstance(given, str) else given or {}
        return {str(name): listed(value) for name, value in named.items()}
    except (AttributeError, ValueError) as error:
        expected = "Expected `added_attributes` to be values by name"
        raise CF2Error(expected, got=repr(given)[:80], do='On the command line: {"edge_attr": [1, 0]}.') from error


def as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


# -- spec ------------------------------------------------------------------------------------------------


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
        self._become("units", read_names("units", self.units))
        self._become("edits", read_names("edits", self.edits))
        self._become_edits()
        self._become("target", read_classes(self.target))
        self._become("sizes", read_sizes(self.sizes))
        self._become("edge_type", read_edge_type(self.edge_type))
        self._become("reverse", read_reverse(self.reverse))
        named = self.node_type is None or isinstance(self.node_type, str)
        require(named, "Expected `node_type` to be the name of a type", got=repr(self.node_type))
        require(
            isinstance(self.settings, Mapping) and all(isinstance(name, str) for name in self.settings),
            "Expected `settings` to be values by name",
            got=repr(self.settings),
        )
        self._become("settings", {name: plain_number(value) for name, value in self.settings.items()})
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            none = value is None and name in ("reduce", "valid")
            if not none and not (isinstance(value, str) and value in choices):
                raise unknown_name(f"`{name}`", value, choices)
        require(isinstance(self.method, str), "Expected `method` to be a name", got=repr(self.method))
        flags = [(name, (True, False)) for name in ("search", "connected", "leave_out_pair")]
        for name, allowed in (*flags, ("directed", (True, False, None))):
            self._become(name, plain_number(getattr(self, name)))
            require(
                any(getattr(self, name) is value for value in allowed),
                f"Expected `{name}` to be {' or '.join(map(str, allowed))}",
                got=repr(getattr(self, name)),
            )
        for name, low in (("seed", 0), ("max_units", 1), ("alternatives", 1), ("robust", 0)):
            self._become(name, plain_number(getattr(self, name)))
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), low, integer=True)
                require(getattr(self, name) <= LARGEST, f"Expected `{name}` to be below 2⁶³", got=getattr(self, name))
        self._become("tolerance", plain_number(self.tolerance))
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
                self._become(name, read_pairs(name, given))
        self._become("groups", read_groups(self.groups))
        self._become("costs", read_costs(self.costs))
        self._become("one_hot", read_ranges(self.one_hot))
        if self.atoms is not None:
            self._become("atoms", read_names("atoms", self.atoms, once=False))
        self._become("added_attributes", read_attributes(self.added_attributes))

    def _become(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The method, the question where it is not `why`, and the seed where there is one: what tells jobs apart."""
        question = "" if self.question == "why" else f"-{self.question}"
        return f"{self.method}{question}" + ("" if self.seed is None else f"-seed{self.seed}")

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` makes the same Spec of them."""
        return {f.name: as_json(getattr(self, f.name)) for f in fields(self)}

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
