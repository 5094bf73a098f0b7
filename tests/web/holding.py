"""A model that holds whoever explains again, so that a test can look at the page meanwhile."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor

from report.explained_toys import RedNeighbours
from web.browser import PATIENCE


class Holding(RedNeighbours):
    """Red neighbours; the copy that searches work on holds them until they are let go; the model itself does not."""

    held, let_go = threading.Event(), threading.Event()
    runs = 0  # of the copy
    is_copy = False

    def __deepcopy__(self, memo: Any) -> Holding:
        copied = Holding()
        copied.is_copy = True
        return copied

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.is_copy:
            Holding.runs += 1
            Holding.held.set()
            assert Holding.let_go.wait(PATIENCE)
        return super().forward(x, edge_index, edge_weight)
