"""What trials have given so far, found again by what was tried."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST = 1 << 12  # slots of a new table
ROOM = 4  # at least so many slots per key, so that a free one is found in a few steps
MOST = 1 << 22  # and of the largest one; a table that would outgrow it forgets what it knows
MIXERS = (-7046029254386353131, -4417276706812531889)  # odd, with bits everywhere


class Sums:
    """Keys from sums of random whole numbers, one per thing: small enough that a sum of floats is exact."""

    def __init__(self, count: int, salt: int, device: torch.device) -> None:
        bits = 52 - max(count, 1).bit_length()
        draw = torch.Generator().manual_seed(salt)
        self.numbers = torch.randint(1, 2**bits, (count, 4), generator=draw).double().to(device)

    def of_sets(self, sets: Tensor) -> Tensor:
        """The sums of sets [R, count], bool -> [R, 4]."""
        return sets.double() @ self.numbers

    def of_lists(self, owner: Tensor, things: Tensor, owners: int) -> Tensor:
        """The sums of what each of the `owners` has: pairs of an owner and a thing -> [owners, 4]."""
        picked = self.numbers[things]
        return torch.stack([torch.bincount(owner, picked[:, place], owners) for place in range(4)], 1)


def keys_of(sums: Tensor, rows: Tensor) -> Tensor:
    """Sums [R, 4] of instances `rows` -> keys [2, R]."""
    whole = sums.long()
    return torch.stack(
        [
            (whole[:, 0] * MIXERS[0] + whole[:, 1]) * MIXERS[1] + rows,
            (whole[:, 2] * MIXERS[1] + whole[:, 3]) * MIXERS[0] - rows,
        ]
    )


class Table:
    """Whether sets pass a test and by how much, by key: an open hash table whose work is all in tensors."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._allocate(FIRST)

    def _allocate(self, slots: int) -> None:
        self.used = 0
        self.claimant = torch.full((slots,), -1, device=self.device)  # the row that last wanted a slot; -1: empty
        self.keys = torch.zeros((2, slots), dtype=torch.long, device=self.device)
        self.passed = torch.zeros(slots, dtype=torch.bool, device=self.device)
        self.slack = torch.zeros(slots, dtype=torch.float32, device=self.device)

    def claim(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each key [2, R], and which rows are new: one for every key that has no value yet.

        Slots hold until the next claim. Whoever claims a new one must `keep` its value.
        """
        if ROOM * (self.used + keys.size(1)) > len(self.claimant):
            self._grow(keys.size(1))
        return self._place(keys)

    def _grow(self, more: int) -> None:
        slots = 2 << (ROOM * (self.used + more)).bit_length()
        known = (self.claimant >= 0).nonzero().flatten()
        if slots > MOST:
            known, slots = known[:0], max(FIRST, 1 << (ROOM * more).bit_length())
        keys, passed, slack = self.keys[:, known], self.passed[known], self.slack[known]
        self._allocate(slots)
        self.keep(self._place(keys)[0], passed, slack)

    def _place(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        last = len(self.claimant) - 1
        slot = (keys[0] ^ (keys[0] >> 32)) & last
        step = (keys[1] ^ (keys[1] >> 32)) | 1  # odd, so that every slot is met
        fresh = torch.zeros_like(slot, dtype=torch.bool)
        left = torch.arange(len(slot), device=self.device)
        while len(left):
            at = slot[left]
            empty = self.claimant[at] < 0
            mine, place = left[empty], at[empty]
            self.claimant[place] = mine
            winner = self.claimant[place] == mine  # of rows that want one slot, one gets it
            mine, place = mine[winner], place[winner]
            self.keys[:, place] = keys[:, mine]
            fresh[mine] = True
            self.used += len(mine)
            left = left[(self.keys[:, at] != keys[:, left]).any(0)]
            slot[left] = (slot[left] + step[left]) & last
        return slot, fresh

    def keep(self, slot: Tensor, passed: Tensor, slack: Tensor) -> None:
        """Write values into slots that were claimed."""
        self.passed[slot], self.slack[slot] = passed, slack

    def read(self, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Whether it passes, and by how much."""
        return self.passed[slot], self.slack[slot]
