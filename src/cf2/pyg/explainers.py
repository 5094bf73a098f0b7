"""Algorithms for torch_geometric's `Explainer`: any method by its name, and two by names of their own.

Masks are the chosen sets themselves, 1 inside and 0 outside, so that whatever torch_geometric does with them
is about the set that was tried on the model. Several nodes or graphs are explained in one packed run, each by
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, ModelMode, ModelReturnType

from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.methods.trained import check_needs
from cf2.models.outputs import TOLERANCE_SHARE
from cf2.options import Key, Masking, Output, Spec
from cf2.pyg.arguments import arrange, arrange_types, classes_of, keys_of
from cf2.pyg.masks import (
    Layout,
    VerifiedExplanation,
    VerifiedHeteroExplanation,
    fill,
    fill_types,
    plain_edges,
    units_for,
)
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import GROUP, Request, Session, check_names, complete
from cf2.sets.tests import PredictedClass
from cf2.units.kinds import unit_kinds

_OUTPUTS: dict[ModelReturnType, Output] = {
    ModelReturnType.raw: "logits",
    ModelReturnType.probs: "probabilities",
    ModelReturnType.log_probs: "log_probabilities",
}
OPTIONS = ("soft", "seed", "directed", "masking", "trained", "search", "tolerance", "column", "node_type", "edge_type")
_SAME = 1e-3  # predictions with a smaller margin may differ by the order of summation


class MethodExplainer(ExplainerAlgorithm):  # type: ignore[misc]
    """Any method of cf2, also one of your own, as an algorithm for torch_geometric's `Explainer`.

    Parameters
    ----------
    method : str
        The method by name; `cf2 methods` lists them, `cf2.register` adds one.
    soft : bool
        Put scores into the masks in place of 1 and 0: above 0.5 for what was chosen, below for the rest.
    seed : int, optional
        Draw a random start from this seed; None starts from a fixed sequence.
    directed : bool, optional
        Whether an edge and its reverse are two units; None looks whether every edge has a reverse.
    masking : {"auto", "messages"}
        Where soft masks act: on edge weights if the model takes any (auto), or always on messages.
    trained : optional
        What `cf2.fit` made, for methods that are trained first; for `truth`, the true edges by key.
    search : bool
        Search for a set that passes the tests, from the scores of a method that only ranks.
    tolerance : float, optional
        Of a regression: the same answer is one within ± this; None: a tenth of the range of all outputs of the model,
        or of the output's size where it is the only one.
    column : int, optional
        Of a regression with several columns: the one to explain.
    node_type, edge_type : str, (str, str, str), optional
        Of a heterogeneous graph: the type of the nodes that are explained, where the number of the model's outputs does
        not tell it, or of the pairs.
    **settings
        Settings of the method, and of the search, by name.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer
    >>> from torch_geometric.nn import GCN
    >>> config = dict(mode="multiclass_classification", task_level="node", return_type="raw")
    >>> algorithm = MethodExplainer("gradient", k=2)
    >>> explainer = Explainer(GCN(3, 8, 2, 2), algorithm, "model", config, edge_mask_type="object")
    >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
    >>> explainer(torch.eye(4)[:, :3], ring, index=0).edge_mask.sum()
    tensor(4.)
    """

    def __init__(
        self,
        method: str,
        *,
        soft: bool = False,
        seed: int | None = None,
        directed: bool | None = None,
        masking: Masking = "auto",
        trained: Any = None,
        search: bool = False,
        tolerance: float | None = None,
        column: int | None = None,
        node_type: str | None = None,
        edge_type: tuple[str, str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        require(isinstance(soft, bool), "Expected `soft` to be True or False", got=repr(soft)[:80])
        self.spec = Spec(
            method=method,
            seed=seed,
            directed=directed,
            masking=masking,
            search=search,
            tolerance=tolerance,
            target=column,
            node_type=node_type,
            edge_type=edge_type,
            settings=settings,
        )
        self.method, self.soft = registry.get(method), soft
        self.trained = check_needs(self.method, trained)
        check_names(self.spec, OPTIONS)
        complete(replace(self.spec, units=self.method.units or self.spec.units))  # so that bad values are refused now

    def supports(self) -> bool:
        """Whether the method can do what is asked: explain what the model says, by units that it scores."""
        mode, own = self.model_config.mode, self.explainer_config.explanation_type == ExplanationType.model
        if mode == ModelMode.regression and not own:
            return self._refuse("explains the numbers that a model gives (got `explanation_type=phenomenon`)")
        if self.method.needs != "nothing" and self.trained is None:
            return self._refuse(f"needs {self.method.needs} for method {self.method.name!r} (got `trained=None`)")
        try:
            self.method.check_units(unit_kinds(units_for(self.explainer_config)))
        except CF2Error as error:
            return self._refuse(f"cannot fill these masks. {error}")
        return True

    def _refuse(self, reason: str) -> bool:
        logging.error(f"'{type(self).__name__}' {reason}")
        return False

    def forward(
        self,
        model: torch.nn.Module,
        x: Any,
        edge_index: Any,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> VerifiedExplanation | VerifiedHeteroExplanation:
        """Explain the outputs `index` of the model (all, if None), each on its own."""
        require(
            hasattr(self, "_model_config"),
            "Expected an algorithm that an Explainer uses",
            got="one by itself",
            do=f"Make an Explainer(model, algorithm={type(self).__name__}(…), …) and call that.",
        )
        level, own = self.model_config.task_level.value, self.explainer_config.explanation_type == ExplanationType.model
        numbers = self.model_config.mode == ModelMode.regression
        typed, call = isinstance(x, dict), None
        edge_index = plain_edges(edge_index)
        if typed:
            options: dict[str, Any] = {"level": level, "outputs": len(target), "spec": self.spec}
            bound = model
            targets, call = arrange_types(model, x, edge_index, kwargs, **options)
        else:
            bound, targets = arrange(model, x, edge_index, kwargs, level=level, directed=self.spec.directed)
        keys = keys_of(index, len(targets))
        classes = () if numbers else classes_of(target, keys, len(targets))
        spec = replace(
            self.spec,
            units=units_for(self.explainer_config),
            output="regression" if numbers else _OUTPUTS[self.model_config.return_type],
            target=self.spec.target if numbers else None if own else classes,
            tolerance=_tolerance(target, self.spec) if numbers else None,
        )
        found: list[Explanation] = []
        request = Request(bound, targets, spec, self.trained, call=call)
        with torch.enable_grad(), Session(request) as session:
            for start in range(0, len(keys), GROUP):
                part = session.explain(keys[start : start + GROUP])
                if own and not numbers:
                    _check_own(part, dict(classes))
                found += part
        made = Explanations(tuple(found), request.context())
        if typed:
            return fill_types(VerifiedHeteroExplanation(), x, edge_index, made, Layout(spec.units, 0, self.soft))
        layout = Layout(spec.units, edge_index.size(1), self.soft)
        return fill(VerifiedExplanation(x=x, edge_index=edge_index), made, layout)


def _tolerance(outputs: Tensor, spec: Spec) -> float:
    """Of a regression: as given, or by all outputs of the model [n, columns]."""
    if spec.tolerance is not None:
        return spec.tolerance
    column = spec.target if isinstance(spec.target, int) else 0
    own = outputs.detach().reshape(len(outputs), -1)[:, column] if outputs.numel() else outputs.new_zeros(1)
    return TOLERANCE_SHARE * (float(own.max() - own.min()) or float(own.abs().max()) or 1.0)


def _check_own(found: Sequence[Explanation], classes: Mapping[Key, int]) -> None:
    """Refuse predictions of the whole batch that the model does not give for a node or graph by itself."""
    criterion = PredictedClass(torch.tensor([classes[e.key] for e in found]))
    margin = criterion.margin(torch.from_numpy(np.stack([e.probabilities for e in found])))
    for e, by in zip(found, margin.tolist()):
        if by < -_SAME:
            raise CF2Error(
                f"Expected the model to predict class {classes[e.key]} for {e.task} {e.key} by itself as well",
                got=f"class {e.prediction}",
                do="Is `return_type` right? Does the output of one graph depend on the others in the batch?",
            )


class CF2Explainer(MethodExplainer):
    """CF²: edges and features that are sufficient, necessary and few, verified on really reduced graphs.

    Parameters
    ----------
    relaxed : bool
        The paper's procedure, a threshold without a search.
    soft, seed, directed, masking, tolerance, column, node_type, edge_type
        As in `MethodExplainer`.
    **settings
        Settings of method `cf2` (`epochs`, `alpha`, `lam`, `gamma`, `lr`, `effort`, …), or of `cf2-relaxed`.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer
    >>> from torch_geometric.nn import GCN
    >>> config = dict(mode="multiclass_classification", task_level="node", return_type="raw")
    >>> explainer = Explainer(GCN(3, 8, 2, 2), CF2Explainer(), "model", config, edge_mask_type="object")
    >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
    >>> explainer(torch.eye(4)[:, :3], ring, index=0).edge_mask.shape
    torch.Size([8])
    """

    def __init__(
        self,
        *,
        relaxed: bool = False,
        soft: bool = False,
        seed: int | None = None,
        directed: bool | None = None,
        masking: Masking = "auto",
        tolerance: float | None = None,
        column: int | None = None,
        node_type: str | None = None,
        edge_type: tuple[str, str, str] | None = None,
        **settings: Any,
    ) -> None:
        method = "cf2-relaxed" if relaxed else "cf2"
        super().__init__(
            method,
            soft=soft,
            seed=seed,
            directed=directed,
            masking=masking,
            tolerance=tolerance,
            column=column,
            node_type=node_type,
            edge_type=edge_type,
            **settings,
        )


class CFGNNExplainer(MethodExplainer):
    """CF-GNNExplainer: the smallest removal seen that flips the prediction.

    Parameters
    ----------
    soft, seed, directed, masking, tolerance, column, node_type, edge_type
        As in `MethodExplainer`.
    **settings
        Settings of method `cf-gnnexplainer`: `epochs`, `lr`, `beta`.
    """

    def __init__(
        self,
        *,
        soft: bool = False,
        seed: int | None = None,
        directed: bool | None = None,
        masking: Masking = "auto",
        tolerance: float | None = None,
        column: int | None = None,
        node_type: str | None = None,
        edge_type: tuple[str, str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            "cf-gnnexplainer",
            soft=soft,
            seed=seed,
            directed=directed,
            masking=masking,
            tolerance=tolerance,
            column=column,
            node_type=node_type,
            edge_type=edge_type,
            **settings,
        )
