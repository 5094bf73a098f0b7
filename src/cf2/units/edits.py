"""What features may change to: the values that they take in the data, and every change of a node that can be edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import require
from cf2.graphs.graph import Changes, Extras, Instance, Role, commonest, commonest_of
from cf2.graphs.targets import SAMPLE, Targets
from cf2.graphs.typed import Types
from cf2.options import Key, Spec
from cf2.units.kinds import InstanceUnits

# -- changes ---------------------------------------------------------------------------------------------


MANY_COLUMNS = 256  # of more columns of 0 and 1, only those that occur in the receptive field are candidates
SAMPLED_ROWS = 50_000  # rows of features by which it is found out what values they take
QUANTILES = (0.05, 0.35, 0.65, 0.95)  # where a number may move to


class Domain(NamedTuple):
    """What values the features take: one-hot groups of columns, columns of 0 and 1, and columns of numbers."""

    one_hot: tuple[tuple[int, ...], ...] = ()
    binary: tuple[int, ...] = ()
    numbers: tuple[tuple[int, tuple[float, ...]], ...] = ()

    @staticmethod
    def of(x: Tensor, one_hot: tuple[tuple[int, ...], ...] | None = None) -> Domain:
        """The domain of features [n, d]; groups of one-hot columns are as given, or recognised.

        >>> Domain.of(torch.tensor([[1.0, 0, 2.5], [0, 1, 2.5], [1, 0, 7.0]])).one_hot
        ((0, 1),)
        """
        require(
            x.is_floating_point(),
            'Expected features that are numbers for edits="change"',
            got=f"{x.dtype}, where a number is a category like any other",
            do="Encode the categories as one-hot columns.",
        )
        x = x[:: max(1, len(x) // SAMPLED_ROWS)]
        plain = ((x == 0) | (x == 1)).all(0)
        groups = _recognised(x, plain) if one_hot is None else one_hot
        for group in groups:
            there = max(group) < x.size(1)
            good = there and bool(plain[list(group)].all()) and bool((x[:, list(group)].sum(1) == 1).all())
            require(good, "Expected columns of `one_hot` in which every node has exactly one 1", got=str(group)[:60])
        taken = {column for group in groups for column in group}
        varies = (x != x[:1]).any(0)
        free = [column for column in varies.nonzero().flatten().tolist() if column not in taken]
        binary = tuple(column for column in free if plain[column])
        numbers = tuple((column, _values(x[:, column])) for column in free if not plain[column])
        return Domain(groups, binary, numbers)

    @property
    def empty(self) -> bool:
        return not (self.one_hot or self.binary or self.numbers)


def _values(column: Tensor) -> tuple[float, ...]:
    """A few values that the data holds, spread over its range."""
    ordered = column.sort().values
    places = [int(share * (len(ordered) - 1)) for share in QUANTILES]
    return tuple(dict.fromkeys(float(ordered[place]) for place in places))


def _recognised(x: Tensor, plain: Tensor) -> tuple[tuple[int, ...], ...]:
    """Runs of neighbouring columns in which every row has exactly one 1, none of them constant."""
    groups: list[tuple[int, ...]] = []
    start, width = 0, x.size(1)
    while start < width:
        total = torch.zeros(len(x), dtype=torch.long)
        for end in range(start, width):
            if not plain[end]:
                break
            total += x[:, end].long()
            if bool((total > 1).any()):
                break
            if bool((total == 1).all()):
                while end + 1 < width and plain[end + 1] and not bool(x[:, end + 1].any()):
                    end += 1  # values that no node has belong to the group as well
                if end > start:
                    groups.append(tuple(range(start, end + 1)))
                start = end
                break
        start += 1
    return tuple(groups)


def changes_of(instance: Instance, domains: tuple[Domain, ...]) -> Changes:
    """Every change of a feature of a node that can be edited; the domains are those of the node types, or one."""
    parts: list[Any] = []
    number = 0  # of choices
    rows = _editable(instance)
    of = torch.zeros_like(rows) if instance.types is None else instance.extras["node_type"][1][rows]
    for kind, domain in enumerate(domains):
        number = _add_changes(parts, instance, rows[of == kind], domain, number)
    node, column, value, source, choice = (torch.cat(part) for part in zip(*parts)) if parts else _NOTHING
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


def _add_changes(parts: list[Any], instance: Instance, rows: Tensor, domain: Domain, number: int) -> int:
    """The changes of some nodes, with choices from a number on; the next number."""
    x = instance.x[rows]
    for group in domain.one_hot:
        columns = torch.tensor(group)
        now = x[:, columns] == 1
        node, new = ((~now) & now.any(1, keepdim=True)).nonzero(as_tuple=True)
        old = now.int().argmax(1)
        parts.append((rows[node], columns[new], torch.ones(len(node)), columns[old[node]], number + node))
        number += len(rows)
    if domain.binary:
        columns = torch.tensor(domain.binary)
        if len(columns) > MANY_COLUMNS:  # of thousands of words, those that occur here
            columns = columns[(x[:, columns] != 0).any(0)]
        node, word = torch.cartesian_prod(torch.arange(len(rows)), torch.arange(len(columns))).t()
        flipped, every = 1 - x[node, columns[word]], torch.arange(len(node))
        parts.append((rows[node], columns[word], flipped, torch.full_like(node, -1), number + every))
        number += len(node)
    for numeric, values in domain.numbers:
        number = _add_values(parts, rows, x, numeric, values, number)
    return number


_NOTHING = tuple(torch.zeros(0, dtype=kind) for kind in (torch.long, torch.long, torch.float, torch.long, torch.long))


def _add_values(parts: list[Any], rows: Tensor, x: Tensor, column: int, values: tuple[float, ...], number: int) -> int:
    for value in values:
        node = (x[:, column] != value).nonzero().flatten()
        whole = torch.full_like(node, column)
        parts.append((rows[node], whole, torch.full((len(node),), value), torch.full_like(node, -1), number + node))
    return number + len(rows)


def _editable(instance: Instance) -> Tensor:
    """The nodes whose features can be edited: those of the receptive field itself."""
    if instance.role is None or not instance.targets:
        return torch.arange(len(instance.node_ids))
    near = instance.edge_index[:, instance.role == Role.THERE].flatten()
    nodes: Tensor = torch.unique(torch.cat([near, torch.tensor(instance.targets)]))
    return nodes


def chosen_changes(changes: Changes, kept: Tensor) -> Changes:
    """Some of the changes [u, bool], numbered anew."""
    entries = kept[changes.unit]
    number = kept.long().cumsum(0) - 1
    return Changes(
        changes.place[entries],
        changes.value[entries],
        number[changes.unit[entries]],
        changes.ids[kept],
        changes.source[kept],
        changes.choice[kept],
    )


# -- typed edits -----------------------------------------------------------------------------------------


MANY = 40_000  # where a type joins more pairs than this, only those at the target are candidates


def with_typed_edges(
    base: Instance,
    role: Tensor,
    inside: Tensor,
    far: Tensor,
    attributes: Mapping[str, Any],
    common: Mapping[str, Tensor],
    *,
    target: bool,
) -> Instance:
    """An instance with every absent edge between local nodes `inside`, and between the targets and those `far` away.

    With `target`, only edges at the target. An edge that is one unit with its mirror image comes with it. Its
    `attributes` are given, or else the most `common` ones of its type, where these are known of the whole graph.
    """
    types = base.types
    assert types is not None
    assert base.ties is not None
    ids = base.node_ids.numpy()
    kinds, tails, heads = [], [], []
    for place, mirror in enumerate(types.partners):
        if 0 <= mirror < place:  # the mirror images of another type
            continue
        one, other = _pairs(base, types, place, inside.numpy(), far.numpy(), target)
        kinds.append(np.full(len(one), place))
        tails.append(one)
        heads.append(other)
    kind, tail, head = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (kinds, tails, heads))
    code, first = np.unique(types.code(kind, ids[tail], ids[head]), return_index=True)
    first = np.sort(first[~np.isin(code, base.ties.numpy())])
    kind, tail, head = kind[first], tail[first], head[first]
    tie = types.code(kind, ids[tail], ids[head])
    partner = np.array([*types.partners, -1])[kind]
    back = partner >= 0
    columns = torch.from_numpy(np.stack([np.r_[tail, head[back]], np.r_[head, tail[back]]]))
    of_type = torch.from_numpy(np.r_[kind, partner[back]])
    return replace(
        base,
        edge_index=torch.cat([base.edge_index, columns], 1),
        role=torch.cat([role, torch.full((columns.size(1),), Role.CANDIDATE)]),
        ties=torch.cat([base.ties, torch.from_numpy(np.r_[tie, tie[back]])]),
        extras=_extended(base.extras, of_type, attributes, common),
        groups=None if base.groups is None else torch.cat([base.groups, torch.full_like(of_type, -1)]),
    )


def _pairs(
    base: Instance, types: Types, kind: int, inside: np.ndarray, far: np.ndarray, target: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Local nodes that edges of a type may join, whether they do or not."""
    source, _, sink = types.edges[kind]
    of, own = types.of(base.node_ids.numpy()), np.array(base.targets, dtype=np.int64)
    places = [types.nodes.index(name) if name in types.nodes else -1 for name in (source, sink)]

    def joined(tails: np.ndarray, heads: np.ndarray) -> np.ndarray:
        tails, heads = tails[of[tails] == places[0]], heads[of[heads] == places[1]]
        return np.stack([np.repeat(tails, len(heads)), np.tile(heads, len(tails))])

    near, wide = [(own, inside), (inside, own)], [(own, far), (far, own)]
    count = int((of[inside] == places[0]).sum()) * int((of[inside] == places[1]).sum())
    if not len(own) or not (target or count > MANY):
        near = [(inside, inside)]
    pairs = np.concatenate([joined(*ends) for ends in near + wide], 1)
    if not len(own):
        pairs = pairs[:, :: max(1, -(-pairs.shape[1] // MANY))]  # of a huge graph, every so many-th pair
    tail, head = pairs[:, pairs[0] != pairs[1]]
    return tail, head


def _extended(extras: Extras, of_type: Tensor, given: Mapping[str, Any], common: Mapping[str, Tensor]) -> Extras:
    """What edges have beside their ends, for those that may be added the commonest of their type, or what is given."""
    known, found = extras["edge_type"][1], dict[str, Any]()
    for name, (kind, value) in extras.items():
        if kind == "edge" and name == "edge_type":
            value = torch.cat([value, of_type.to(value.dtype)])
        elif kind == "edge":
            rows = value.new_zeros((len(of_type), *value.shape[1:]))
            for one in torch.unique(of_type).tolist():
                row = common[name][one] if name in common else commonest(value[known == one])
                if name in given:
                    row = torch.as_tensor(given[name], dtype=value.dtype)
                rows[of_type == one] = row
            value = torch.cat([value, rows])
        found[name] = (kind, value)
    return found


# -- edits -----------------------------------------------------------------------------------------------


FAR = 100  # nodes all over the graph that candidates="far" adds to those nearby
ALL_PAIRS = 40_000  # where there are more pairs of nodes than this, not all of them are candidates


def pairs_by_key(given: Any, key: Key) -> Tensor | None:
    """The pairs [n, 2] that an option gives for one key: the same for all, or by key; None if it gives none."""
    for of, pairs in given or ():
        if of is None or of == key:
            return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return None


@dataclass(frozen=True, eq=False)
class Editing:
    """What may be edited beside what can be removed."""

    add: bool = False
    domain: tuple[Domain, ...] | None = None  # of each node type; None: features do not change
    candidates: Any = None  # pairs that may be added, as the Spec has them
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of added edges, by name; else the commonest
    groups: Any = None  # edges that are one unit, as the Spec has them
    far: Tensor | None = None  # nodes all over the graph that the target may be joined to
    near: bool = True  # whether pairs inside of the receptive field are candidates
    common: Mapping[str, Tensor] = field(default_factory=dict)  # commonest attributes, by name, of one whole graph

    @staticmethod
    def of(spec: Spec, targets: Targets) -> Editing | None:
        """What a request may edit, None where it only removes units by themselves."""
        change = "change" in spec.edits
        if not change and "add" not in spec.edits and spec.groups is None:
            return None
        typed = targets.schema is not None
        named = spec.candidates is None or isinstance(spec.candidates, str)
        require(
            not typed or (named and spec.one_hot is None),
            "Expected candidates='near', 'target' or 'far', and no `one_hot`, for a typed graph",
            got="pairs without a type" if not named else "columns without a type",
        )
        domain = _domains(targets, spec.one_hot) if change else None
        far = spec.candidates == "far"
        require(
            not far or targets.graph is not None, "Expected nodes of one graph for candidates='far'", got="whole graphs"
        )
        return Editing(
            "add" in spec.edits,
            domain,
            spec.candidates,
            spec.added_attributes,
            spec.groups,
            _everywhere(targets) if far else None,
            not far,
            commonest_of(targets.graph) if "add" in spec.edits and targets.graph is not None else {},
        )

    def wider(self, targets: Targets) -> Editing | None:
        """The same with nodes all over the graph to join the target to, None where candidates are given."""
        if not self.add or self.candidates is not None or targets.graph is None:
            return None
        return replace(self, far=_everywhere(targets))

    def prepared(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        """An instance with its candidates; `near` is its receptive field, `around` what can be seen from some nodes.

        An added edge brings nodes nearer: what lies around its ends counts as far as the model looks from there.
        """
        near = grouped(near, self.groups)
        made = self._with_edges(near, around) if self.add else near
        return made if self.domain is None else replace(made, changes=changes_of(made, self.domain))

    def _with_edges(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        given = None if isinstance(self.candidates, str) else pairs_by_key(self.candidates, near.key)
        inside = self.near and given is None
        if self.far is not None:
            own = near.node_ids[list(near.targets)]
            given = torch.cartesian_prod(own, torch.cat([near.node_ids, self.far])).reshape(-1, 2)
        base, role = near, torch.zeros(near.edge_index.size(1), dtype=torch.long)
        if near.targets:
            ends = near.node_ids if given is None else torch.cat([near.node_ids, given.flatten()])
            base = grouped(around(torch.unique(ends)), self.groups)
            role = _roles(near, base)
        if base.types is not None:
            far = torch.zeros(0, dtype=torch.long) if self.far is None else self.far
            here, there = _local_nodes(near.node_ids if inside else far[:0], base), _local_nodes(far, base)
            at_target = self.candidates == "target"
            return with_typed_edges(base, role, here, there, self.attributes, self.common, target=at_target)
        parts = [_absent_pairs(base, near, self.candidates)] if inside else []
        pairs = _new(torch.cat([*parts, *([] if given is None else [_local(given, base)])]), base)
        columns = pairs.t() if base.directed else torch.cat([pairs, pairs.flip(1)]).t()
        return replace(
            base,
            edge_index=torch.cat([base.edge_index, columns], 1),
            role=torch.cat([role, torch.full((columns.size(1),), Role.CANDIDATE)]),
            extras=extended(base.extras, columns.size(1), self.attributes, self.common),
            groups=None if base.groups is None else torch.cat([base.groups, torch.full((columns.size(1),), -1)]),
        )


def _domains(targets: Targets, one_hot: tuple[tuple[int, ...], ...] | None) -> tuple[Domain, ...]:
    """What values the features of each node type take; without types, of all nodes."""
    if targets.schema is None:
        return (Domain.of(targets.features(), one_hot),)
    some = range(0, len(targets), max(1, len(targets) // SAMPLE))
    graphs = [targets.instance(key) for key in some] if targets.graph is None else [targets.graph.whole(0)]
    x, kind = (torch.cat(part) for part in zip(*((graph.x, graph.extras["node_type"][1]) for graph in graphs)))
    parts = ((x[kind == place], width or 0) for place, width in enumerate(targets.schema.widths))
    return tuple(Domain.of(rows[:, :width]) if width and len(rows) else Domain() for rows, width in parts)


def _local_nodes(given: Tensor, base: Instance) -> Tensor:
    """The places in an instance of nodes in the user's ids, those that are in it."""
    return torch.from_numpy(np.flatnonzero(np.isin(base.node_ids.numpy(), given.numpy())))


def _everywhere(targets: Targets) -> Tensor:
    """Nodes spread over the one graph of the targets."""
    assert targets.graph is not None
    nodes = targets.graph.num_nodes
    return torch.linspace(0, nodes - 1, min(nodes, FAR)).long()


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
    high = int(instance.node_ids.max()) + 1
    low, top = instance.node_ids[instance.edge_index].sort(0).values
    found = torch.full_like(low, -1)
    for number, (_, pairs) in enumerate(groups):
        ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).sort(1).values
        ends = ends[ends[:, 1] < high]
        found[torch.isin(low * high + top, ends[:, 0] * high + ends[:, 1])] = number
    return replace(instance, groups=found)


def _roles(near: Instance, base: Instance) -> Tensor:
    """THERE for the edges of the receptive field, BEYOND for those that only an added edge can bring into it.

    What is one unit goes together: the reverse of an edge is THERE with it, though it alone might be out of sight, and
    so are the mirror image of a typed edge and the further edges of a group.
    """
    high = int(base.node_ids.max()) + 1
    inside = torch.isin(_of_unit(base, high), _of_unit(near, high))
    if base.groups is not None and near.groups is not None:
        inside |= (base.groups >= 0) & torch.isin(base.groups, near.groups)
    return torch.where(inside, Role.THERE, Role.BEYOND)


def _of_unit(instance: Instance, high: int) -> Tensor:
    """A number for every edge column: the same for those that are one edge to an edit."""
    if instance.ties is not None:
        return instance.ties
    ends = instance.node_ids[instance.edge_index]
    ends = ends if instance.directed else ends.sort(0).values
    return ends[0] * high + ends[1]


def _local(given: Tensor, base: Instance) -> Tensor:
    """Pairs in the user's ids as pairs of local ids; those with an end outside of the instance cannot matter."""
    place = torch.searchsorted(base.node_ids, given).clamp(max=len(base.node_ids) - 1)
    known = (base.node_ids[place] == given).all(1)
    return place[known]


def _absent_pairs(base: Instance, near: Instance, candidates: Any) -> Tensor:
    """Pairs of nodes of the receptive field, in local ids; only those at the target where there are very many."""
    inside = torch.from_numpy(np.flatnonzero(np.isin(base.node_ids.numpy(), near.node_ids.numpy())))
    many = len(inside) * (len(inside) - 1) // 2 > ALL_PAIRS
    if base.targets and (candidates == "target" or many):
        ends = torch.tensor(base.targets)
        pairs = torch.cartesian_prod(ends, inside).reshape(-1, 2)
    else:
        one, other = torch.triu_indices(len(inside), len(inside), 1)
        step = 1 if base.targets else max(1, -(-len(one) // ALL_PAIRS))  # of a huge graph, every so many-th pair
        pairs = torch.stack([inside[one[::step]], inside[other[::step]]], 1)
    return torch.cat([pairs, pairs.flip(1)]) if base.directed else pairs


def _new(pairs: Tensor, base: Instance) -> Tensor:
    """The pairs that are no edges yet, no loops, and each one once."""
    nodes = len(base.node_ids)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not base.directed:
        pairs = pairs.sort(1).values
    code = torch.unique(pairs[:, 0] * nodes + pairs[:, 1])
    tail, head = base.edge_index if base.directed else base.edge_index.sort(0).values
    code = code[~torch.isin(code, tail * nodes + head)]
    return torch.stack([code // max(nodes, 1), code % max(nodes, 1)], 1)


def extended(extras: Extras, count: int, given: Mapping[str, Any], common: Mapping[str, Tensor]) -> Extras:
    """What edges have beside their ends, also for those that may be added: what is given, or else the commonest."""
    found: Extras = {}
    for name, (kind, value) in extras.items():
        if kind == "edge":
            row = common[name] if name in common else commonest(value)
            if name in given:
                row = torch.as_tensor(given[name], dtype=value.dtype)
            require(
                row.shape == value.shape[1:],
                f"Expected `added_attributes` to give `{name}` of one edge, of shape {tuple(value.shape[1:])}",
                got=f"shape {tuple(row.shape)}",
            )
            value = torch.cat([value, row.expand(count, *value.shape[1:])])
        found[name] = (kind, value)
    return found


def edited(instance: Instance, table: InstanceUnits, chosen: Tensor) -> Data:
    """The instance's graph after the edits of the chosen units [u, bool]; `node_ids` are the user's."""
    there = ~chosen if table.absent is None else ~chosen ^ table.absent
    columns, entries = (_present(governed, there) for governed in (table.edges, table.features))
    x = instance.x.clone()
    gone = table.entries[~entries] if len(table.entries) else table.entries
    x[gone[:, 0], gone[:, 1]] = 0
    if table.changes is not None:
        made = there[table.changes.unit]
        place, value = table.changes.place[made], table.changes.value[made]
        x[place[:, 0], place[:, 1]] = value.to(x.dtype)
    extras = {n: value[columns] if kind == "edge" else value for n, (kind, value) in instance.extras.items()}
    extras = {name: value for name, value in extras.items() if name != "node_ids"}
    return Data(x=x, edge_index=instance.edge_index[:, columns], node_ids=instance.node_ids, **extras)


def _present(governed: tuple[Tensor, Tensor], there: Tensor) -> Tensor:
    first, (element, unit) = governed
    if not len(there):
        return torch.ones(len(first), dtype=torch.bool)
    present = torch.where(first < 0, True, there[first.clamp(min=0)])
    present[element[~there[unit]]] = False
    return present


def with_some(instance: Instance, added: Tensor, changed: Tensor | None) -> Instance:
    """The instance with some of its candidates: edges as columns [e, bool] to keep, changes [u, bool]."""
    assert instance.role is not None or bool(added.all())
    return replace(
        instance,
        edge_index=instance.edge_index[:, added],
        role=None if instance.role is None else instance.role[added],
        ties=None if instance.ties is None else instance.ties[added],
        extras={n: (kind, value[added] if kind == "edge" else value) for n, (kind, value) in instance.extras.items()},
        groups=None if instance.groups is None else instance.groups[added],
        changes=None if instance.changes is None or changed is None else chosen_changes(instance.changes, changed),
    )
