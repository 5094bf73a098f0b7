"""The methods by name. A new method is one file here, one line in `_METHODS`, one test."""

from __future__ import annotations

from cf2.errors import CF2Error, require, unknown_name
from cf2.methods import (
    cf2,
    cf_gnnexplainer,
    gem,
    gisst,
    gnnexplainer,
    gradient,
    graphlime,
    greedy,
    pgexplainer,
    random,
    rcexplainer,
    subgraphx,
    tage,
    truth,
)
from cf2.methods.contract import Method

_METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        cf2.VERIFIED,
        cf2.RELAXED,
        gnnexplainer.METHOD,
        cf_gnnexplainer.METHOD,
        gem.METHOD,
        pgexplainer.METHOD,
        rcexplainer.METHOD,
        tage.METHOD,
        gisst.METHOD,
        subgraphx.METHOD,
        graphlime.METHOD,
        gradient.METHOD,
        greedy.METHOD,
        random.METHOD,
        truth.METHOD,
    )
}


def names() -> list[str]:
    """The names of all methods, in the order in which tables show them."""
    return list(_METHODS)


def get(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in _METHODS:
        raise unknown_name("`method`", name, _METHODS)
    return _METHODS[name]


def draw_seed(name: str, seed: int | None) -> int | None:
    """The seed of a method's own draws: the given one, or 0, for methods that draw or train, none for the others."""
    about = get(name)
    return (seed or 0) if about.draws or about.needs == "training" else None


def register(method: Method) -> Method:
    """Register a method of your own under its name.

    Parameters
    ----------
    method : Method
        What `cf2.methods.contract` describes. Register it when its module is imported, so that worker processes,
        which import the module too, know it as well.

    Returns
    -------
    Method
        The same method.
    """
    require(isinstance(method, Method), "Expected a cf2.methods.contract.Method", got=type(method).__name__)
    if _METHODS.get(method.name, method) != method:
        raise CF2Error("Expected a new name for a method", got=f"{method.name!r}, which is taken")
    _METHODS[method.name] = method
    return method
