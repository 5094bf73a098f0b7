"""Every option, once: its type, its default, what it means, and how its value is read and checked.

`Spec` holds the options that a run keeps. Values may come from Python, from the command line or from a manifest; they
are read and checked when a Spec is made, and nowhere else.
"""

from __future__ import annotations

import inspect
import json
import operator
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, get_args

from cf2.errors import CF2Error, reading, require, require_number, shown, unknown_name

if TYPE_CHECKING:  # the command line names its options without loading torch
    import torch
    from torch import Tensor
    from torch_geometric.data import Data

LARGEST = 2**63 - 1  # the largest seed, class or number of units: torch has no larger whole numbers
MAX_COUNT = 10**6  # of what is done one after the other: nobody waits for more
MAX_ITEMS = 10**7  # of one list, so that a range from a file cannot fill the memory
MAX_COLUMNS = 10**6  # of features that are named one by one
ROBUST_CONTEXTS, ROBUST_EDGES = 256, 3
ROBUST = (
    f"`robust` is deprecated; use contexts={ROBUST_CONTEXTS}, contexts_add={ROBUST_EDGES}, which measure e.pns with "
    f"up to {ROBUST_EDGES} random edges added. To search for a set with a high PNS, pass surely=0.9."
)
MAX_CONTEXTS = 100_000  # of one set: an interval of ±0.003
AUTO = "auto"  # units: edges, and where these decide nothing others
Key = int | tuple[int, ...]  # what is explained: a node's id, a graph's position, or several ids
Edit = Literal["remove", "add", "change"]
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
EdgeType = tuple[str, str, str]  # source, relation, destination
Reverse = Literal["auto", "none"] | Mapping[EdgeType, EdgeType] | tuple[tuple[EdgeType, EdgeType], ...]
Pairs = tuple[tuple[Key | None, tuple[tuple[int, int], ...]], ...]  # pairs of nodes by key; None stands for every key
NodePairs = Any  # what is read as such pairs: lists, arrays, tensors, text, or these by key
NumberByKey = int | tuple[tuple[Key, int], ...] | None

# -- reading values: (option, value as given) -> value as kept; None never comes here where it is the default -------

Read = Callable[[str, Any], Any]


def _reads(expected: str, do: str = "") -> Callable[[Callable[[Any], Any]], Read]:
    """A reader from a function of the value alone; a value on which the function fails is refused."""

    def reader(function: Callable[[Any], Any]) -> Read:
        def read(option: str, given: Any) -> Any:
            with reading(given, f"Expected `{option}` to be {expected}", do):
                return function(given)

        return read

    return reader


def plain_number(value: Any) -> Any:
    """A number or bool of numpy or torch as the one of Python; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def listed(value: Any) -> Any:
    """Arrays and tensors as lists; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def bounded(given: Any, most: int = MAX_ITEMS) -> list[Any]:
    """What something holds as a list, refused before it takes the memory for more than `most`."""
    items = listed(given)
    many = f"Expected at most {most:,} items"
    if isinstance(items, range):
        require(len(items[: most + 1]) <= most, many, got=shown(items))
    items = list(islice(items, most + 1))
    require(len(items) <= most, many, got="more")
    return items


def _items(given: Any) -> list[Any]:
    return bounded(given.items() if isinstance(given, Mapping) else given)


def _names(what: str, *, once: bool = True, known: tuple[str, ...] = ()) -> Read:
    def read(option: str, given: Any) -> tuple[str, ...]:
        parts = given.split(",") if isinstance(given, str) else given
        good = isinstance(parts, list | tuple) and len(parts) > 0 and all(isinstance(name, str) for name in parts)
        require(good, f"Expected `{option}` to be the name of a {what}, or several", got=shown(given))
        names = tuple(name.strip() for name in parts)
        twice = once and len(set(names)) < len(names)
        require(not twice, f"Expected every {what} once in `{option}`", got=shown(given))
        for name in names:
            if known and name not in known:
                raise unknown_name(f"`{option}`", name, known)
        return names

    return read


