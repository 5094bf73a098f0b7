"""What a counterfactual may do to a graph: one row per kind of edit, and the candidates that an instance has for it.

Removing needs no candidates: what can be removed is there. Added edges and changed features are listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import require
from cf2.graphs.graph import Changes, Extras, Instance, Role, commonest_of, edge_positions, take_extras, with_edges
from cf2.graphs.targets import Targets
from cf2.options import AUTO, Edit, Key, Spec
from cf2.units.kinds import InstanceUnits, UnitKind, unit_kinds, units_of

MAX_BINARY_COLUMNS = 256  # of more columns of 0 and 1, only those that occur in the receptive field are candidates
MAX_SAMPLED_ROWS = 50_000  # rows of features by which it is found out what values they take
MAX_SAMPLED_GRAPHS = 500  # graphs that these rows are taken from, spread over all
MAX_FAR_NODES = 100  # nodes all over the graph that candidates="far" adds to those nearby
MAX_PAIRS = 40_000  # where there are more pairs of nodes than this, not all of them are candidates
MAX_CATEGORIES = 32  # of more whole numbers in a column, only the commonest are candidates
QUANTILES = (0.05, 0.35, 0.65, 0.95)  # where a number may move to

Around = Callable[[Tensor], Instance]  # what a model can see from some nodes, as an instance


@dataclass(frozen=True)
class EditKind:
    """Everything about one kind of edit. A new kind is one row of `EDITS`, its name in `options.Edit`, and a test."""

    name: Edit  # in `edits=`, and the verb of a list
    participle: str  # the verb of a sentence: 'removing'
    past: str  # the word of a legend and of a style: 'removed'
    noun: str  # what is edited
    colour: str
    width: float  # of its line, in pixels
    dash: tuple[float, float]  # drawn and free parts of its line, in pixels
    mark: Literal["cross", "line", "ring"]  # by which it is told from the others without colours
    prepare: Callable[[Editing, Instance, Around], Instance] | None = None  # puts its candidates into an instance
    unit_kind: str = ""  # whose units are such edits; empty: all kinds of unit that have no edit of their own
    pairs: bool = True  # whether it edits edges
    prefix: str = ""  # what the text of a unit lacks to say that it is an edit
    cost: float = 1.0  # where `costs=` gives none


def edit_of(unit_kind: str) -> EditKind:
    """The edit that is made of units of a kind: what is no candidate is removed."""
    return next((edit for edit in EDITS.values() if edit.unit_kind == unit_kind), EDITS["remove"])


def is_candidate(unit_kind: str) -> bool:
    """Whether units of a kind are edits that add or change: not in the graph before they are made."""
    return bool(edit_of(unit_kind).unit_kind)


def kinds_for(spec: Spec) -> tuple[UnitKind, ...]:
    """The kinds of unit of a request: what can be removed, and what may be added or changed."""
    given = ("edges",) if spec.units == (AUTO,) else spec.units
    for kind in unit_kinds(given):
        cure = f"Pass question='counterfactual', edits={edit_of(kind.name).name!r}."
        require(not kind.absent, "Expected `units` that are in the graph", got=kind.name, do=cure)
    names = list(given) if "remove" in spec.edits else []
    if spec.groups is not None:
        good = "edges" in names and "groups" not in names
        require(good, "Expected units='edges' and edits that remove for `groups`", got=", ".join(names) or "none")
        names.insert(names.index("edges") + 1, "groups")
    else:
        require("groups" not in names, "Expected `groups`, which edges are one unit", got="none")
    return unit_kinds(names + [e.unit_kind for e in EDITS.values() if e.unit_kind and e.name in spec.edits])


class Domain(NamedTuple):
    """What values the features take: one-hot groups of columns, columns of 0 and 1, and others with their values."""

    one_hot: tuple[tuple[int, ...], ...] = ()
    binary: tuple[int, ...] = ()
    numbers: tuple[tuple[int, tuple[float, ...]], ...] = ()

    @staticmethod
    def of(x: Tensor, one_hot: tuple[tuple[int, ...], ...] | None = None) -> Domain:
        """The domain of features [n, d]; groups of one-hot columns are as given, or recognised.

        >>> Domain.of(torch.tensor([[1.0, 0, 2.5], [0, 1, 2.5], [1, 0, 7.0]])).one_hot
        ((0, 1),)
        """
        x = x[:: max(1, len(x) // MAX_SAMPLED_ROWS)]
        zero_one = ((x == 0) | (x == 1)).all(0)
        groups = _one_hot_groups(x, zero_one) if one_hot is None else one_hot
        for group in groups:
            columns = list(group)
            good = max(group) < x.size(1) and bool(zero_one[columns].all()) and bool((x[:, columns].sum(1) == 1).all())
            require(good, "Expected columns of `one_hot` in which every node has exactly one 1", got=str(group)[:60])
        taken = {column for group in groups for column in group}
        varies = (x != x[:1]).any(0).nonzero().flatten().tolist()
        free = [column for column in varies if column not in taken]
        binary = tuple(column for column in free if zero_one[column])
        values = _quantiles if x.is_floating_point() else _categories
        numbers = tuple((column, values(x[:, column])) for column in free if not zero_one[column])
        return Domain(groups, binary, numbers)


def _categories(column: Tensor) -> tuple[float, ...]:
    """The whole numbers that the data holds, the commonest ones where there are very many."""
    values, counts = torch.unique(column, return_counts=True)
    return tuple(sorted(values[counts.argsort(descending=True, stable=True)[:MAX_CATEGORIES]].tolist()))


def _quantiles(column: Tensor) -> tuple[float, ...]:
    """A few values that the data holds, spread over its range."""
    ordered = column.sort().values
    return tuple(dict.fromkeys(float(ordered[int(share * (len(ordered) - 1))]) for share in QUANTILES))


def _one_hot_groups(x: Tensor, zero_one: Tensor) -> tuple[tuple[int, ...], ...]:
    """Runs of neighbouring columns in which every row has exactly one 1, none of them constant."""
    groups: list[tuple[int, ...]] = []
    # From the left, the shortest run whose rows sum up to 1 each; as soon as a sum is 2, no longer run can be one. So
    # two features side by side are two groups, and a column of zeros between them goes to the first.
    start, width = 0, x.size(1)
    while start < width:
        total = torch.zeros(len(x), dtype=torch.long)
        for end in range(start, width):
            if not zero_one[end]:
                break
            total += x[:, end].long()
            if bool((total > 1).any()):
                break
            if bool((total == 1).all()):
                while end + 1 < width and zero_one[end + 1] and not bool(x[:, end + 1].any()):
                    end += 1  # values that no node has belong to the group as well
                if end > start:
                    groups.append(tuple(range(start, end + 1)))
                start = end
                break
        start += 1
    return tuple(groups)


def changes_of(instance: Instance, domains: tuple[Domain, ...]) -> Changes:
    """Every change of a feature of a node that can be edited; the domains are those of the node types, or one."""
    parts: list[tuple[Tensor, ...]] = [_NO_CHANGES]
    choices = 0
    editable = _editable_nodes(instance)
    kind = torch.zeros_like(editable) if instance.types is None else instance.extras["node_type"][1][editable]
    for number, domain in enumerate(domains):
        rows = editable[kind == number]
        for node, column, value, source, choice, count in _changes_of_rows(instance.x[rows], domain):
            parts.append((rows[node], column, value, source, choices + choice))
            choices += count
    node, column, value, source, choice = (torch.cat(part) for part in zip(*parts))
    unit = torch.arange(len(node))
    moves = source >= 0  # a one-hot feature leaves its old column as well
    place = torch.cat([torch.stack([node, column], 1), torch.stack([node, source], 1)[moves]])
    both = torch.cat([unit, unit[moves]])
    order = both.argsort(stable=True)
    return Changes(
        place=place[order],
        value=torch.cat([value, torch.zeros(int(moves.sum()))])[order],
        unit=both[order],
        ids=torch.stack([instance.node_ids[node], column], 1),
        source=source,
        choice=choice,
    )


_NO_ID = torch.zeros(0, dtype=torch.long)
_NO_CHANGES = (_NO_ID, _NO_ID, torch.zeros(0), _NO_ID, _NO_ID)


def _changes_of_rows(x: Tensor, domain: Domain) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int]]:
    """Row, new column, new value, old column or -1, and choice of changes of x [n, d]; and how many choices these are.

    Of the changes of one choice, only one can be made.
    """
    for group in domain.one_hot:
        columns = torch.tensor(group)
        now = x[:, columns] == 1
        node, new = ((~now) & now.any(1, keepdim=True)).nonzero(as_tuple=True)
        old = now.int().argmax(1)
        yield node, columns[new], torch.ones(len(node)), columns[old[node]], node, len(x)
    if domain.binary:
        columns = torch.tensor(domain.binary)
        if len(columns) > MAX_BINARY_COLUMNS:  # of thousands of words, those that occur here
            columns = columns[(x[:, columns] != 0).any(0)]
        node, word = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(columns))).t()
        flipped = 1.0 - x[node, columns[word]].float()
        yield node, columns[word], flipped, torch.full_like(node, -1), torch.arange(len(node)), len(node)
    for column, values in domain.numbers:
        rows = [(x[:, column] != value).nonzero().flatten() for value in values]
        node, counts = torch.cat(rows), torch.tensor([len(row) for row in rows])
        value = torch.tensor(values, dtype=torch.float).repeat_interleave(counts)
        yield node, torch.full_like(node, column), value, torch.full_like(node, -1), node, len(x)


def _editable_nodes(instance: Instance) -> Tensor:
    """The nodes whose features can be edited: those of the receptive field itself."""
    if instance.role is None or not instance.targets:
        return torch.arange(len(instance.node_ids))
    near = instance.edge_index[:, instance.role == Role.THERE].flatten()
    nodes: Tensor = torch.unique(torch.cat([near, torch.tensor(instance.targets)]))
    return nodes


def pairs_by_key(given: Any, key: Key) -> Tensor | None:
    """The pairs [n, 2] that an option gives for one key: the same for all, or by key; None if it gives none."""
    for of, pairs in given or ():
        if of is None or of == key:
            return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return None


@dataclass(frozen=True, eq=False)
class Editing:
    """What may be edited beside what can be removed."""

    edits: tuple[Edit, ...] = ()  # the kinds of edit, by name
    domain: tuple[Domain, ...] | None = None  # of each node type; None: features do not change
    candidates: Any = None  # pairs that may be added, as the Spec has them
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of added edges, by name; else the commonest
    groups: Any = None  # edges that are one unit, as the Spec has them
    far: Tensor | None = None  # nodes all over the graph that the target may be joined to
    common: Mapping[str, Tensor] = field(default_factory=dict)  # commonest attributes, by name, of one whole graph

    @staticmethod
    def of(spec: Spec, targets: Targets, reference: Targets | None = None) -> Editing | None:
        """What a request may edit, None where it only removes units by themselves.

        What values features take is learnt from the reference, or from all that can be explained.
        """
        if spec.edits == ("remove",) and spec.groups is None:
            return None
        named = spec.candidates is None or isinstance(spec.candidates, str)
        require(
            targets.schema is None or (named and spec.one_hot is None),
            "Expected candidates='near', 'target' or 'far', and no `one_hot`, for a typed graph",
            got="pairs without a type" if not named else "columns without a type",
        )
        examples = targets if reference is None else reference
        domain = _domains(examples, spec.one_hot) if "change" in spec.edits else None
        far = spec.candidates == "far"
        require(
            not far or targets.graph is not None, "Expected nodes of one graph for candidates='far'", got="whole graphs"
        )
        return Editing(
            spec.edits,
            domain,
            spec.candidates,
            spec.added_attributes,
            spec.groups,
            _far_nodes(targets) if far else None,
            commonest_of(targets.graph) if targets.graph is not None else {},
        )

    @staticmethod
    def adding(spec: Spec, targets: Targets) -> Editing:
        """Edges between nodes of the receptive field alone, whatever the request may edit."""
        common = commonest_of(targets.graph) if targets.graph is not None else {}
        return Editing(("add",), attributes=spec.added_attributes, groups=spec.groups, common=common)

    def wider(self, targets: Targets) -> Editing | None:
        """The same with nodes all over the graph to join the target to, None where candidates are given."""
        if "add" not in self.edits or self.candidates is not None or targets.graph is None:
            return None
        return replace(self, far=_far_nodes(targets))

    def prepared(self, near: Instance, around: Around) -> Instance:
        """An instance with its candidates; `near` is its receptive field, `around` what can be seen from some nodes.

        An added edge brings nodes nearer: what lies around its ends counts as far as the model looks from there.
        """
        prepared = grouped(near, self.groups)
        for edit in EDITS.values():
            prepared = prepared if edit.prepare is None else edit.prepare(self, prepared, around)
        return prepared


def _domains(targets: Targets, one_hot: tuple[tuple[int, ...], ...] | None) -> tuple[Domain, ...]:
    """What values the features of each node type take; without types, of all nodes."""
    some = range(0, len(targets), max(1, len(targets) // MAX_SAMPLED_GRAPHS))
    graphs = [targets.instance(key) for key in some] if targets.graph is None else [targets.graph]
    x = torch.cat([graph.x for graph in graphs])
    if targets.schema is None:
        return (Domain.of(x, one_hot),)
    kind = torch.cat([graph.extras["node_type"][1] for graph in graphs])
    parts = ((x[kind == place], width or 0) for place, width in enumerate(targets.schema.widths))
    return tuple(Domain.of(rows[:, :width]) if width and len(rows) else Domain() for rows, width in parts)


def _far_nodes(targets: Targets) -> Tensor:
    """Nodes spread over the one graph of the targets."""
    assert targets.graph is not None
    nodes = targets.graph.num_nodes
    return torch.linspace(0, nodes - 1, min(nodes, MAX_FAR_NODES)).long()


def grouped(instance: Instance, groups: Any) -> Instance:
    """The instance with the groups of its edges: an attribute of the data by name, or pairs of nodes by name."""
    if groups is None:
        return instance
    if isinstance(groups, str):
        kind, numbers = instance.extras.get(groups, ("none", torch.zeros(0)))
        require(
            kind == "edge" and not numbers.is_floating_point() and numbers.dim() == 1,
            f"Expected `{groups}` of the data to hold a whole number for every edge, for groups={groups!r}",
            got="no such attribute" if kind == "none" else f"{numbers.dtype} of shape {tuple(numbers.shape)}",
        )
        return replace(instance, groups=numbers.long())
    edges = instance.node_ids[instance.edge_index].sort(0).values
    found = torch.full_like(edges[0], -1)
    for number, (_, pairs) in enumerate(groups):
        ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).sort(1).values
        found[edge_positions(ends.t(), edges) >= 0] = number
    return replace(instance, groups=found)


def _with_changes(editing: Editing, instance: Instance, around: Around) -> Instance:
    return instance if editing.domain is None else replace(instance, changes=changes_of(instance, editing.domain))


def _with_edges(editing: Editing, near: Instance, around: Around) -> Instance:
    """An instance with every absent edge that may be added, and with what can be seen from the ends of these."""
    if "add" not in editing.edits:
        return near
    given = None if isinstance(editing.candidates, str) else pairs_by_key(editing.candidates, near.key)
    inside = given is None and editing.candidates != "far"
    if editing.far is not None:
        targets = near.node_ids[list(near.targets)]
        given = torch.cartesian_prod(targets, torch.cat([near.node_ids, editing.far])).reshape(-1, 2)
        if near.directed:  # models read the edges that lead to the target
            given = torch.stack([given, given.flip(1)], 1).reshape(-1, 2)
    base, role = near, torch.zeros(near.edge_index.size(1), dtype=torch.long)
    if near.targets:
        ends = near.node_ids if given is None else torch.cat([near.node_ids, given.flatten()])
        base = grouped(around(torch.unique(ends)), editing.groups)
        role = _roles(near, base)
    local = torch.from_numpy(np.flatnonzero(np.isin(base.node_ids.numpy(), near.node_ids.numpy())))
    at_target, kind, tie = editing.candidates == "target", None, None
    if base.types is None:
        parts = [_near_pairs(base, local, at_target)] if inside else []
        pairs = _new(torch.cat([*parts, *([] if given is None else [_local_pairs(given, base)])]), base)
        both = pairs if base.directed else torch.stack([pairs, pairs.flip(1)], 1).reshape(-1, 2)
        columns = both.t()  # in the order of `Explanation.apply`, on which a model may depend
    else:
        far = np.zeros(0, np.int64) if editing.far is None else editing.far.numpy()
        far = np.flatnonzero(np.isin(base.node_ids.numpy(), far))
        columns, kind, tie = _typed_edges(base, local.numpy() if inside else far[:0], far, at_target)
    count = columns.size(1)
    return replace(
        base,
        edge_index=torch.cat([base.edge_index, columns], 1),
        role=torch.cat([role, torch.full((count,), Role.CANDIDATE)]),
        ties=base.ties if base.ties is None or tie is None else torch.cat([base.ties, tie]),
        extras=_extended(editing, base, count, kind),
        groups=None if base.groups is None else torch.cat([base.groups, torch.full((count,), -1)]),
    )


def _roles(near: Instance, base: Instance) -> Tensor:
    """THERE for the edges of the receptive field, BEYOND for those that only an added edge can bring into it.

    What is one unit goes together: the reverse of an edge is THERE with it, though it alone might be out of sight, and
    so are the mirror image of a typed edge and the further edges of a group.
    """
    inside = torch.isin(base.codes, near.codes)
    if base.groups is not None and near.groups is not None:
        inside |= (base.groups >= 0) & torch.isin(base.groups, near.groups)
    return torch.where(inside, Role.THERE, Role.BEYOND)


def _local_pairs(given: Tensor, base: Instance) -> Tensor:
    """Pairs in the user's ids as pairs of local ids; those with an end outside of the instance cannot matter."""
    position = torch.searchsorted(base.node_ids, given).clamp(max=len(base.node_ids) - 1)
    return position[(base.node_ids[position] == given).all(1)]


