"""Instances that are too large: refused, or reduced to the units that matter most by gradient.

A reduction limits what may be *chosen*. Everything is still removed where everything is to be removed, so the
verdicts are those of the whole computation graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cf2.errors import CF2Error, require_number, unknown_name
from cf2.instances import Instance
from cf2.methods.gradient import sum_of_gradients
from cf2.methods.method import Chunk, rank_within

REDUCTIONS = ("gradient",)
PLACES = [0.5, 1.0]  # soft masks at which the gradient is taken: half-way down, and the graph as it is
NOTE = (
    "Only the {chosen:,} of {units:,} units that matter most by gradient could be chosen; "
    "the verdicts are those of the whole computation graph."
)


def check_budget(max_units: int | None, reduce: str | None) -> None:
    """Refuse a budget that is no whole number, and a reduction that does not exist."""
    if max_units is not None:
        require_number("max_units", max_units, 1, integer=True)
    if reduce is not None and reduce not in REDUCTIONS:
        raise unknown_name("`reduce`", reduce, REDUCTIONS)


def refuse(instances: Sequence[Instance], max_units: int, *, edges: bool, features: bool) -> None:
    """Raise an error that names the first instance with more units than the budget."""
    for instance in instances:
        units = instance.num_edge_units if edges else 0
        units += len(instance.feature_entries()) if features else 0
        if units > max_units:
            what = "graph" if instance.target < 0 else "node"
            raise CF2Error(
                f"Expected {what} {instance.key} to have at most {max_units:,} units to choose from",
                got=f"{units:,}",
                do='Raise `max_units`, or pass reduce="gradient" to choose among those that matter most.',
            )


def reduced(chunk: Chunk, max_units: int) -> Chunk:
    """The chunk with every instance over the budget limited to choosing its `max_units` steepest units."""
    if int(chunk.pack.units.max()) <= max_units:
        return chunk
    steep = sum_of_gradients(chunk, PLACES).abs()
    return replace(chunk, pack=replace(chunk.pack, open=rank_within(steep, chunk.pack) < max_units))


def note(units: int, max_units: int) -> str:
    """What an explanation says about its reduction."""
    return NOTE.format(chosen=max_units, units=units)
