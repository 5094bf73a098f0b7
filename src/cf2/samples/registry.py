"""Every data set by its name, a row each.

A new sample is a row of `SAMPLES`: how it is made, from the root of the raw files or from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cf2.errors import CF2Error, require_number, unknown_name
from cf2.samples import from_clone, molecules, networks, synthetic
from cf2.samples.datasets import Dataset, instances_to_explain, split
from cf2.samples.storage import Root

__all__ = ["Dataset", "instances_to_explain", "load", "names", "overview", "split", "statistics"]

SAMPLES: dict[str, Callable[[Root, int], Dataset]] = {
    "ba-shapes": lambda root, seed: synthetic.ba_shapes(seed),
    "tree-cycles": lambda root, seed: synthetic.tree_cycles(seed),
    "mutag": lambda root, seed: molecules.mutag(root),
    "mutag0": lambda root, seed: molecules.mutag0(root),
    "nci1": lambda root, seed: molecules.nci1(root),
    "citeseer": lambda root, seed: networks.citeseer(root),
    "ba-2motifs": lambda root, seed: synthetic.ba_2motifs(seed),
    "typed-motifs": lambda root, seed: synthetic.typed_motifs(seed),
    "benzene": lambda root, seed: _tasks().with_truth("benzene", ("no benzene", "benzene"), root),
    "fluoride-carbonyl": lambda root, seed: _tasks().with_truth(
        "fluoride-carbonyl", ("not both", "fluoride and carbonyl"), root
    ),
    "crippen": lambda root, seed: _tasks().crippen(root),
    "cora-links": lambda root, seed: networks.cora_links(root, seed),
    "page-link": lambda root, seed: _tasks().page_link(root, seed),
}


def _tasks() -> Any:
    """The sets whose raw files people make are read by code of the repository."""
    return from_clone(".", "reproduction.tasks")


def names() -> list[str]:
    """The names that `load` knows, the paper's data sets first."""
    return list(SAMPLES)


def load(name: str, *, root: Root = None, seed: int = 0) -> Dataset:
    """Load a data set by name, or generate it from `seed` if it is a synthetic one.

    Parameters
    ----------
    name : str
        One of `names()`.
    root : str or Path, optional
        The directory of the raw files, laid out as torch_geometric does; else the one that `CF2_DATA` names, else
        the cache directory. Files that are nowhere are downloaded to the cache directory.
    seed : int
        The seed of a synthetic set, and of the draw of the pairs where links are predicted.

    Returns
    -------
    Dataset
        The graphs, their labels, and the truth if known.
    """
    require_number("seed", seed, 0, integer=True)
    if name not in SAMPLES:
        raise unknown_name("the data set", name, SAMPLES)
    return SAMPLES[name](root, seed)


def statistics(name: str, *, root: Root = None, seed: int = 0) -> dict[str, Any]:
    """Count the graphs, nodes, edges, classes and features of a data set.

    Parameters
    ----------
    name, root, seed
        As for `load`.

    Returns
    -------
    dict
        `name`, `task`, `graphs`, `nodes` and (undirected) `edges` as means per graph, `classes`, `features`, `truth`
        (whether it is known), `labels` (instances per class, none of a number); for Mutag also `benzene_no2`, the
        paper's table.
    """
    dataset = load(name, root=root, seed=seed)
    graphs = len(dataset.graphs)
    counts: dict[str, Any] = {
        "name": dataset.name,
        "task": dataset.task,
        "graphs": graphs,
        "nodes": sum(int(graph.num_nodes or 0) for graph in dataset.graphs) / graphs,
        "edges": sum(int(graph.num_edges) for graph in dataset.graphs) / 2 / graphs,
        "classes": dataset.num_classes,
        "features": dataset.num_features,
        "truth": dataset.has_truth,
        "labels": {name: int((dataset.labels == i).sum()) for i, name in enumerate(dataset.class_names)},
    }
    if name == "mutag":
        counts["benzene_no2"] = molecules.benzene_nitro_table(dataset)
    return counts


def overview(*, root: Root = None, seed: int = 0) -> list[dict[str, Any]]:
    """The `statistics` of every named set; `name` and `problem` for sets whose raw files are missing."""
    rows = []
    for name in names():
        try:
            rows.append(statistics(name, root=root, seed=seed))
        except CF2Error as error:
            rows.append({"name": name, "problem": str(error)})
    return rows
