"""Instances that are too large: refused, or reduced to the units that matter most by gradient.

A reduction limits what may be *chosen*. Everything is still removed where everything is to be removed, so the
verdicts are those of the whole computation graph.
"""

from __future__ import annotations

from dataclasses import replace

from cf2.errors import require_number, unknown_name
from cf2.explanation import Explanation
from cf2.instances import Instance
from cf2.methods.gradient import sum_of_gradients
from cf2.methods.method import Chunk, rank_within

REDUCTIONS = ("gradient",)
PLACES = [0.5, 1.0]  # soft masks at which the gradient is taken: half-way down, and the graph as it is
REFUSAL = (
    "{units:,} units to choose from are more than max_units = {budget:,}. "
    'Raise it, or pass reduce="gradient" to choose among those that matter most.'
)
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


def count_units(instance: Instance, *, edges: bool, features: bool) -> int:
    """How many units an instance has to choose from."""
    return (instance.num_edge_units if edges else 0) + (len(instance.feature_entries()) if features else 0)


def refused(e: Explanation, max_units: int) -> Explanation:
    """An explanation in which nothing was chosen because there was too much to choose from; it holds no units."""
    nothing = {name: getattr(e, name)[:0] for name in ("unit_edges", "unit_features", "scores", "selected")}
    note = REFUSAL.format(units=e.num_units, budget=max_units)
    return replace(e, **nothing, status="refused", note=note)


def reduced(chunk: Chunk, max_units: int) -> Chunk:
    """The chunk with every instance over the budget limited to choosing its `max_units` steepest units."""
    if int(chunk.pack.units.max()) <= max_units:
        return chunk
    steep = sum_of_gradients(chunk, PLACES).abs()
    return replace(chunk, pack=replace(chunk.pack, open=rank_within(steep, chunk.pack) < max_units))


def note(units: int, max_units: int) -> str:
    """What an explanation says about its reduction."""
    return NOTE.format(chosen=max_units, units=units)
