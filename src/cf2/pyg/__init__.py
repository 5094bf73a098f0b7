"""The methods as torch_geometric ExplainerAlgorithms: `Explainer(model, algorithm=CF2Explainer(), …)`.

Masks are the chosen sets themselves, 1 inside and 0 outside, so that whatever torch_geometric does with them
is about the set that was tried on the model. Several nodes or graphs are explained in one packed run, each by
itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import (
    ExplanationType,
    MaskType,
    ModelMode,
    ModelReturnType,
    ModelTaskLevel,
)

from cf2.errors import CF2Error, require, unknown_name
from cf2.explanation import Explanation
from cf2.methods import get
from cf2.methods.method import Chunk, conclude
from cf2.predictor import Masking, Output
from cf2.pyg.arguments import classes_of, keys_of, question
from cf2.pyg.groups import grouped, spread
from cf2.pyg.masks import Layout, VerifiedExplanation, fill
from cf2.work import Session, Work

__all__ = ["CF2Explainer", "CFGNNExplainer", "VerifiedExplanation"]

_OUTPUTS: dict[ModelReturnType, Output] = {
    ModelReturnType.raw: "logits",
    ModelReturnType.probs: "probabilities",
    ModelReturnType.log_probs: "log_probabilities",
}
_SAME = 1e-3  # predictions with a smaller margin may differ by the order of summation


class _Algorithm(ExplainerAlgorithm):  # type: ignore[misc]
    """What both algorithms share; `method` and its settings make the difference."""

    def __init__(
        self,
        method: str,
        settings: Mapping[str, Any],
        *,
        soft: bool,
        seed: int | None,
        directed: bool | None,
        masking: Masking,
    ) -> None:
        super().__init__()
        known = [f.name for f in fields(get(method).settings)]
        for name in settings:
            if name not in known:
                options = ["soft", "seed", "directed", "masking"]
                raise unknown_name(f"a setting of {type(self).__name__}", name, [*known, *options])
        get(method).make_settings(settings)
        self.method, self.settings = method, dict(settings)
        self.soft, self.seed, self.directed, self.masking = soft, seed, directed, masking

    def supports(self) -> bool:
        """Classification of nodes or graphs, with every kind of mask."""
        mode, level = self.model_config.mode, self.model_config.task_level
        if mode == ModelMode.regression:
            return self._refuse("explains classes, and a regression has none", f"mode={mode.value}")
        if level not in (ModelTaskLevel.node, ModelTaskLevel.graph):
            return self._refuse("explains nodes and graphs, not edges", f"task_level={level.value}")
        return True

    def _refuse(self, reason: str, got: str) -> bool:
        logging.error(f"'{type(self).__name__}' {reason} (got `{got}`)")
        return False

    def forward(
        self,
        model: torch.nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> VerifiedExplanation:
        """Explain the outputs `index` of the model (all, if None), each on its own."""
        if isinstance(x, dict) or isinstance(edge_index, dict):
            raise CF2Error("Expected a homogeneous graph", got="a heterogeneous one, a dictionary of tensors")
        config = self.explainer_config
        by_graph = self.model_config.task_level == ModelTaskLevel.graph
        asked = question(model, x, edge_index, kwargs, by_graph=by_graph, directed=self.directed)
        keys = keys_of(index, asked.outputs)
        work = Work(
            asked.model,
            asked.source,
            method=self.method,
            settings=self.settings,
            edges=config.edge_mask_type is not None,
            features=config.node_mask_type is not None,
            seed=self.seed,
            output=_OUTPUTS[self.model_config.return_type],
            directed=self.directed,
            masking=self.masking,
            classes=dict(zip(keys, classes_of(target, keys, asked.outputs))),
        )
        found: list[Explanation] = []
        with torch.enable_grad(), Session(work) as session:
            for chunk in session.chunks(keys):
                _check(chunk, own=config.explanation_type == ExplanationType.model)
                found += _explain(session, chunk, config.node_mask_type)
        if asked.nodes:
            found = [_in_batch(one, asked.nodes[one.key]) for one in found]
        layout = Layout(work.edges, config.node_mask_type, self.soft, edge_index.size(1))
        return fill(VerifiedExplanation(x=x, edge_index=edge_index), found, layout)


def _check(chunk: Chunk, *, own: bool) -> None:
    """Refuse classes that the model does not have, and "own" predictions that it does not give here."""
    classes = chunk.P.size(1)
    require(
        int(chunk.y.max()) < classes,
        f"Expected `target` to hold classes from 0 to {classes - 1}",
        got=int(chunk.y.max()),
    )
    gap = chunk.P.amax(1) - chunk.P.gather(1, chunk.y[:, None]).squeeze(1)
    off = (gap > _SAME).nonzero().flatten().tolist() if own else []
    if off:
        raise CF2Error(
            f"Expected the model to predict class {int(chunk.y[off[0]])} for {chunk.predictor.task} "
            f"{chunk.instances[off[0]].key} by itself as well",
            got=f"class {int(chunk.P[off[0]].argmax())}",
            do="Is `return_type` right? Does the output of one graph depend on the others in the batch?",
        )


def _explain(session: Session, chunk: Chunk, kind: MaskType | None) -> list[Explanation]:
    """The explanations of a chunk, with the features of a node, or a column, as one unit where asked for."""
    started = time.perf_counter()
    if kind in (None, MaskType.attributes):
        ranking = session.method.rank(chunk, session.settings)
    else:
        merged, new = grouped(chunk, kind)
        ranking = spread(session.method.rank(merged, session.settings), new)
    return conclude(session.method, session.settings, chunk, ranking, started)


def _in_batch(one: Explanation, nodes: Tensor) -> Explanation:
    """The explanation of a graph in the node ids of the batch it came from."""
    features = one.unit_features.copy()
    features[:, 0] = nodes.numpy()[features[:, 0]]
    return replace(one, unit_edges=nodes.numpy()[one.unit_edges], unit_features=features)


class CF2Explainer(_Algorithm):
    """CF²: edges and features that are sufficient, necessary and few, verified on really reduced graphs.

    Keywords are the settings of method `cf2` (`epochs`, `alpha`, `lam`, `gamma`, `lr`, `effort`, …), or those
    of `cf2-relaxed` with `relaxed=True`: the paper's procedure, a threshold without a search. `soft=True`
    puts scores into the masks in place of 1 and 0, above 0.5 where chosen.

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
        **settings: Any,
    ) -> None:
        method = "cf2-relaxed" if relaxed else "cf2"
        super().__init__(method, settings, soft=soft, seed=seed, directed=directed, masking=masking)


class CFGNNExplainer(_Algorithm):
    """CF-GNNExplainer: the smallest removal seen that flips the prediction.

    Keywords are the settings of method `cf-gnnexplainer` (`epochs`, `lr`, `beta`); `soft` and the others are
    as in `CF2Explainer`.
    """

    def __init__(
        self,
        *,
        soft: bool = False,
        seed: int | None = None,
        directed: bool | None = None,
        masking: Masking = "auto",
        **settings: Any,
    ) -> None:
        super().__init__("cf-gnnexplainer", settings, soft=soft, seed=seed, directed=directed, masking=masking)
