"""The commands, one short function each. Everything heavy is imported where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cf2 import __version__
from cf2 import options as o
from cf2.terminal import COMPARED, bar, cell, compared, named_bar, out, percent, print_json, refusal, say, table

app = typer.Typer(
    name="cf2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEMO, REPORT = Path("cf2-demo"), Path("report.html")


def _version(asked: bool) -> None:
    if asked:
        out.print(f"cf2 {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Explain predictions of graph neural networks: sufficient, necessary, and as small as can be found.

    Example: cf2 demo
    """


@app.command()
def demo(
    directory: o.Directory = DEMO,
    nodes: o.Nodes = 30,
    retrain: o.Retrain = False,
    as_json: o.Json = False,
) -> None:
    """Explain nodes of the embedded data set BA-Shapes by several methods, compare them, and write a report.

    Example: cf2 demo --nodes 10 --out /tmp/demo
    """
    from cf2 import demo as show

    directory.mkdir(parents=True, exist_ok=True)
    with bar("training", None) as step:
        chosen = show.subject(retrain, directory, step)
    results, rows = [], []
    with named_bar("explaining") as report:
        done = dict.fromkeys(show.METHODS, 0)

        def progress(name: str, steps: int) -> None:
            done[name] += steps
            report(f"explaining: {name}", sum(done.values()), nodes * len(done))

        for found in show.compare(chosen, nodes, progress):
            results.append(found)
            rows.append(show.row(chosen, found))
    path = show.finish(results, directory).resolve()
    if as_json:
        print_json({"rows": rows, "report": str(path)})
    else:
        out.print(table(f"BA-Shapes, {len(results[0])} nodes, percent", COMPARED, [compared(row) for row in rows]))
        out.print(f"The report is at {path}", soft_wrap=True, highlight=False)


@app.command()
def datasets(data_root: o.Root = None, as_json: o.Json = False) -> None:
    """List the data sets with their statistics; edges are undirected, nodes and edges are means per graph.

    Example: cf2 datasets --json
    """
    from cf2.datasets import overview

    rows = overview(root=data_root)
    if as_json:
        print_json(rows)
        return
    names = ("name", "task", "graphs", "nodes", "edges", "classes", "features", "truth")
    there = [row for row in rows if "problem" not in row]
    cells = [[cell(row[name]) for name in names] for row in there]
    out.print(table("Data sets", names, cells))
    for row in rows:
        if "problem" in row:
            say(f"{row['name']} is not here. {row['problem']}")


@app.command()
def methods(as_json: o.Json = False) -> None:
    """List the methods with one sentence each.

    Example: cf2 methods
    """
    from cf2.methods import METHODS

    rows = [{"name": method.name, "summary": method.summary} for method in METHODS.values()]
    if as_json:
        print_json(rows)
    else:
        out.print(table("Methods", ("name", "summary"), [list(row.values()) for row in rows]))


@app.command()
def train(
    dataset: o.Dataset,
    arch: o.Arch = "gcn",
    seed: o.Seed = 0,
    epochs: o.Epochs = None,
    setting: o.Setting = None,
    path: o.TrainPath = None,
    data_root: o.Root = None,
    as_json: o.Json = False,
) -> None:
    """Train a base model on 80 % of a data set and save it as safetensors with a JSON description.

    Example: cf2 train tree-cycles --seed 1 --out models/tree-cycles
    """
    from cf2 import datasets as sets
    from cf2 import training
    from cf2.models import ARCHITECTURES

    o.one_of("`--arch`", arch, ARCHITECTURES)
    data = sets.load(dataset, root=data_root)
    with named_bar("training") as step:
        model, about = training.train(
            data,
            arch=arch,
            seed=seed,
            **({"epochs": epochs} | dict(o.parse_setting(text) for text in setting or ())),
            progress=lambda epoch, most, loss, accuracy: step(
                f"loss {loss:.4f}, training accuracy {100 * accuracy:.1f} %", epoch, most
            ),
        )
    saved = training.save(path or Path(f"{dataset.replace(':', '-')}-{arch}-{seed}"), model, about)
    facts = {"dataset": dataset, "arch": arch, "seed": seed, "path": str(saved)}
    facts |= {
        "train_accuracy": about.train_accuracy,
        "test_accuracy": about.test_accuracy,
        "seconds": about.seconds,
    }
    if as_json:
        print_json(facts)
        return
    out.print(f"Test accuracy {percent(about.test_accuracy)} %, saved at {saved}", soft_wrap=True, highlight=False)


