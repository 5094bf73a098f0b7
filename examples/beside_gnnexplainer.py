"""cf2 beside torch_geometric's GNNExplainer: the same GAT, the same nodes, the same tests.

    python examples/beside_gnnexplainer.py

The model is trained on CiteSeer, which is looked for under `CF2_DATA`. GNNExplainer runs its published 200 epochs on
each node and gives a mask; its strongest edges, as many as cf2 found for the node, are put to the tests of cf2 by
`cf2.metrics.judge`: the model is run on really edited graphs.
"""

import time

import torch
from torch_geometric import seed_everything
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GAT

import cf2

NODES = 7
torch.set_num_threads(1)
seed_everything(0)
data = cf2.datasets.load("citeseer").graphs[0]
model = GAT(data.num_features, 16, num_layers=2, out_channels=int(data.y.max()) + 1, heads=4)
order = torch.randperm(data.num_nodes)
train, test = order[: data.num_nodes // 2], order[data.num_nodes // 2 :]
optimiser = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
for _ in range(100):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(model(data.x, data.edge_index)[train], data.y[train]).backward()
    optimiser.step()
model.eval()
print(f"accuracy {float((model(data.x, data.edge_index).argmax(1) == data.y)[test].float().mean()):.2f}")

# Nodes whose prediction some edges decide: without any edge, the model says something else of them.
alone = model(data.x, data.edge_index[:, :0]).argmax(1)
decided = test[(model(data.x, data.edge_index).argmax(1) != alone)[test]][:NODES].tolist()
print(f"of {len(test)} test nodes, the first {len(decided)} whose prediction changes without edges: {decided}")

started = time.process_time()
found = cf2.explain(model, data, nodes=decided)
ours = time.process_time() - started

started = time.process_time()
explainer = Explainer(
    model,
    GNNExplainer(epochs=200),
    explanation_type="model",
    edge_mask_type="object",
    model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
)
masks = [explainer(data.x, data.edge_index, index=node) for node in decided]
theirs = time.process_time() - started

judged = [
    cf2.metrics.judge(model, data, [mask], [node], size=max(e.size, 1)).explanations[0]
    for node, mask, e in zip(decided, masks, found)
]
rows = {}
for name, answers, seconds in (("cf2", found, ours), ("GNNExplainer, 200 epochs", judged, theirs)):
    both = sum(e.sufficient and e.necessary for e in answers)
    sufficient, necessary = sum(e.sufficient for e in answers), sum(e.necessary for e in answers)
    rows[name] = {"nodes": len(answers), "sufficient": sufficient, "necessary": necessary, "both": both}
    rows[name]["CPU s"] = seconds
    print(f"{name}: sufficient {sufficient}, necessary {necessary}, both {both} of {len(answers)}; {seconds:.1f} CPU s")
