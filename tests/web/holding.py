"""A model that holds whoever explains again, so that a test can look at the page meanwhile."""

from __future__ import annotations

import threading

from torch import Tensor

from report.explained_toys import RedNeighbours
from web.browser import PATIENCE


class Holding(RedNeighbours):
    """Red neighbours; whoever explains again is held until it is let go, and those who only ask are not."""

    held, let_go = threading.Event(), threading.Event()
    runs = 0  # by those who explain again

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if threading.current_thread().name.startswith("cf2-again"):
            Holding.runs += 1
            Holding.held.set()
            assert Holding.let_go.wait(PATIENCE)
        return super().forward(x, edge_index, edge_weight)
