"""Is the model a function of the graph alone? Asked once, before anything is believed of it.

A verdict is a run of the model on another graph. It means nothing if the model gives another output for the same
graph (dropout, noise, a memory of earlier calls). If it depends on what else is packed beside it (statistics or a
softmax over everything in the batch), each graph must be run by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from cf2.core import outputs
from cf2.core.packing import Pack
from cf2.errors import CF2Error

log = logging.getLogger("cf2")

Run = Callable[[Pack, Tensor], Tensor]  # the model's rows on graphs in which only some units are there
MOST = 3  # instances that are compared, alone and together
ALONE = (
    "The model's output for a graph depends on what else is in the batch, so each graph is run by itself, nodes and "
    "pairs on the whole graph. That is slow. If it should not depend on it: give BatchNorm its running statistics, "
    "and pass `batch` to every pooling and norm."
)


def check_repeats(rows: Tensor, again: Tensor, precision: float) -> None:
    """Refuse a model whose rows for the same graphs are others the second time."""
    off = outputs.differ(rows.double(), again.double(), precision).nonzero().flatten()
    if not len(off):
        return
    gap = float((rows - again).abs().max())
    raise CF2Error(
        "Expected a model that gives the same output for the same graph",
        got=f"two runs in evaluation mode that differ by {gap:.2g}",
        do="Is dropout left on (F.dropout without training=self.training), noise added, or something kept between "
        "calls? Switch it off in evaluation mode.",
    )


def depends_on_others(pack: Pack, run: Run, precision: float) -> bool:
    """Whether the model's output for a graph depends on the graphs beside it in the batch; if so, that is logged.

    Some instances, as they are, with half of their units and with none, run side by side and one at a time.
    """
    some = torch.linspace(0, pack.num_instances - 1, min(MOST, pack.num_instances)).long().to(pack.node_ptr.device)
    many = some.repeat(3)
    packed = pack.take(many)
    states = _states(packed)
    together = run(packed, states)
    alone = [run(one, own) for one, own in zip(packed.singles(), packed.split(states))]
    found = bool(outputs.differ(together.double(), torch.cat(alone).double(), precision).any())
    if found:
        log.warning("%s", ALONE)
    return found


def _states(packed: Pack) -> Tensor:
    """Every unit in the first third of the instances, every other one in the second, none in the last."""
    units = packed.units
    third = packed.num_instances // 3
    place = torch.arange(units.count, device=units.ptr.device) - units.ptr[:-1][units.owner]
    half = ((place + 1) * 0.6180339887498949) % 1.0 < 0.5
    return torch.where(units.owner < third, True, torch.where(units.owner < 2 * third, half, False))


class Unchanged:
    """Watches tensors over a call: refuses a model that changes its inputs in place.

    torch counts the changes of a tensor, but not those through `.data` or NumPy. With `compare`, the values are
    compared as well, and put back if they are others.
    """

    def __init__(self, named: dict[str, Tensor], *, compare: bool) -> None:
        self.named = [
            (name, value, None if value.is_inference() else value._version, value.detach().clone() if compare else None)
            for name, value in named.items()
        ]

    def check(self) -> None:
        """Compare with what was there when this was made."""
        for name, value, version, before in self.named:
            same = version is None or value._version == version
            if before is not None and not torch.equal(value, before):
                value.data.copy_(before)
                same = False
            if not same:
                raise CF2Error(
                    "Expected the model to leave its input as it is",
                    got=f"a forward that changes `{name}` in place",
                    do=f"Work on a copy: {name} = {name}.clone() at the start of forward.",
                )