def _near_pairs(base: Instance, inside: Tensor, at_target: bool) -> Tensor:
    """Pairs of nodes of the receptive field, in local ids; only those at the target where there are very many."""
    many = len(inside) * (len(inside) - 1) // 2 > MAX_PAIRS
    if base.targets and (at_target or many):
        pairs = torch.cartesian_prod(torch.tensor(base.targets), inside).reshape(-1, 2)
    else:
        first, second = torch.triu_indices(len(inside), len(inside), 1)
        step = 1 if base.targets else max(1, -(-len(first) // MAX_PAIRS))  # of a huge graph, every so many-th pair
        pairs = torch.stack([inside[first[::step]], inside[second[::step]]], 1)
    return torch.cat([pairs, pairs.flip(1)]) if base.directed else pairs


def _new(pairs: Tensor, base: Instance) -> Tensor:
    """The pairs that are no edges yet, no loops, and each one once."""
    nodes = len(base.node_ids)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs, edges = (pairs, base.edge_index) if base.directed else (pairs.sort(1).values, base.edge_index.sort(0).values)
    code = torch.unique(pairs[:, 0] * nodes + pairs[:, 1])
    pairs = torch.stack([code // nodes, code % nodes], 1)
    return pairs[edge_positions(edges, pairs.t(), nodes) < 0]


def _typed_edges(base: Instance, inside: np.ndarray, far: np.ndarray, at_target: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Absent edges [2, ·] between local nodes `inside`, and between the targets and those `far` away; types and ties.

    An edge that is one unit with its mirror image comes with it.
    """
    types, ties = base.types, base.ties
    assert types is not None
    assert ties is not None
    ids = base.node_ids.numpy()
    own_types = [place for place, mirror in enumerate(types.partners) if not 0 <= mirror < place]
    pairs = [_typed_pairs(base, place, inside, far, at_target) for place in own_types]
    kind = np.repeat(own_types, [found.shape[1] for found in pairs]).astype(np.int64)
    tail, head = np.concatenate([np.zeros((2, 0), np.int64), *pairs], 1)
    code, first = np.unique(types.code(kind, ids[tail], ids[head]), return_index=True)
    first = np.sort(first[~np.isin(code, ties.numpy())])
    kind, tail, head = kind[first], tail[first], head[first]
    tie = types.code(kind, ids[tail], ids[head])
    partner = np.array([*types.partners, -1])[kind]
    back = partner >= 0
    columns = torch.from_numpy(np.stack([np.r_[tail, head[back]], np.r_[head, tail[back]]]))
    return columns, torch.from_numpy(np.r_[kind, partner[back]]), torch.from_numpy(np.r_[tie, tie[back]])


def _typed_pairs(base: Instance, kind: int, inside: np.ndarray, far: np.ndarray, at_target: bool) -> np.ndarray:
    """Local nodes [2, ·] that edges of a type may join, whether they do or not."""
    assert base.types is not None
    source, _, sink = base.types.edges[kind]
    names = base.types.nodes
    kind_of, targets = base.types.of(base.node_ids.numpy()), np.array(base.targets, dtype=np.int64)
    first, last = (names.index(name) if name in names else -1 for name in (source, sink))

    def joined(tails: np.ndarray, heads: np.ndarray) -> np.ndarray:
        tails, heads = tails[kind_of[tails] == first], heads[kind_of[heads] == last]
        return np.stack([np.repeat(tails, len(heads)), np.tile(heads, len(tails))])

    near, wide = [(targets, inside), (inside, targets)], [(targets, far), (far, targets)]
    count = int((kind_of[inside] == first).sum()) * int((kind_of[inside] == last).sum())
    if not len(targets) or not (at_target or count > MAX_PAIRS):
        near = [(inside, inside)]
    pairs = np.concatenate([joined(*ends) for ends in near + wide], 1)
    if not len(targets):
        pairs = pairs[:, :: max(1, -(-pairs.shape[1] // MAX_PAIRS))]  # of a huge graph, every so many-th pair
    return pairs[:, pairs[0] != pairs[1]]


def _extended(editing: Editing, base: Instance, count: int, of_type: Tensor | None) -> Extras:
    """What edges have beside their ends, also for `count` that may be added: what is given, or else the commonest.

    Of a typed graph, `of_type` are the types of the added edges, and the commonest is that of the type.
    """
    if not count:
        return base.extras
    common, extended = editing.common or commonest_of(base), dict(base.extras)
    for name, (kind, value) in base.extras.items():
        shape = tuple(value.shape[1:])
        if kind != "edge":
            continue
        if name == "edge_type" and of_type is not None:
            rows = of_type.to(value.dtype)
        elif name in editing.attributes:
            row = torch.as_tensor(editing.attributes[name], dtype=value.dtype)
            good = of_type is not None or row.shape == shape
            expected = f"Expected `added_attributes` to give `{name}` of one edge, of shape {shape}"
            require(good, expected, got=f"shape {tuple(row.shape)}")
            rows = row.expand(count, *shape)
        else:
            rows = common[name].expand(count, *shape) if of_type is None else common[name][of_type]
        extended[name] = (kind, torch.cat([value, rows]))
    return extended


def with_noise(
    instance: Instance, kinds: Sequence[UnitKind], count: int, most: int, draw: torch.Generator
) -> tuple[Instance, Tensor]:
    """The instance with those candidate edges that some of `count` contexts has, and which each has [count, units].

    Each context has a random number of them, up to `most`, all numbers equally likely.
    """
    table = units_of(instance, kinds)
    assert table.absent is not None
    has, candidates = torch.zeros((count, table.count), dtype=torch.bool), table.absent.nonzero().flatten()
    if len(candidates):
        picked = candidates[torch.randint(len(candidates), (count, most), generator=draw)]
        number = torch.randint(most + 1, (count, 1), generator=draw)
        context, place = (torch.arange(most)[None] < number).nonzero(as_tuple=True)
        has[context, picked[context, place]] = True
    kept = has.any(0)
    return with_candidates(instance, table, kept), has[:, kept | ~table.absent]


def elements(instance: Instance, table: InstanceUnits, as_it_was: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features [n, d], edge columns [e, bool] and nodes [n, bool] where units [u, bool] are as they were at first."""
    there = as_it_was if table.absent is None else as_it_was ^ table.absent
    columns, entries = (_present(governed, there) for governed in (table.edges, table.features))
    x, gone = instance.x, table.entries[~entries] if len(table.entries) else table.entries
    if len(gone) or table.changes is not None:
        x = x.clone()
        x[gone[:, 0], gone[:, 1]] = 0
    if table.changes is not None:
        changed = there[table.changes.unit]
        place, value = table.changes.place[changed], table.changes.value[changed]
        x[place[:, 0], place[:, 1]] = value.to(x.dtype)
    nodes = torch.ones(len(x), dtype=torch.bool) if table.nodes is None else _present(table.nodes, there)
    return x, columns, nodes


def edited(instance: Instance, table: InstanceUnits, chosen: Tensor) -> Data:
    """The instance's graph after the edits of the chosen units [u, bool]; `node_ids` are the user's."""
    x, columns, nodes = elements(instance, table, ~chosen)
    rows = {"edge": columns, "node": nodes}
    extras = {n: value for n, (_, value) in take_extras(instance.extras, rows).items() if n != "node_ids"}
    edge_index = (nodes.long().cumsum(0) - 1)[instance.edge_index[:, columns]]
    return Data(x=x[nodes], edge_index=edge_index, node_ids=instance.node_ids[nodes], **extras)


def _present(governed: tuple[Tensor, Tensor], there: Tensor) -> Tensor:
    """Which elements are there [elements], given which units are."""
    first, (element, unit) = governed
    if not len(there):
        return torch.ones(len(first), dtype=torch.bool)
    present = torch.where(first < 0, True, there[first.clamp(min=0)])
    present[element[~there[unit]]] = False
    return present


def with_candidates(instance: Instance, table: InstanceUnits, kept: Tensor) -> Instance:
    """The instance with only those additions and changes whose units are `kept` [u, bool]."""
    changes = instance.changes
    if changes is not None:
        changed = kept[table.of_kind("changes")]
        entries, number = changed[changes.unit], changed.long().cumsum(0) - 1
        changes = Changes(
            changes.place[entries],
            changes.value[entries],
            number[changes.unit[entries]],
            changes.ids[changed],
            changes.source[changed],
            changes.choice[changed],
        )
    if instance.role is not None:
        instance = with_edges(instance, (instance.role != Role.CANDIDATE) | kept[table.edges[0].clamp(min=0)])
    return replace(instance, changes=changes)


REMOVE = EditKind("remove", "removing", "removed", "unit", "#D55E00", 1.8, (3, 3), "cross")
ADD = EditKind(
    name="add",
    participle="adding",
    past="added",
    noun="edge",
    colour="#009E73",
    width=3.4,
    dash=(8, 5),
    mark="line",
    prepare=_with_edges,
    unit_kind="added_edges",
    prefix="add ",
)
CHANGE = EditKind(
    name="change",
    participle="changing",
    past="changed",
    noun="feature",
    colour="#CC79A7",
    width=2.6,
    dash=(4, 2),
    mark="ring",
    prepare=_with_changes,
    unit_kind="changes",
    pairs=False,
)
EDITS: Mapping[str, EditKind] = MappingProxyType({edit.name: edit for edit in (REMOVE, ADD, CHANGE)})
EDGE_KINDS = ("edges", *(e.unit_kind for e in EDITS.values() if e.unit_kind and e.pairs))  # units with two ends