def _choice(choices: Any) -> Read:
    def read(option: str, given: Any) -> Any:
        if not (isinstance(given, str) and given in get_args(choices)):
            raise unknown_name(f"`{option}`", given, get_args(choices))
        return given

    return read


def _flag(option: str, given: Any) -> bool:
    value = plain_number(given)
    require(isinstance(value, bool), f"Expected `{option}` to be True or False", got=shown(value))
    return bool(value)


def _whole_number(low: int, high: float = float("inf")) -> Read:
    def read(option: str, given: Any) -> int:
        value: int = plain_number(given)
        require_number(option, value, low, high, integer=True)
        return value

    return read


def _positive(high: float) -> Read:
    def read(option: str, given: Any) -> float:
        value: float = plain_number(given)
        require_number(option, value, 0, high)
        require(value > 0, f"Expected `{option}` to be above 0", got=value)
        return value

    return read


def _text(what: str) -> Read:
    def read(option: str, given: Any) -> Any:
        require(isinstance(given, str), f"Expected `{option}` to be {what}", got=shown(given))
        return given

    return read


@_reads("the name of a torch device")
def _device(given: Any) -> str:
    if isinstance(given, str) or type(given).__name__ == "device":  # no torch to name options
        return str(given)
    raise TypeError


def _settings(option: str, given: Any) -> dict[str, Any]:
    good = isinstance(given, Mapping) and all(isinstance(name, str) for name in given)
    require(good, f"Expected `{option}` to be a mapping from names to values", got=shown(given))
    return {name: plain_number(value) for name, value in given.items()}


@_reads("pairs of nodes, [n, 2], or a mapping from keys to such pairs", "On the command line: 3:17,4:9.")
def _pairs(given: Any) -> Pairs:
    """Pairs of nodes, the same for all keys or by key: lists, arrays [n, 2] or [2, n], or text such as 3:17,4:9."""
    if isinstance(given, Mapping):
        return tuple((_key(key), _ends(pairs)) for key, pairs in given.items()) or ((None, ()),)
    if isinstance(given, tuple | list) and given and all(_is_stored(part) for part in given):
        return tuple((None if key is None else _key(key), _ends(pairs)) for key, pairs in given)
    return ((None, _ends(given)),)


def _candidates(option: str, given: Any) -> Any:
    return given if isinstance(given, str) and given in ("near", "target", "far") else _pairs(option, given)


def _is_stored(part: Any) -> bool:
    """Whether this is a key with its pairs, as a Spec keeps them."""
    pairs = part[1] if isinstance(part, tuple | list) and len(part) == 2 else None
    return isinstance(pairs, tuple | list) and all(isinstance(pair, tuple | list) for pair in pairs)


def _ends(given: Any) -> tuple[tuple[int, int], ...]:
    if isinstance(given, str):
        given = [[int(end) for end in pair.split(":")] for pair in given.split(",")]
    rows = bounded(given)
    if len(rows) == 2 and all(len(row) != 2 for row in rows):  # an edge_index; two rows of two are two pairs
        rows = list(zip(*rows, strict=True))
    pairs = tuple((operator.index(a), operator.index(b)) for a, b in rows)
    if any(min(pair) < 0 for pair in pairs):
        raise ValueError("ids count from 0")
    return pairs


def _key(value: Any) -> Key:
    return tuple(operator.index(part) for part in value) if isinstance(value, list | tuple) else operator.index(value)


@_reads("an attribute name, one number per edge, or named lists of edges")
def _groups(given: Any) -> Any:
    return given if isinstance(given, str) else tuple((str(name), _ends(pairs)) for name, pairs in _items(given))


