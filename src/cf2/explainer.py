"""`cf2.Explainer`: a model and its data, for many questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data, HeteroData

from cf2.api import explain
from cf2.core.adapter import Call
from cf2.results.explanations import Explanations
from cf2.runs.planning import Kept
from cf2.runs.session import Progress
from cf2.spec import Edit, Key, Level, Masking, Output, Question, Reduce, Reverse, Valid

if TYPE_CHECKING:
    from torch import Tensor


class Explainer:
    """A model and its data, for more than one question: what `cf2.explain` finds out about them is kept between calls.

    The graph is checked and indexed once, and the model is measured once: how far it looks, and what it says of the
    whole graph. Where the weights of the model or the tensors of a graph have changed since, that is done again.

    Parameters
    ----------
    model, data
        As in `cf2.explain`.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> explainer = cf2.Explainer(GCN(3, 8, 2, 2), data)
    >>> [explainer.explain(nodes=[node])[0].key for node in (1, 2)]
    [1, 2]
    """

    def __init__(self, model: torch.nn.Module, data: Data | HeteroData | Iterable[Data | HeteroData]) -> None:
        self.model, self.data = model, data
        self._kept = Kept(model, data)

    def explain(
        self,
        nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
        *,
        pairs: Iterable[tuple[int, int]] | Tensor | None = None,
        method: str = "cf2",
        units: str | Sequence[str] = ("edges",),
        question: Question = "why",
        target: int | str | Sequence[int | str] | Mapping[Key, int | str] | Tensor | None = None,
        edits: str | Sequence[Edit] = ("remove",),
        candidates: Any = None,
        keep: Any = None,
        forbid: Any = None,
        groups: str | Sequence[int] | Mapping[str, Any] | Tensor | None = None,
        connected: bool = False,
        valid: Valid | Callable[[Data], bool] | None = None,
        alternatives: int = 1,
        robust: int = 0,
        costs: Mapping[Edit, float] | Sequence[tuple[Edit, float]] | str = (),
        one_hot: Sequence[Sequence[int]] | str | None = None,
        added_attributes: Mapping[str, Any] = MappingProxyType({}),
        atoms: Sequence[str] | None = None,
        search: bool = False,
        sizes: int | Mapping[Key, int] | Sequence[Any] | None = None,
        seed: int | None = None,
        output: Output = "auto",
        tolerance: float | None = None,
        level: Level = "auto",
        leave_out_pair: bool = True,
        node_type: str | None = None,
        edge_type: tuple[str, str, str] | None = None,
        reverse: Reverse = "auto",
        directed: bool | None = None,
        masking: Masking = "auto",
        device: str | torch.device | None = None,
        max_units: int | None = None,
        reduce: Reduce | None = None,
        call: Call | None = None,
        trained: Any = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
        node_names: Sequence[Any] | Mapping[Any, Any] | None = None,
        feature_names: Sequence[str] | Mapping[Any, Any] | None = None,
        smiles: str | Sequence[str] | Mapping[int, str] | None = None,
        progress: Progress | bool | None = None,
        verbose: bool = False,
        **settings: Any,
    ) -> Explanations:
        """Explain predictions; the parameters are those of `cf2.explain`.

        Returns
        -------
        Explanations
            One per key, in their order.
        """
        given = dict(locals())
        del given["self"], given["settings"]
        return explain(self.model, self._kept, **given, **settings)
