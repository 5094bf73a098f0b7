"""What may be added to a graph, or changed of its features: the candidates of a counterfactual.

An edge that may be added is a column of the instance with the role CANDIDATE; a feature that may change is listed in
`Instance.changes`. Neither is in the graph until a set of units that holds it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.changes import Domain, changes_of, chosen_changes
from cf2.core.graph import Extras, Instance, Role
from cf2.core.targets import Targets
from cf2.core.units import InstanceUnits
from cf2.errors import require
from cf2.spec import Key, Spec

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
    domain: Domain | None = None  # None: features do not change
    candidates: Any = None  # pairs that may be added, as the Spec has them
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of added edges, by name; else the commonest
    groups: Any = None  # edges that are one unit, as the Spec has them
    far: Tensor | None = None  # nodes all over the graph that the target may be joined to

    @staticmethod
    def of(spec: Spec, targets: Targets) -> Editing | None:
        """What a request may edit, None where it only removes units by themselves."""
        change = "change" in spec.edits
        if not change and "add" not in spec.edits and spec.groups is None:
            return None
        typed = targets.schema is not None
        require(
            not typed or spec.edits == ("remove",),
            "Expected edits='remove' for a typed graph",
            got=", ".join(spec.edits),
            do="Which types an added edge may have, and a feature may change to, is not known yet.",
        )
        domain = Domain.of(targets.features(), spec.one_hot) if change else None
        far = None
        if spec.candidates == "far":
            require(targets.graph is not None, "Expected nodes of one graph for candidates='far'", got="whole graphs")
            nodes = targets.features().size(0)
            far = torch.linspace(0, nodes - 1, min(nodes, FAR)).long()
        return Editing("add" in spec.edits, domain, spec.candidates, spec.added_attributes, spec.groups, far)

    def prepared(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        """An instance with its candidates; `near` is its receptive field, `around` what can be seen from some nodes.

        An added edge brings nodes nearer: what lies around its ends counts as far as the model looks from there.
        """
        near = grouped(near, self.groups)
        made = self._with_edges(near, around) if self.add else near
        return made if self.domain is None else replace(made, changes=changes_of(made, self.domain))

    def _with_edges(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        given = None if isinstance(self.candidates, str) else pairs_by_key(self.candidates, near.key)
        if self.far is not None:
            own = near.node_ids[list(near.targets)]
            given = torch.cartesian_prod(own, torch.cat([near.node_ids, self.far])).reshape(-1, 2)
        base, role = near, torch.zeros(near.edge_index.size(1), dtype=torch.long)
        if near.targets:
            ends = near.node_ids if given is None else torch.cat([near.node_ids, given.flatten()])
            base = grouped(around(torch.unique(ends)), self.groups)
            role = _roles(near, base)
        pairs = _new(_absent_pairs(base, near, self.candidates) if given is None else _local(given, base), base)
        columns = pairs.t() if base.directed else torch.cat([pairs, pairs.flip(1)]).t()
        return replace(
            base,
            edge_index=torch.cat([base.edge_index, columns], 1),
            role=torch.cat([role, torch.full((columns.size(1),), Role.CANDIDATE)]),
            extras=extended(base.extras, columns.size(1), self.attributes),
            groups=None if base.groups is None else torch.cat([base.groups, torch.full((columns.size(1),), -1)]),
        )


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
    """THERE for the edges of the receptive field, BEYOND for those that only an added edge can bring into it."""
    high = int(base.node_ids.max()) + 1
    codes = [np.asarray(i.node_ids[i.edge_index[0]] * high + i.node_ids[i.edge_index[1]]) for i in (near, base)]
    inside = torch.from_numpy(np.isin(codes[1], codes[0]))
    return torch.where(inside, Role.THERE, Role.BEYOND)


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


def commonest(rows: Tensor) -> Tensor:
    """The row that occurs most often, the smallest of equals; zeros where there is none.

    >>> commonest(torch.tensor([[1, 0], [0, 1], [1, 0]]))
    tensor([1, 0])
    """
    if not len(rows):
        return rows.new_zeros(rows.shape[1:])
    values, counts = torch.unique(rows, dim=0, return_counts=True)
    row: Tensor = values[int(counts.argmax())]
    return row


def extended(extras: Extras, count: int, given: Mapping[str, Any]) -> Extras:
    """What edges have beside their ends, also for those that may be added."""
    found: Extras = {}
    for name, (kind, value) in extras.items():
        if kind == "edge":
            row = commonest(value) if name not in given else torch.as_tensor(given[name], dtype=value.dtype)
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