@_reads("a mapping from kinds of edit to costs")
def _costs(given: Any) -> tuple[tuple[str, float], ...]:
    if isinstance(given, str):
        given = [part.split("=") for part in given.split(",") if part]
    costs = {str(name): float(plain_number(cost)) for name, cost in _items(() if given is None else given)}
    for name, cost in costs.items():
        if name not in get_args(Edit):
            raise unknown_name("a kind of edit in `costs`", name, get_args(Edit))
        require(0 < cost <= 1e6, "Expected `costs` above 0", got=f"{name}={cost}")
    return tuple(costs.items())


@_reads("groups of feature columns, such as 0-13,14-20")
def _column_groups(given: Any) -> tuple[tuple[int, ...], ...]:
    if isinstance(given, str):
        ends = [[int(end) for end in part.split("-")] for part in given.split(",")]
        given = [range(first, last + 1) for first, last in ends]
    groups, columns = [], list[int]()
    for group in bounded(given, MAX_COLUMNS):
        groups.append(tuple(map(operator.index, bounded(group, MAX_COLUMNS - len(columns)))))
        columns += groups[-1]
    apart = len(set(columns)) == len(columns) and min(columns, default=0) >= 0
    good = apart and all(len(group) > 1 for group in groups)
    require(good, "Expected groups of at least two columns in `one_hot`, each column in one", got=shown(given))
    return tuple(groups)


def _number_by_key(noun: str, plural: str) -> Read:
    """A whole number for all keys, or one for each: by key, or as pairs of a key and its number."""

    def whole(option: str, value: Any) -> int:
        if isinstance(plain_number(value), bool):
            raise TypeError
        number = operator.index(value)
        require(0 <= number <= LARGEST, f"Expected `{option}` to hold {plural}, whole numbers from 0", got=number)
        return number

    def read(option: str, given: Any) -> NumberByKey:
        with reading(given, f"Expected `{option}` to be a {noun}, or one for each key"):
            value = plain_number(given)
            if isinstance(value, int):
                return whole(option, value)
            numbers: dict[Key, int] = {}
            for key, own in _items(value):
                number = whole(option, own)
                once = numbers.setdefault(_key(key), number) == number
                require(once, f"Expected one {noun} in `{option}` for each key", got=f"several for {key}")
            return tuple(numbers.items())

    return read


def _sizes(option: str, given: Any) -> NumberByKey:
    """Numbers of units; of explanations, the sizes of their best answers."""
    if isinstance(given, Sequence) and all(hasattr(part, "selected") for part in given):
        given = {e.key: e.size for e in given if not e.rank}
    sizes: NumberByKey = _number_by_key("number of units", "numbers of units")(option, given)
    return sizes


def _three_names(given: Any) -> EdgeType:
    source, relation, destination = given.split(",") if isinstance(given, str) else tuple(given)
    return source.strip(), relation.strip(), destination.strip()


_edge_type = _reads("(source, relation, destination)")(_three_names)


@_reads(
    "'auto', 'none' or a mapping from edge types to their reverse types",
    "On the command line: user,buys,item=item,bought_by,user. In Python: a dict of tuples.",
)
def _reverse(given: Any) -> Any:
    if isinstance(given, str) and given in ("auto", "none"):
        return given
    pairs = [part.split("=") for part in given.split(";")] if isinstance(given, str) else _items(given)
    mirrored = tuple((_three_names(edge_type), _three_names(mirror)) for edge_type, mirror in pairs)
    every = [edge_type for pair in mirrored for edge_type in dict.fromkeys(pair)]
    require(len(set(every)) == len(every), "Expected every edge type once in `reverse`", got=shown(given))
    return mirrored


@_reads("a mapping from names to values", 'On the command line: {"edge_attr": [1, 0]}.')
def _attributes(given: Any) -> dict[str, Any]:
    """Values by name, or JSON text of them, as plain lists and numbers."""
    named = json.loads(given) if isinstance(given, str) else given or {}
    return {str(name): listed(value) for name, value in named.items()}


def as_json(value: Any) -> Any:
    """Plain values, as they are when JSON of them is read back."""
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


# -- the options that a run keeps -----------------------------------------------------------------------------


def _option(default: Any, read: Read) -> Any:
    """A field with its reader."""
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"read": read})
    return field(default=default, metadata={"read": read})


