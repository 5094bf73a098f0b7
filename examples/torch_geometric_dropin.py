"""Drop cf2 into torch_geometric: the same Explainer, another algorithm, and verdicts beside the masks.

python examples/torch_geometric_dropin.py
"""

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity
from torch_geometric.nn import GraphSAGE

from cf2.pyg import CF2Explainer, CFGNNExplainer


def ladder(steps: int = 20) -> Data:
    """Two rails with rungs at every third step; class 1 are the ends of a rung."""
    rails = [(i, i + 1) for i in range(steps - 1)] + [(steps + i, steps + i + 1) for i in range(steps - 1)]
    rungs = [(i, steps + i) for i in range(1, steps - 1, 3)]
    y = torch.zeros(2 * steps, dtype=torch.long)
    y[torch.tensor(rungs).flatten()] = 1
    pairs = rails + rungs
    edge_index = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    return Data(x=torch.ones(2 * steps, 2), edge_index=edge_index, y=y)


def main() -> None:
    torch.manual_seed(0)
    data = ladder()
    model = GraphSAGE(in_channels=2, hidden_channels=16, num_layers=2, out_channels=2, aggr="sum")
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        adam.step()
    accuracy = float((model(data.x, data.edge_index).argmax(1) == data.y).float().mean())
    print(f"{data.num_nodes} nodes, accuracy {accuracy:.2f}\n")

    print("Why is node 7 in its class? Without a good answer the class changes (fidelity+ is 1), and with")
    print("nothing but the answer it stays (fidelity- is 0).\n")
    print("algorithm        columns  fidelity+  fidelity-")
    for algorithm in (GNNExplainer(epochs=100), CFGNNExplainer(odds=True, beta=0.1), CF2Explainer()):
        explainer = Explainer(
            model,
            algorithm=algorithm,
            explanation_type="model",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
            edge_mask_type="object",
            # a soft mask has to be cut somewhere; the masks of cf2 are sets already
            threshold_config={"threshold_type": "topk_hard", "value": 6}
            if isinstance(algorithm, GNNExplainer)
            else None,
        )
        explanation = explainer(data.x, data.edge_index, index=7)
        plus, minus = fidelity(explainer, explanation)
        columns = explanation.get_explanation_subgraph().num_edges  # of edge_index: two for an undirected edge
        print(f"{type(algorithm).__name__:15s}  {columns:7d}  {plus:9.1f}  {minus:9.1f}")

    verdicts = {name: getattr(explanation, name) for name in ("sufficient", "necessary", "minimal", "optimal")}
    print(f"\nCF2Explainer on really reduced graphs: {verdicts}\n")

    # Several nodes are explained in one run, each by itself.
    several = explainer(data.x, data.edge_index, index=torch.tensor([4, 7, 30]))
    print(f"three nodes: edge_mask, the union, has {int(several.edge_mask.sum()) // 2} edges")
    for one in several.each():
        chosen = one.get_explanation_subgraph().edge_index
        pairs = {tuple(sorted(pair)) for pair in chosen.t().tolist()}
        print(f"  node {int(one.index)}: {sorted(pairs)}, fidelity {fidelity(explainer, one)}")


if __name__ == "__main__":
    main()
