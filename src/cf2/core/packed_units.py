"""The units of many instances side by side: what each governs, which may be chosen, and what a choice leaves there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


class Governors(NamedTuple):
    """Which units govern the elements of one sort: the first unit of each (-1: none), and further pairs."""

    first: Tensor  # [elements]
    further: Tensor  # [2, ·], pairs of an element and a unit
    ptr: Tensor  # [B + 1], the further pairs of each instance
    some: bool  # whether any element has a unit, and
    every: bool  # whether all have; known once for all that is taken from a pack

    def present(self, states: Tensor) -> Tensor | None:
        """Which elements are there, given which units are [units]: bool, or soft in [0, 1]; None: all of them."""
        return self.reader()(states)

    def reader(self) -> Callable[[Tensor], Tensor | None]:
        """`present` as a function that does only once what does not depend on the states."""
        if not self.some:
            return lambda states: None
        place = self.first if self.every else self.first.clamp(min=0)
        governed = None if self.every else self.first >= 0
        element, unit = self.further

        def read(states: Tensor) -> Tensor | None:
            if not len(states):  # taken from a pack in which others have units
                return None
            hard = states.dtype == torch.bool
            there = states[place]
            if governed is not None:
                there = torch.where(governed, there, True if hard else 1.0)
            if not len(element):
                return there
            if hard:
                return there.index_put((element[~states[unit]],), there.new_tensor(False))
            return there.scatter_reduce(0, element, states[unit], "prod")

        return read

    def to(self, device: torch.device | str) -> Governors:
        """The same on a device."""
        tensors = {name: getattr(self, name).to(device) for name in ("first", "further", "ptr")}
        return self._replace(**tensors)

    def take(
        self, places: Tensor, owner: Tensor, shift: Tensor, further: tuple[Tensor, Tensor], moved: Tensor
    ) -> Governors:
        """The governors of elements `places` of instances `owner`; units move by `shift`, elements by `moved`.

        `further` are the rows of the pairs to take, and their new pointer.
        """
        first = self.first[places]
        if self.some:
            new = first + shift[owner]
            first = new if self.every else torch.where(first < 0, first, new)
        rows, ptr = further
        pairs = self.further
        if len(pairs[0]):
            mine = _owners(ptr)
            pairs = pairs[:, rows] + torch.stack([moved[mine], shift[mine]])
        return Governors(first, pairs, ptr, self.some, self.every)


def _owners(ptr: Tensor) -> Tensor:
    return torch.repeat_interleave(ptr.diff())


class NewValues(NamedTuple):
    """New values of feature entries x[row, column], each there once its unit is; those of instance b are in ptr."""

    row: Tensor  # [c]
    column: Tensor  # [c]
    value: Tensor  # [c]
    unit: Tensor  # [c]
    ptr: Tensor  # [B + 1]

    def apply(self, x: Tensor, there: Tensor) -> Tensor:
        """Features [N, d] with the new values of units that are there [units]: bool, or soft in [0, 1]."""
        chosen = there[self.unit]
        if there.dtype == torch.bool:
            return x.index_put((self.row[chosen], self.column[chosen]), self.value[chosen].to(x.dtype))
        gain = chosen.to(x.dtype) * (self.value.to(x.dtype) - x[self.row, self.column])
        return x.index_put((self.row, self.column), gain, accumulate=True)

    def to(self, device: torch.device | str) -> NewValues:
        """The same on a device."""
        return NewValues(*(part.to(device) for part in self))


FLAGS = ("selectable", "required", "fixed", "left_out", "absent", "price")


@dataclass(frozen=True, eq=False)
class Units:
    """The units of all instances of a pack; those of instance b are `ptr[b]` to `ptr[b + 1]`.

    Flags are None where they hold for no unit (`selectable`: for all). A unit that is not `selectable` is never
    chosen; a `required` one always is; one that is `fixed` is left alone: the graph has it as it was under every
    intervention. One that is `left_out` could be chosen and is not looked at, so nothing is proved of its instance.
    What an `absent` unit governs is not in the graph at first, and is once the unit is edited.
    """

    ptr: Tensor  # [B + 1]
    edges: Governors
    entries: Governors
    changes: NewValues | None = None
    selectable: Tensor | None = None  # [units] bool
    required: Tensor | None = None  # [units] bool
    fixed: Tensor | None = None  # [units] bool
    left_out: Tensor | None = None  # [units] bool
    absent: Tensor | None = None  # [units] bool
    price: Tensor | None = None  # [units], what each unit adds to the size of a set; None: 1
    narrowed: Tensor | None = None  # [B] bool, instances of which some units are not even listed

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.ptr[-1])

    @property
    def counts(self) -> Tensor:
        """How many units each instance has, [B]."""
        return self.ptr.diff()

    @property
    def owner(self) -> Tensor:
        """The instance of every unit."""
        return _owners(self.ptr)

    def admissible(self, chosen: Tensor) -> Tensor:
        """A choice [units, bool] with what must not be chosen left out, and what must be put in."""
        for forbidden in self._forbidden():
            chosen = chosen & ~forbidden
        return chosen if self.required is None else chosen | self.required

    def admissible_mask(self, mask: Tensor) -> Tensor:
        """The same for soft masks in [0, 1]; a unit without a choice gets no gradient."""
        for forbidden in self._forbidden():
            mask = torch.where(forbidden, 0.0, mask)
        return mask if self.required is None else torch.where(self.required, 1.0, mask)

    def flagged(self, flags: Mapping[str, Tensor]) -> Units:
        """The same units with further flags, by their names."""
        return replace(self, **flags)  # type: ignore[arg-type]

    def _forbidden(self) -> list[Tensor]:
        flags = (None if self.selectable is None else ~self.selectable, self.fixed, self.left_out)
        return [flag for flag in flags if flag is not None]

    def there(self, states: Tensor) -> Tensor:
        """What of each unit is in the graph [units], bool or soft, given which ones are as they were at first.

        A unit that is left alone is as it was; an absent one is there if it is not.
        """
        if self.fixed is not None:
            states = torch.where(self.fixed, torch.ones_like(states), states)
        if self.absent is None:
            return states
        return states ^ self.absent if states.dtype == torch.bool else torch.where(self.absent, 1 - states, states)

    def kept(self, states: Tensor) -> Tensor:
        """States [units] in which nothing is added or changed, whatever is chosen."""
        return states if self.absent is None else torch.where(self.absent, torch.ones_like(states), states)

    def to(self, device: torch.device | str) -> Units:
        """The same on a device."""
        flags = {name: getattr(self, name) for name in FLAGS}
        return replace(
            self,
            ptr=self.ptr.to(device),
            edges=self.edges.to(device),
            entries=self.entries.to(device),
            changes=None if self.changes is None else self.changes.to(device),
            narrowed=None if self.narrowed is None else self.narrowed.to(device),
            **{name: value.to(device) for name, value in flags.items() if value is not None},
        )