def _read(option: Field[Any], given: Any) -> Any:
    """The value of an option as it is kept."""
    if given is None and option.default is None:
        return None
    with reading(given, f"Expected another value for `{option.name}`"):  # whatever it does when it is looked at
        return option.metadata["read"](option.name, given)


@dataclass(frozen=True)
class Spec:
    """The options of a request that are stored in its run, validated on creation.

    These sentences are what `help()`, `--help` and the documentation say of each.

    method: Name of the method; `cf2 methods` lists all methods.
    units: What an explanation is made of: edges, features, nodes, node_features, columns, or several of them. auto:
        edges; if no set of edges passes, edges and features for nodes and pairs, nodes for graphs.
    question: What to search for. why: a set that is sufficient and necessary. factual: a sufficient set.
        counterfactual: a set whose removal changes the prediction.
    target: Class to explain instead of the predicted one, for all keys or by key. Counterfactuals: the class to reach.
        Multilabel models: the label. Regression with several columns: the column.
    edits: Edits that a counterfactual may use: remove units, add edges, change features, or several of them.
    candidates: Node pairs that may be added as edges, such as 3:17,4:9. near: all pairs inside the receptive field.
        target: pairs with the explained node. far: pairs of the explained node with any node of the graph. Default:
        near; if nothing is found, far.
    keep: Edges that must not be removed, as pairs such as 3:17,4:9.
    forbid: Edges that must not be part of the answer, as pairs such as 3:17,4:9.
    groups: Attribute of the data with one number per edge; edges with the same number form one unit.
    connected: Require the answer to be connected; for a node, it must also contain that node.
    valid: Accept only valid results. molecule: RDKit must be able to sanitise them; needs `atoms`, and `bond` or
        `smiles` of the graphs.
    charges: For valid=molecule: allow edits that give an atom a formal charge.
    alternatives: Number of different answers to search for per key; no answer contains another.
    robust: Deprecated; same as contexts=256, contexts_add=3.
    contexts: Number of contexts (random parts of the rest of the graph) in which the set is tested; 0: none.
    contexts_add: Maximum number of random edges added to each context as noise.
    surely: Find the smallest passing set whose PNS is at least this value, such as 0.9 (lower end of the 95 % interval
        on fresh contexts; 256 contexts unless `contexts` is given).
    costs: Cost of each kind of edit, such as add=2,change=1.5; default 1. The size of an answer is its total cost.
    one_hot: Ranges of one-hot feature columns, such as 0-13,14-20. Default: detect them from the values.
    added_attributes: Values of `edge_attr` and other attributes of added edges, by name. Default: the most common
        value.
    atoms: Molecules only: the element of each feature column, such as C,N,O.
    search: Search for a set that passes the tests, starting from the scores of a ranking method.
    sizes: Number of units that a ranking method selects, for all keys or by key. Default: the method's `k` or
        `threshold`.
    seed: Seed for a random start. Default: a fixed start.
    output: What the model returns: logits, log_probabilities or probabilities of classes, multilabel (`target` is the
        label), or regression. auto detects logits and probabilities. Use multilabel_logits or multilabel_probabilities
        if the values are ambiguous.
    tolerance: Regression only: outputs within ± this value count as unchanged. Default: a tenth of the range of up to
        64 outputs.
    level: What is explained in a single graph: nodes (node), the whole graph (graph) or node pairs (pair).
    leave_out_pair: Remove the edge between an explained pair from the graph; if false, the edge is a unit.
    node_type: HeteroData only: type of the explained nodes.
    edge_type: HeteroData only: type of the explained pairs, (source, relation, destination).
    reverse: HeteroData only: edge types that are reverses of each other; an edge and its reverse form one unit. auto:
        types whose edges mirror each other exactly. none: no types. A mapping such as
        user,buys,item=item,bought_by,user: only these types.
    directed: Treat an edge and its reverse as two units. Default: true unless every edge has a reverse.
    masking: Where soft masks are applied. auto: to edge weights if the model accepts them, otherwise to messages.
        messages: always to messages.
    device: Torch device to run on. Default: the device of the model.
    max_units: Maximum number of units per instance; larger instances are refused, or reduced with `reduce`. Default: no
        limit, but above 5,000 units the search is bounded.
    reduce: How to handle instances above max_units. gradient: search only the units with the largest gradients.
    settings: Settings of the method, by name.
    """

    method: str = _option("cf2", _text("a name"))
    units: tuple[str, ...] = _option(("edges",), _names("kind of unit"))
    question: Question = _option("why", _choice(Question))
    target: NumberByKey = _option(None, _number_by_key("class", "classes"))
    edits: tuple[Edit, ...] = _option(("remove",), _names("kind of edit", known=get_args(Edit)))
    candidates: Pairs | Literal["near", "target", "far"] | None = _option(None, _candidates)
    keep: Pairs | None = _option(None, _pairs)
    forbid: Pairs | None = _option(None, _pairs)
    groups: str | tuple[tuple[str, tuple[tuple[int, int], ...]], ...] | None = _option(None, _groups)
    connected: bool = _option(False, _flag)
    valid: Valid | None = _option(None, _choice(Valid))
    charges: bool = _option(False, _flag)
    alternatives: int = _option(1, _whole_number(1, MAX_COUNT))
    robust: int = _option(0, _whole_number(0, MAX_COUNT))
    contexts: int = _option(0, _whole_number(0, MAX_CONTEXTS))
    contexts_add: int = _option(0, _whole_number(0, MAX_COUNT))
    surely: float | None = _option(None, _positive(0.999))
    costs: tuple[tuple[Edit, float], ...] = _option((), _costs)
    one_hot: tuple[tuple[int, ...], ...] | None = _option(None, _column_groups)
    added_attributes: dict[str, Any] = _option({}, _attributes)
    atoms: tuple[str, ...] | None = _option(None, _names("element", once=False))
    search: bool = _option(False, _flag)
    sizes: NumberByKey = _option(None, _sizes)
    seed: int | None = _option(None, _whole_number(0))
    output: Output = _option("auto", _choice(Output))
    tolerance: float | None = _option(None, _positive(1e300))
    level: Level = _option("auto", _choice(Level))
    leave_out_pair: bool = _option(True, _flag)
    node_type: str | None = _option(None, _text("the name of a type"))
    edge_type: tuple[str, str, str] | None = _option(None, _edge_type)
    reverse: Reverse = _option("auto", _reverse)
    directed: bool | None = _option(None, _flag)
    masking: Masking = _option("auto", _choice(Masking))
    device: str | None = _option(None, _device)
    max_units: int | None = _option(None, _whole_number(1))
    reduce: Reduce | None = _option(None, _choice(Reduce))
    settings: dict[str, Any] = _option({}, _settings)

    def __post_init__(self) -> None:
        for option in fields(self):
            object.__setattr__(self, option.name, _read(option, getattr(self, option.name)))
        if self.edits != ("remove",) and self.question != "counterfactual":
            raise CF2Error(
                f"Expected question='counterfactual' for edits={', '.join(self.edits)}",
                got=f"question={self.question!r}",
                do="Only counterfactuals can add or change.",
            )
        if self.robust:
            warnings.warn(ROBUST, DeprecationWarning, stacklevel=4)
            noise = ROBUST_EDGES if self.edits == ("remove",) and self.surely is None else 0
            object.__setattr__(self, "contexts", self.contexts or ROBUST_CONTEXTS)
            object.__setattr__(self, "contexts_add", self.contexts_add or noise)
            object.__setattr__(self, "robust", 0)

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
        """The Spec that `to_json` was called on; an unknown option is refused with the nearest name."""
        known = meanings()
        for name in stored:
            if name not in known:
                raise unknown_name("an option", name, known)
        return Spec(**{**stored, "robust": 0})  # what 0.2 asked of disturbed copies says nothing of this version


