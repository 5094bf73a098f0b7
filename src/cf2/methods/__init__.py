"""Methods: what one is (`contract`), the equations, the optimiser, one file per method, and the registry."""

from cf2.methods.registry import get, names, register

__all__ = ["get", "names", "register"]
