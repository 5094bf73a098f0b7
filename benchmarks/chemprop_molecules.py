"""cf2 on a Chemprop model beside Myerson values, Chemprop's own explanations; for docs/chemprop.md.

    python benchmarks/chemprop_molecules.py classification.csv [--molecules 100] [--beside 32] [--limit 600]
        [--published admet_ai/resources/models/admet_classification]

One model is trained on the file (30 epochs, one thread). cf2 explains the first molecules and a task, for this model
and for a published one, a checkpoint of the package `admet-ai`, whose folder is given. (`pip download --no-deps
admet-ai`, and unzip it; the package itself is not needed.)

The first molecules with an answer of atoms, and of at most 30 atoms, are then given to cf2 once more, in one call and
one by one, and to the package `myerson`: up to 12 atoms exactly, above by 1,000 samples, its default (Chemprop's
callback goes on exactly up to 20 atoms, which is slower). Both are judged by the same code: as many atoms as the answer
of cf2 has, kept alone and removed.
"""

from __future__ import annotations

import argparse
import logging
import signal
import time
import warnings
from typing import Any

import figures
import numpy as np
import pandas
import torch

import cf2

COLUMNS = {
    "model": "",
    "units": "",
    "molecules": "d",
    "found": "d",
    "mean size of those": ".1f",
    "F_NS": ".2f",
    "CPU s per molecule": ".2f",
}
BESIDE = {"atoms": "", "molecules": "d", "sufficient": ".0f", "necessary": ".0f", "CPU s per molecule": ".2f"}
WORDS = "an MPNN that the script trains on classification.csv of Chemprop's tests; its first molecules, NR-AhR"
PUBLISHED = "; model_0.pt of the classifiers in ADMET-AI 2.0.1, AMES"
TASK, PUBLISHED_TASK = "NR-AhR", "AMES"
MOST = 30  # atoms of a molecule beside Myerson values
EXACT = 12  # atoms up to which Myerson values are computed from all 2ⁿ sets


def trained(path: str) -> tuple[Any, list[str], list[str]]:
    """A model as in docs/chemprop.md, its tasks and the molecules."""
    from chemprop import data, models, nn
    from lightning import pytorch as pl

    pl.seed_everything(0, verbose=False)
    table = pandas.read_csv(path)
    tasks = list(table.columns[1:])
    points = [data.MoleculeDatapoint.from_smi(s, y) for s, y in zip(table.smiles, table[tasks].to_numpy(float))]
    predictor = nn.BinaryClassificationFFN(n_tasks=len(tasks))
    model = models.MPNN(nn.BondMessagePassing(), nn.NormAggregation(), predictor, batch_norm=True)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    trainer = pl.Trainer(max_epochs=30, accelerator="cpu", **quiet)
    trainer.fit(model, data.build_dataloader(data.MoleculeDataset(points), num_workers=0))
    return model.eval(), tasks, list(table.smiles)


def timed(work: Any) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def row(model: str, name: str, found: cf2.Explanations, seconds: float) -> list[Any]:
    sizes = [e.size for e in found if e.status == "found"]
    return [model, name, len(found), len(sizes), float(np.mean(sizes)), cf2.metrics.fns(found), seconds / len(found)]


def graph_of(smiles: str) -> Any:
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from rdkit import Chem

    return SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(smiles))


def myerson(model: Any, smiles: str, limit: int) -> np.ndarray | None:
    """Values [atoms, tasks]; None where they take longer than so many seconds."""
    from myerson.chemprop_explain import MyersonClassExplainer, MyersonSamplingClassExplainer

    def stop(*_: Any) -> None:
        raise TimeoutError

    graph = graph_of(smiles)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        with torch.no_grad():
            if len(graph.V) <= EXACT:
                return np.asarray(MyersonClassExplainer(graph, model).calculate_all_myerson_values())
            return np.asarray(MyersonSamplingClassExplainer(graph, model, seed=0).sample_all_myerson_values())
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)


def verdicts(model: Any, smiles: str, chosen: list[int], task: int) -> tuple[bool, bool]:
    """Whether atoms are sufficient alone, and necessary, on graphs cut by `myerson`."""
    from chemprop.data import BatchMolGraph
    from myerson.chemprop_explain import MyersonClassExplainer

    graph = graph_of(smiles)
    cut = MyersonClassExplainer(graph, model).subgraph_from_coalition
    others = [atom for atom in range(len(graph.V)) if atom not in chosen]

    def positive(part: Any) -> bool:
        with torch.no_grad():
            return bool(model(BatchMolGraph([part]))[0, task] > 0.5)

    whole = positive(graph)
    only = bool(chosen) and positive(cut(chosen, graph)) == whole
    return only, bool(others) and positive(cut(others, graph)) != whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--molecules", type=int, default=100)
    parser.add_argument("--beside", type=int, default=32)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--published")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    (model, tasks, smiles), seconds = timed(lambda: trained(given.file))
    print(f"trained in {seconds:.0f} CPU s", flush=True)
    asked: dict[str, Any] = {"target": TASK, "tasks": tasks}
    explained: list[tuple[str, Any, dict[str, Any]]] = [("trained here", model, asked)]
    if given.published:
        explained.insert(0, ("ADMET-AI", f"{given.published}/model_0.pt", {"target": PUBLISHED_TASK}))
    rows = []
    for label, own_model, own in explained:
        for units, name in (("edges", "bonds"), ("nodes", "atoms")):
            some = smiles[: given.molecules]
            found, seconds = timed(lambda: cf2.explain(own_model, some, units=units, **own))  # noqa: B023
            rows.append(row(label, name, found, seconds))
    command = "python benchmarks/chemprop_molecules.py classification.csv"
    published = (" --published admet_classification", PUBLISHED) if given.published else ("", "")
    figures.keep("chemprop", command + published[0], COLUMNS, rows, trained=WORDS + published[1])
    fits = (e.key for e in found if e.status == "found" and len(graph_of(smiles[e.key]).V) <= MOST)
    texts = [smiles[key] for key in fits][: given.beside]
    together, in_one_call = timed(lambda: cf2.explain(model, texts, units="nodes", **asked))
    task, both, times, done = tasks.index(TASK), np.zeros((2, 2)), np.zeros(2), 0
    for text, e in zip(texts, together):
        _, ours = timed(lambda: cf2.explain(model, text, units="nodes", **asked))  # noqa: B023
        values, theirs = timed(lambda: myerson(model, text, given.limit))  # noqa: B023
        times += ours, theirs
        if values is None:
            print(f"Myerson values took more than {given.limit} s: {text}", flush=True)
            continue
        sign = 1 if e.probabilities[task] > 0.5 else -1  # of a negative, atoms that speak against it
        top = np.argsort(-sign * values[:, task])[: e.size].tolist()
        both += [verdicts(model, text, e.nodes.tolist(), task), verdicts(model, text, top, task)]
        done += 1
        print(done, *both.astype(int).tolist(), (times / done).round(3), in_one_call / len(texts), flush=True)
    costs = (in_one_call, *times)
    names = ("`cf2`, in one call", "`cf2`, one molecule at a time", "Myerson values, as many atoms")
    named = zip(names, both[[0, 0, 1]], costs)
    beside = [[name, done, float(alone), float(needed), cost / len(texts)] for name, (alone, needed), cost in named]
    figures.keep("chemprop-myerson", command, BESIDE, beside, trained=WORDS)


if __name__ == "__main__":
    main()
