"""What features may change to: the values that they take in the data, and every change of a node that can be edited."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cf2.core.graph import Changes, Instance, Role
from cf2.errors import require

MANY_COLUMNS = 256  # of more columns of 0 and 1, only those that occur in the receptive field are candidates
SAMPLE = 50_000  # rows of features by which it is found out what values they take
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
        x = x[:: max(1, len(x) // SAMPLE)]
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