def titled(method: str, question: str, several: bool) -> str:
    """What a row about a method is called, of a run that asks one question or several."""
    return f"{method}, {question}" if several and question != "why" else method


def options() -> tuple[Field[Any], ...]:
    """The options of a Spec, in their order."""
    return fields(Spec)


@cache
def meanings() -> dict[str, str]:
    """What every option of a Spec means, by name."""
    return dict.fromkeys((f.name for f in options()), "") | _sentences(inspect.getdoc(Spec) or "")  # none with -OO


def _sentences(text: str) -> dict[str, str]:
    """What a text says of each name, of entries `name: sentences` whose further lines are indented."""
    entries = re.findall(r"^(\w+): (.*(?:\n    .*)*)", text, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in entries}


# -- options as keywords of functions -------------------------------------------------------------------------


# Options that a run does not keep in its Spec. `verbose` and `soft` are False by default, the others None.
_BESIDE = """
call: Function `call(model, batch)` that runs the model. `batch` is a torch_geometric Data or HeteroData with all node
    and edge attributes, and `batch`, `edge_label_index` or `index` for the targets. It returns one row per graph, pair
    or node.
trained: Result of `cf2.fit`, for methods that need training; for `truth`, the true edges by key.
reference: Graphs from which feature values and one-hot columns are taken. Default: all of `data`.
class_names: Class names, one per column of the model's output.
node_names: Node names; for HeteroData by node type, for several graphs by graph.
feature_names: Names of the columns of `x`; for HeteroData by node type.
smiles: SMILES strings of the graphs, which are then drawn as molecules. Default: `data.smiles` if present.
tasks: Chemprop only: names of the model's tasks, for `target`. Default: the names in its file.
progress: Function called as `progress(n)` after n more keys are done; True shows a progress bar, False shows none.
    Default: a bar in terminals and notebooks for calls that take more than two seconds.
verbose: Print the messages of `logging.getLogger("cf2")` to stderr.
soft: Fill the masks with scores instead of 0 and 1: above 0.5 for selected units, below 0.5 for the others.
column: Regression with several columns: the column to explain.
"""


