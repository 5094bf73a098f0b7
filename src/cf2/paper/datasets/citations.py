"""Citation graphs from Planetoid: papers with words as features, linked where one cites the other."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from cf2.errors import CF2Error
from cf2.paper.datasets import storage
from cf2.paper.datasets.dataset import Dataset

CITESEER_CLASSES = ("AI", "ML", "IR", "DB", "Agents", "HCI")  # told by the classes' sizes

DIGESTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "CiteSeer": {
            "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        }
    }
)
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def citeseer(root: str | Path | None = None) -> Dataset:
    """CiteSeer without the 15 papers that have no words: 3,312 papers, 3,703 words, 6 classes."""
    data = _read("CiteSeer", root)
    kept = (data.x.sum(dim=1) > 0).nonzero().view(-1)
    edge_index, _ = subgraph(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    graph = Data(x=data.x[kept], edge_index=edge_index, y=data.y[kept])
    return Dataset("citeseer", "node", [graph], 6, 3703, CITESEER_CLASSES, tuple(range(6)))


def planetoid(name: str, root: str | Path | None = None) -> Dataset:
    """Any set of Planetoid (Cora, CiteSeer, PubMed), with all of its nodes."""
    data = _read(name, root)
    classes = int(data.y.max()) + 1
    numbers = tuple(range(classes))
    width = int(data.x.shape[1])
    return Dataset(f"planetoid:{name}", "node", [data], classes, width, tuple(map(str, numbers)), numbers)


def _read(name: str, root: str | Path | None) -> Data:
    files = [f"ind.{name.lower()}.{part}" for part in _PARTS]
    directory = storage.raw_directory(root, "Planetoid", name, files, DIGESTS.get(name, {}), lambda: _urls(files))
    tensors = storage.processed(f"planetoid-{name}", directory, files, lambda: _parse(name, directory, files))
    return storage.unpack(tensors)[0]


def _parse(name: str, directory: Path, files: list[str]) -> dict[str, Tensor]:
    from torch_geometric.io import read_planetoid_data

    for file in files[:-1]:
        _refuse_code(directory / file)
    data = read_planetoid_data(str(directory), name.lower())
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    return storage.pack([Data(x=x, edge_index=data.edge_index, y=data.y)])


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled arrays, sparse matrices and dictionaries, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        arrays = module.split(".")[0] in ("numpy", "scipy") and name in (
            "_reconstruct", "ndarray", "dtype", "csr_matrix", "scalar", "_frombuffer",
        )  # fmt: skip
        if arrays or (module, name) == ("collections", "defaultdict"):
            return super().find_class(module, name)
        if (module, name) in (("__builtin__", "list"), ("builtins", "list")):
            return list
        raise pickle.UnpicklingError(f"it would run {module}.{name}")


def _refuse_code(path: Path) -> None:
    """Planetoid's files are pickles: make sure that this one holds only arrays before anything trusts it."""
    import warnings

    try:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old names of scipy's modules
            _ArraysOnly(stream, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError) as error:
        raise CF2Error(
            f"Expected {path} to be an intact file of Planetoid that holds only arrays",
            got=error,
            do="Delete it and get it again.",
        ) from error


def _urls(files: list[str]) -> list[str]:
    from torch_geometric.datasets import Planetoid  # slow to import, and only downloads need it

    return [f"{Planetoid.url}/{file}" for file in files]
