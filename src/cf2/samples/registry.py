"""Every data set by its name: one line each, and the open families `tu:NAME` and `planetoid:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cf2.errors import CF2Error, require_number, unknown_name
from cf2.samples import attribution, citations, links, molecules, synthetic
from cf2.samples import links as page_link
from cf2.samples import synthetic as typed
from cf2.samples.datasets import PAPER, Dataset, PaperConstants, instances_to_explain, split

# -- registry --------------------------------------------------------------------------------------------


Root = str | Path | None

_STORED: Mapping[str, Callable[[Root], Dataset]] = MappingProxyType(
    {
        "mutag": molecules.mutag,
        "mutag0": molecules.mutag0,
        "nci1": molecules.nci1,
        "citeseer": citations.citeseer,
        "benzene": attribution.benzene,
        "fluoride-carbonyl": attribution.fluoride_carbonyl,
        "crippen": attribution.crippen,
    }
)
_GENERATED: Mapping[str, Callable[[int], Dataset]] = MappingProxyType(
    {**synthetic.BUILDERS, "typed-motifs": typed.typed_motifs}
)
_DIVIDED: Mapping[str, Callable[[Root, int], Dataset]] = MappingProxyType(
    {"cora-links": links.cora_links, "page-link": page_link.page_link}
)
_FAMILIES: Mapping[str, Callable[[str, Root], Dataset]] = MappingProxyType(
    {"tu": molecules.tu, "planetoid": citations.planetoid}
)
_PAPER = ("ba-shapes", "tree-cycles", "mutag", "mutag0", "nci1", "citeseer")
_ORDER = tuple(dict.fromkeys((*_PAPER, *_GENERATED, *_STORED, *_DIVIDED)))


def names() -> list[str]:
    """The names that `load` knows, besides `tu:NAME` and `planetoid:NAME`.

    Returns
    -------
    list of str
        The paper's data sets first.
    """
    return list(_ORDER)


def load(name: str, *, root: Root = None, seed: int = 0) -> Dataset:
    """Load a data set by name, or generate it from `seed` if it is a synthetic one.

    Parameters
    ----------
    name : str
        One of `names()`, or `tu:NAME` or `planetoid:NAME` for any other set of those two collections.
    root : str or Path, optional
        The directory of the raw files, laid out as torch_geometric does; else the one that `CF2_DATA` names, else
        the cache directory. Files that are nowhere are downloaded to the cache directory.
    seed : int
        The seed of a synthetic set, and of the draw of the pairs where links are predicted.

    Returns
    -------
    Dataset
        The graphs, their labels, and the truth where it is known.
    """
    require_number("seed", seed, 0, integer=True)
    family, colon, member = str(name).partition(":")
    if name in _GENERATED:
        return _GENERATED[name](seed)
    if name in _DIVIDED:
        return _DIVIDED[name](root, seed)
    if name in _STORED:
        return _STORED[name](root)
    if colon and member and family in _FAMILIES:
        return _FAMILIES[family](member, root)
    raise unknown_name("the data set", name, [*_ORDER, "tu:NAME", "planetoid:NAME"])


def statistics(name: str, *, root: Root = None, seed: int = 0) -> dict[str, Any]:
    """Count what a data set holds.

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
    columns = sum(int(graph.num_edges) for graph in dataset.graphs)
    counts: dict[str, Any] = {
        "name": dataset.name,
        "task": dataset.task,
        "graphs": graphs,
        "nodes": sum(int(graph.num_nodes or 0) for graph in dataset.graphs) / graphs,
        "edges": columns / 2 / graphs,
        "classes": dataset.num_classes,
        "features": dataset.num_features,
        "truth": dataset.has_truth,
        "labels": {name: int((dataset.labels == i).sum()) for i, name in enumerate(dataset.class_names)},
    }
    if name == "mutag":
        counts["benzene_no2"] = molecules.benzene_nitro_table(dataset)
    return counts


def overview(*, root: Root = None, seed: int = 0) -> list[dict[str, Any]]:
    """The statistics of every named set.

    Parameters
    ----------
    root, seed
        As for `load`.

    Returns
    -------
    list of dict
        One per name, as `statistics` gives it; `name` and `problem` for a set whose raw files are not there.
    """
    rows = []
    for name in names():
        try:
            rows.append(statistics(name, root=root, seed=seed))
        except CF2Error as error:
            rows.append({"name": name, "problem": str(error)})
    return rows


# -- datasets --------------------------------------------------------------------------------------------


__all__ = [
    "PAPER",
    "Dataset",
    "PaperConstants",
    "instances_to_explain",
    "load",
    "names",
    "overview",
    "split",
    "statistics",
]