@app.command()
def explain(
    dataset: o.ExplainDataset = None,
    data: o.Data = None,
    method: o.Method = None,
    nodes: o.ExplainNodes = None,
    path: o.ExplainPath = None,
    checkpoint: o.Checkpoint = None,
    setting: o.Setting = None,
    features: o.Features = False,
    edges: o.Edges = True,
    search: o.Search = False,
    seed: o.ExplainSeed = None,
    seeds: o.Seeds = None,
    max_units: o.MaxUnits = None,
    reduce: o.Reduce = None,
    resume: o.Resume = False,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    address: o.Address = None,
    data_root: o.Root = None,
    as_json: o.Json = False,
) -> None:
    """Explain predictions, verify the explanations, and keep them in a run directory.

    Example: cf2 explain ba-shapes --method cf2 --nodes 300-310 --out runs/first
    """
    from cf2 import jobs
    from cf2.engines import ENGINES
    from cf2.methods import METHODS

    if (dataset is None) == (data is None):
        raise typer.BadParameter("Give either a data set or --data MODULE:FUNCTION.")
    if path is None:
        raise typer.BadParameter("Give --out DIR, where the run is kept.")
    chosen = [o.one_of("`--method`", name, METHODS) for name in method or ["cf2"]]
    o.one_of("`--engine`", engine, ENGINES)
    request = jobs.Request(
        path=path,
        methods=tuple(chosen),
        settings=dict(o.parse_setting(text) for text in setting or ()),
        keys=None if nodes is None else tuple(o.parse_ids(nodes)),
        seeds=tuple(range(seeds)) if seeds else (seed,),
        edges=edges,
        features=features,
        search=search,
        max_units=max_units,
        reduce=reduce,
        resume=resume,
        engine=engine,
        workers=workers,
        address=address,
    )
    subject = jobs.subject(dataset, data, checkpoint, data_root)
    with bar("explaining", None if request.keys is None else jobs.total(request)) as step:
        run = jobs.explain(subject, request, step)
    rows = jobs.summaries(run)
    if as_json:
        print_json({"run": str(path), "rows": rows})
        return
    title = f"{subject.description.get('dataset') or data}, {len(run.keys)} instances, percent"
    out.print(table(title, COMPARED, [compared(row) for row in rows]))
    for row in rows:
        if "stability" in row:
            out.print(f"{row['method']}: mean Jaccard overlap over seeds {row['stability']:.3f}", highlight=False)
        if "refused" in row:
            say(refusal(row, max_units))
    out.print(f"The run is at {path}. Look at it: cf2 report {path} -o report.html", soft_wrap=True, highlight=False)


@app.command()
def evaluate(
    run: o.RunPath,
    method: o.EvaluateMethod = None,
    as_json: o.Json = False,
) -> None:
    """Score a run: PN, PS, F_NS, size, and accuracy against the truth where it is known.

    Example: cf2 evaluate runs/first --json
    """
    from cf2 import jobs
    from cf2.runs import open_run

    rows = jobs.summaries(open_run(run), method)
    if as_json:
        print_json(rows[0] if len(rows) == 1 or method is None else rows)
        return
    out.print(table(f"{run}, percent", COMPARED, [compared(row) for row in rows]))


@app.command()
def report(
    run: o.RunPath,
    path: o.ReportPath = REPORT,
    pictures: o.Pictures = 60,
) -> None:
    """Write one self-contained HTML page about a run.

    Example: cf2 report runs/first -o report.html
    """
    from cf2.report.html import write_report
    from cf2.runs import open_run

    opened = open_run(run)
    written = write_report([opened.explanations(name) for name in opened.methods()], path, pictures=pictures)
    out.print(f"The report is at {written.resolve()}", soft_wrap=True, highlight=False)


@app.command()
def serve(
    run: o.RunPath,
    port: o.Port = 8050,
    host: o.Host = "127.0.0.1",
) -> None:
    """Open the what-if page for a run on this machine: cut edges and watch the prediction change.

    Example: cf2 serve runs/first --port 8050
    """
    from cf2.web import serve as start

    start(run, host=host, port=port, ready=lambda address: say(f"The page is at {address} (Ctrl-C ends it)"))


@app.command()
def reproduce(
    path: o.ReproducePath,
    table_name: o.TableName = None,
    figure: o.Figure = None,
    datasets: o.Datasets = None,
    methods: o.Methods = None,
    seeds: o.ReproduceSeeds = 1,
    resume: o.Resume = False,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    address: o.Address = None,
    data_root: o.Root = None,
    as_json: o.Json = False,
) -> None:
    """Fill the paper's tables and figures, beside the published values.

    Example: cf2 reproduce --table causal --datasets ba-shapes,tree-cycles --out runs/paper
    """
    from cf2.experiments.reproduce import reproduce as fill
    from cf2.report.tables import terminal

    with named_bar("reproducing") as step:
        result = fill(
            path,
            tables=table_name,
            figures=figure,
            datasets=datasets.split(",") if datasets else None,
            methods=methods.split(",") if methods else None,
            seeds=seeds,
            root=data_root,
            resume=resume,
            engine=engine,
            workers=workers,
            address=address,
            progress=step,
        )
    if as_json:
        print_json(result)
        return
    for shown in terminal(result):
        out.print(shown)
    for name, why in result.get("missing", {}).items():
        say(f"{name} is left out. {why}")
    out.print(f"Everything is in {path}", soft_wrap=True, highlight=False)


@app.command()
def bench(
    full: o.Full = False,
    data_root: o.Root = None,
    as_json: o.Json = False,
) -> None:
    """Measure speed as ratios within one run, one thread each.

    Example: cf2 bench --json
    """
    from cf2.bench import run

    with named_bar("measuring") as step:
        found = run(full=full, root=data_root, progress=step)
    if as_json:
        print_json(found)
        return
    rows = [[name, "–" if value is None else f"{value:,.3g}"] for name, value in found.items()]
    out.print(table("Measured in this run", ("what", "figure"), rows))