class MethodSettings(TypedDict, total=False):
    """Settings of the methods that come with cf2; each method says what they mean and which values it takes."""

    alpha: float
    batch: int
    beta: float
    budget: float | None
    children: int
    code: int
    confidence: float
    contrast: float
    edge_entropy: float
    edge_size: float | None
    effort: str
    entropy: float
    epochs: int
    exploration: float
    factual: float
    feature_entropy: float
    feature_size: float
    first_temperature: float
    gamma: float
    hidden: int
    hops: int
    k: int | None
    kind: str
    lam: float | None
    last_temperature: float
    lr: float
    messages: bool
    momentum: float
    most: int
    odds: bool
    patience: int | None
    proof: int | None
    rho: float
    rollouts: int
    samples: int
    sharpness: float
    size: float | None
    steps: int
    temperature: float
    threshold: float | None


class ModelOptions(MethodSettings, total=False):
    """Options about the model and its data, which everything that explains takes."""

    tolerance: float | None
    node_type: str | None
    edge_type: tuple[str, str, str] | None
    directed: bool | None
    masking: Masking


class FitOptions(ModelOptions, total=False):
    """The options of `cf2.fit`."""

    target: int | str | Sequence[int | str] | Mapping[Key, int | str] | Tensor | None
    output: Output
    level: Level
    leave_out_pair: bool
    reverse: Reverse
    device: str | torch.device | None
    call: Callable[[Any, Any], Any] | None


