"""The methods by name. A new method is one file here, one line in `METHODS`, one test."""

from __future__ import annotations

from cf2.errors import unknown_name
from cf2.methods import cf2, cf_gnnexplainer, gem, gnnexplainer, gradient, pgexplainer, random, truth
from cf2.methods.method import Chunk, Method, Ranking

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        cf2.VERIFIED,
        cf2.RELAXED,
        gnnexplainer.METHOD,
        cf_gnnexplainer.METHOD,
        gem.METHOD,
        pgexplainer.METHOD,
        gradient.METHOD,
        random.METHOD,
        truth.METHOD,
    )
}


def get(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in METHODS:
        raise unknown_name("`method`", name, METHODS)
    return METHODS[name]


__all__ = ["METHODS", "Chunk", "Method", "Ranking", "get"]
