"""What people pass as a model, as the module that computes: without wrappers, and with weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from cf2.errors import CF2Error, require

_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel, AveragedModel)


def module_of(model: Any) -> torch.nn.Module:
    """The module inside of what `torch.compile`, DataParallel or AveragedModel made; an error if none can be run.

    >>> from torch_geometric.nn import GCN
    >>> net = GCN(3, 8, 2, 2)
    >>> module_of(torch.nn.DataParallel(net)) is net
    True
    """
    if isinstance(model, type):
        raise CF2Error(
            "Expected `model` to be a torch.nn.Module",
            got=f"the class {model.__name__} itself",
            do=f"Make an instance of it: {model.__name__}(…).",
        )
    while (inner := _inside(model)) is not None:
        model = inner
    require(
        isinstance(model, torch.nn.Module),
        "Expected `model` to be a torch.nn.Module",
        got=_article(model),
        do="The model comes first, then the data." if hasattr(model, "edge_index") else "",
    )
    require(
        not isinstance(model, torch.jit.ScriptModule),
        "Expected `model` to be a module in Python, whose layers can be masked",
        got="one that torch.jit traced or scripted",
        do="Pass the module that it was made from.",
    )
    _check_weights(model)
    return model  # type: ignore[no-any-return]


def _inside(model: Any) -> Any:
    """The module that a wrapper calls, None if `model` is no wrapper."""
    if isinstance(model, _WRAPPERS):
        return model.module
    compiled = type(model).__name__ == "OptimizedModule"  # the class itself is in a module that takes seconds to import
    return getattr(model, "_orig_mod", None) if compiled else None


def _check_weights(model: torch.nn.Module) -> None:
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        require(
            not is_lazy(value),
            "Expected a model whose layers know their sizes",
            got=f"`{name}`, which is made at the first call",
            do="Run the model once on your data, model(x, edge_index), before it is explained.",
        )
        require(
            not value.is_meta,
            "Expected a model with weights",
            got=f"`{name}` on the meta device, where tensors have no values",
            do='Make the model on the CPU, or call to_empty(device="cpu") and load its weights.',
        )


def _article(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
