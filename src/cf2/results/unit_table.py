"""What an explanation could choose from, in the user's own ids."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cf2.errors import require


@dataclass(frozen=True, eq=False)
class UnitTable:
    """What there was to choose from: one row per unit, in the user's own ids.

    Attributes
    ----------
    names : tuple of str
        The kinds of unit that occur, by the names that `units=` has: ``"edges"``, ``"features"``, …
    kind : ndarray of int8, shape [units]
        The place of each unit's kind in `names`.
    ids : ndarray of int64, shape [units, 2]
        An edge is (tail, head), with the smaller id first if edges are undirected; a feature entry is
        (node, column); a node, or all features of one, is (node, -1); a column is (-1, column); a group is
        (number, -1); a change of a feature is (node, column).
    values : ndarray of float64, shape [units, 3] or [0, 3]
        Of what can be changed: the column that a one-hot feature leaves (-1 if it does not), the old and the new value.
    members : ndarray of int64, shape [members, 3]
        Of groups: the row of the group, and the ends of an edge of it.
    types : ndarray of int16, shape [units] or [0]
        Of a typed graph: the place of an edge's type, or of the node type of a column, in `Explanation.types`; else -1.
    """

    names: tuple[str, ...]
    kind: np.ndarray
    ids: np.ndarray
    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    members: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    types: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int16))

    def __post_init__(self) -> None:
        require(
            self.kind.shape == (len(self.ids),) and self.ids.shape == (len(self.ids), 2),
            "Expected a kind and two ids per unit",
            got=f"shapes {self.kind.shape} and {self.ids.shape}",
        )
        typed = len(self.types) in (0, len(self.ids))
        require(typed, "Expected a type per unit, or none", got=f"{len(self.types)} types")
        require(
            self.values.shape in ((len(self.ids), 3), (0, 3)) and self.members.shape == (len(self.members), 3),
            "Expected three values per unit, and three numbers per member of a group",
            got=f"shapes {self.values.shape} and {self.members.shape}",
        )

    def __len__(self) -> int:
        return len(self.kind)

    def where(self, name: str) -> np.ndarray:
        """The rows that hold units of a kind, ascending."""
        return np.flatnonzero(self.kind == self.names.index(name)) if name in self.names else np.zeros(0, np.int64)

    def of(self, name: str) -> np.ndarray:
        """The ids [n, 2] of the units of a kind."""
        rows: np.ndarray = self.ids[self.where(name)]
        return rows

    @staticmethod
    def none() -> UnitTable:
        """A table without a row."""
        return UnitTable((), np.zeros(0, np.int8), np.zeros((0, 2), np.int64))