class CounterfactualOptions(FitOptions, total=False):
    """The options of `cf2.counterfactual`: those of `cf2.explain` without `question`."""

    method: str
    units: str | Sequence[str]
    edits: str | Sequence[Edit]
    candidates: NodePairs | None
    keep: NodePairs | None
    forbid: NodePairs | None
    groups: str | Sequence[int] | Mapping[str, Any] | Tensor | None
    connected: bool
    valid: Valid | Callable[[Data], bool] | None
    charges: bool
    alternatives: int
    robust: int
    contexts: int
    contexts_add: int
    surely: float | None
    costs: Mapping[str, float] | Sequence[tuple[str, float]] | str
    one_hot: Sequence[Sequence[int]] | str | None
    added_attributes: Mapping[str, Any]
    atoms: Sequence[str] | None
    search: bool
    sizes: int | Mapping[Key, int] | Sequence[Any] | None
    seed: int | None
    max_units: int | None
    reduce: Reduce | None
    trained: Any
    reference: Any
    class_names: Sequence[str] | Mapping[int, str] | None
    node_names: Sequence[Any] | Mapping[Any, Any] | None
    feature_names: Sequence[str] | Mapping[Any, Any] | None
    smiles: str | Sequence[str] | Mapping[int, str] | None
    tasks: Sequence[str] | None
    progress: Callable[[int], None] | bool | None
    verbose: bool


class ExplainOptions(CounterfactualOptions, total=False):
    """The options of `cf2.explain`."""

    question: Question


class SetOptions(TypedDict, total=False):
    """The options of `cf2.explain_sets`."""

    question: Question
    target: int | str | Sequence[int | str] | None
    output: Output
    tolerance: float | None
    alternatives: int
    contexts: int
    surely: float | None
    seed: int | None
    class_names: Sequence[str] | None
    progress: Callable[[int], None] | bool | None
    effort: str
    confidence: float
    proof: int | None


class AlgorithmOptions(ModelOptions, total=False):
    """The options of an algorithm for torch_geometric's Explainer."""

    seed: int | None
    search: bool
    trained: Any
    soft: bool
    column: int | None


_ROWS = {name: (getattr(Spec(), name), meaning) for name, meaning in meanings().items()}
_ROWS |= {name: (False if name in ("verbose", "soft") else None, said) for name, said in _sentences(_BESIDE).items()}
_ROWS["units"] = (AUTO, meanings()["units"])


def rows_of(options: type) -> dict[str, tuple[Any, str]]:
    """The default and the meaning of the options of a TypedDict, in the order in which they are shown."""
    return {name: row for name, row in _ROWS.items() if name in options.__annotations__}


Function = TypeVar("Function", bound=Callable[..., Any])
_NAMED_TYPES = {
    "NodePairs": "pairs of nodes [n, 2], or a mapping from keys to such pairs",
    "Reverse": '{"auto", "none"} or a mapping from edge types to edge types',
}
for _name in ("Edit", "Level", "Question", "Output", "Masking", "Reduce", "Valid"):
    _NAMED_TYPES[_name] = f"{{{', '.join(map(json.dumps, get_args(globals()[_name])))}}}"


def _in_words(kind: str) -> str:
    """A type as a docstring shows it: `Edit | None` as `{"remove", "add", "change"}, optional`."""
    words = re.sub(r"\w+", lambda word: _NAMED_TYPES.get(word[0], word[0]), kind.removesuffix(" | None"))
    return f"{words}, optional" if kind.endswith(" | None") else words


def with_options(options: type) -> Callable[[Function], Function]:
    """Show the options of a TypedDict in a function's or class's signature, and in its docstring at `{options}`."""

    def show(function: Function) -> Function:
        is_class = isinstance(function, type)
        signature, lines = inspect.signature(function.__init__ if is_class else function), []
        parameters = list(signature.parameters.values())[1 if is_class else 0 : -1]
        for name, (default, meaning) in rows_of(options).items():
            kind = options.__annotations__[name].__forward_arg__
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            parameters.append(parameter)
            lines += [f"{name} : {_in_words(kind)}", textwrap.indent(textwrap.fill(meaning, 112), "    ")]
        lines += ["**settings", f"    {meanings()['settings']}"]
        parameters.append(inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD, annotation=Any))
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{options}", "\n".join(lines))
        return function

    return show
