"""What a million explanations cost, and what a graph of 10⁹ edges needs: arithmetic from one machine.

    python benchmarks/scaling.py

The CPU time of an explanation is that of `columns.json`, and for a node of a large graph it is measured on a graph of
10⁶ directed edges. The driver, which receives chunks and writes them, is measured in a run with one worker process. It
is the one part that more machines do not share; what else is left out stands in benchmarks/measured/scaling.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import figures
from bench.curves import graph_size

from cf2.options import Spec
from cf2.runs import engines
from cf2.runs.store import Store
from cf2.samples.sources import from_dataset

CHUNK = 256
CHUNKS = 6
MILLION, WORKERS, LARGE = 1e6, 200, 1e9
HEAD = {
    "explained": "",
    "edges, both ways": ",d",
    "CPU ms each": ".1f",
    "CPU hours a million": ".1f",
    "workers that one driver serves": ".0f",
    f"minutes with {WORKERS} workers": ".1f",
    "graph, GiB": ".2f",
    "with 10⁹ edges, GiB": ".0f",
}


def driver_seconds() -> float:
    """CPU seconds of the driver for a chunk of molecules: a run of some chunks less a run of one."""
    source, spent = from_dataset("mutag0"), []
    for count in (1, CHUNKS):
        with TemporaryDirectory() as folder:
            spec, keys = Spec("gradient", settings={"k": 10}), list(range(count * CHUNK))
            run = Store.create(Path(folder) / "run", source, spec, keys=keys, chunk_size=CHUNK)
            start = time.process_time()
            engines.explain_run(run, spec, engine="processes", workers=1)
            spent.append(time.process_time() - start)
    return (spent[1] - spent[0]) / (CHUNKS - 1)


def main() -> None:
    driver = driver_seconds()
    columns = figures.read("columns")
    measured = {row[0]: row for row in columns["rows"] if row[1] == "standard"}
    place = list(columns["columns"]).index("CPU, ms")
    (large,) = graph_size((10,)).rows
    rows = []
    for name, milliseconds, edges, size in (
        ("a molecule of Mutag₀", measured["mutag0"][place], None, None),
        ("a node of BA-Shapes", measured["ba-shapes"][place], None, None),
        ("a node of a large random graph", large[2], large[0], large[3] / 1024),
    ):
        work, served = MILLION * milliseconds / 1e3, MILLION / CHUNK * driver
        minutes = max(work / WORKERS, served) / 60
        whole = None if size is None else size * LARGE / edges
        rows.append([name, edges, milliseconds, work / 3600, work / served, minutes, size, whole])
    figures.keep("scaling", "python benchmarks/scaling.py", HEAD, rows, ["mutag0", "ba-shapes"], "an untrained GCN")
    print(f"driver: {1e3 * driver:.1f} ms a chunk of {CHUNK}", *rows, sep="\n")


if __name__ == "__main__":
    main()
