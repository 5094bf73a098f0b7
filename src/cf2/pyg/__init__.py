"""The methods as torch_geometric ExplainerAlgorithms: `Explainer(model, algorithm=CF2Explainer(), …)`.

explainers   an algorithm for torch_geometric's Explainer from any method
arguments    what torch_geometric passes to a model -> what is explained
masks        explanations -> torch_geometric's masks, with their verdicts
"""

from cf2.pyg.explainers import CF2Explainer, CFGNNExplainer, MethodExplainer
from cf2.pyg.masks import VerifiedExplanation, VerifiedHeteroExplanation

__all__ = ["CF2Explainer", "CFGNNExplainer", "MethodExplainer", "VerifiedExplanation", "VerifiedHeteroExplanation"]
