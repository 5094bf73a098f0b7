"""Algorithms for torch_geometric's `Explainer`: any method by its name, and two by names of their own.

Masks are the chosen sets themselves, 1 inside and 0 outside, so that whatever torch_geometric does with them
is about the set that was tried on the model. Several nodes or graphs are explained in one packed run, each by
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, ModelMode, ModelReturnType

from cf2.errors import CF2Error, require, shown
from cf2.methods import registry
from cf2.methods.trained import check_needs
from cf2.models.outputs import TOLERANCE_SHARE
from cf2.options import AlgorithmOptions, Key, Output, Spec, meanings, rows_of, with_options
from cf2.pyg.arguments import arrange, classes_of, keys_of
from cf2.pyg.masks import Layout, VerifiedExplanation, VerifiedHeteroExplanation, plain_edges, units_for
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import KEYS_AT_ONCE, Request, Session, check_names, complete
from cf2.sets.tests import PredictedClass
from cf2.units.kinds import unit_kinds

_OUTPUTS: dict[ModelReturnType, Output] = {
    ModelReturnType.raw: "logits",
    ModelReturnType.probs: "probabilities",
    ModelReturnType.log_probs: "log_probabilities",
}
SAME_MARGIN = 1e-3  # predictions with a smaller margin may differ by the order of summation


@with_options(AlgorithmOptions)
class MethodExplainer(ExplainerAlgorithm):  # type: ignore[misc]
    """Any method of cf2, also one of your own, as an algorithm for torch_geometric's `Explainer`.

    The default `tolerance` of a regression is a tenth of the range of all outputs of the model, or of the size of its
    only output. `node_type` is needed where the number of the model's outputs does not tell it.

    Parameters
    ----------
    method : str
        The method by name; `cf2 methods` lists them, `cf2.register` adds one.
    {options}

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

    def __init__(self, method: str, **selected: Unpack[AlgorithmOptions]) -> None:
        super().__init__()
        given: dict[str, Any] = {**selected}
        self.soft = given.pop("soft", False)
        require(isinstance(self.soft, bool), "Expected `soft` to be True or False", got=shown(self.soft, 80))
        options, trained, column = rows_of(AlgorithmOptions), given.pop("trained", None), given.pop("column", None)
        chosen = {name: given.pop(name) for name in meanings() if name in given and name in options}
        self.spec = Spec(method=method, target=column, settings=given, **chosen)
        self.method = registry.get(method)
        self.trained = check_needs(self.method, trained)
        check_names(self.spec, options)
        complete(replace(self.spec, units=self.method.units or self.spec.units))  # so that bad values are refused now

    def supports(self) -> bool:
        """Whether the method can do what is asked: explain what the model says, by units that it scores."""
        mode, own = self.model_config.mode, self.explainer_config.explanation_type == ExplanationType.model
        if mode == ModelMode.regression and not own:
            return self._refuse("needs `explanation_type=model` for regressions (got `explanation_type=phenomenon`)")
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
            "Expected the algorithm to be called by an Explainer",
            got="a direct call",
            do=f"Create an Explainer(model, algorithm={type(self).__name__}(…), …) and call it.",
        )
        level, own = self.model_config.task_level.value, self.explainer_config.explanation_type == ExplanationType.model
        numbers = self.model_config.mode == ModelMode.regression
        edge_index = plain_edges(edge_index)
        model, targets = arrange(model, x, edge_index, kwargs, level=level, outputs=len(target), spec=self.spec)
        out: VerifiedExplanation | VerifiedHeteroExplanation
        if isinstance(x, dict):
            out = VerifiedHeteroExplanation().set_value_dict("x", x).set_value_dict("edge_index", edge_index)
        else:
            out = VerifiedExplanation(x=x, edge_index=edge_index)
        keys = keys_of(index, len(targets))
        classes = () if numbers else classes_of(target, keys, len(targets))
        spec = replace(
            self.spec,
            units=units_for(self.explainer_config),
            output="regression" if numbers else _OUTPUTS[self.model_config.return_type],
            target=self.spec.target if numbers else None if own else classes,
            tolerance=_tolerance(target, self.spec) if numbers else None,
        )
        explained: list[Explanation] = []
        request = Request(model, targets, spec, self.trained)
        with torch.enable_grad(), Session(request) as session:
            for start in range(0, len(keys), KEYS_AT_ONCE):
                part = session.explain(keys[start : start + KEYS_AT_ONCE])
                if own and not numbers:
                    _check_own(part, dict(classes))
                explained += part
        explanations = Explanations(tuple(explained), request.context())
        return out.filled(explanations, Layout(spec.units, out.num_edges, self.soft))


def _tolerance(outputs: Tensor, spec: Spec) -> float:
    """Of a regression: as given, or by all outputs of the model [n, columns]."""
    if spec.tolerance is not None:
        return spec.tolerance
    column = spec.target if isinstance(spec.target, int) else 0
    own = outputs.detach().reshape(len(outputs), -1)[:, column] if outputs.numel() else outputs.new_zeros(1)
    return TOLERANCE_SHARE * (float(own.max() - own.min()) or float(own.abs().max()) or 1.0)


def _check_own(explained: Sequence[Explanation], classes: Mapping[Key, int]) -> None:
    """Refuse predictions of the whole batch that the model does not give for a node or graph by itself."""
    criterion = PredictedClass(torch.tensor([classes[e.key] for e in explained]))
    margins = criterion.margin(torch.from_numpy(np.stack([e.probabilities for e in explained])))
    for e, margin in zip(explained, margins.tolist()):
        if margin < -SAME_MARGIN:
            raise CF2Error(
                f"Expected the model to predict class {classes[e.key]} for {e.task} {e.key} when run alone as well",
                got=f"class {e.prediction}",
                do="Is `return_type` right? Does the output of one graph depend on the others in the batch?",
            )


@with_options(AlgorithmOptions)
class CF2Explainer(MethodExplainer):
    """CF²: small sufficient and necessary sets of edges and features, verified on reduced graphs.

    Settings are those of method `cf2` (`epochs`, `alpha`, `lam`, `gamma`, `lr`, `effort`, …), or of `cf2-relaxed`.

    Parameters
    ----------
    relaxed : bool
        The paper's procedure, a threshold without a search.
    {options}

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

    def __init__(self, *, relaxed: bool = False, **selected: Unpack[AlgorithmOptions]) -> None:
        super().__init__("cf2-relaxed" if relaxed else "cf2", **selected)


@with_options(AlgorithmOptions)
class CFGNNExplainer(MethodExplainer):
    """CF-GNNExplainer: the smallest removal seen that flips the prediction.

    Settings are those of method `cf-gnnexplainer`: `epochs`, `lr`, `momentum`, `beta`, `odds`.

    Parameters
    ----------
    {options}
    """

    def __init__(self, **selected: Unpack[AlgorithmOptions]) -> None:
        super().__init__("cf-gnnexplainer", **selected)
