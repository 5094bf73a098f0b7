"""The commands, one short function each. Everything heavy is imported where it is used."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2 import __version__
from cf2.cli import options as o
from cf2.cli.runs import REPORT, check, evaluate, list_runs, patterns, report
from cf2.cli.terminal import (
    GO_ON,
    Commands,
    Debug,
    bar,
    cell,
    comparison_table,
    if_stopped,
    kept_in,
    named_bar,
    out,
    percent,
    print_json,
    remarks,
    say,
    table,
    tell,
)

if TYPE_CHECKING:
    from cf2.options import Spec

app = typer.Typer(
    name="cf2",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEMO = Path("cf2-demo")
DEMO_SETTINGS = {"k": 6, "lam": 500, "threshold": 0.5}  # a house has six edges; λ and the cut are the paper's


def _version(asked: bool) -> None:
    if asked:
        out.print(f"cf2 {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Explain predictions of graph neural networks by small sets that are verified as sufficient and necessary.

    Example: cf2 demo
    """


@app.command()
def demo(directory: o.Directory = DEMO, nodes: o.Nodes = 30, as_json: o.Json = False) -> None:
    """Explain nodes of the BA-Shapes data set with several methods, compare them, and write a report.

    Example: cf2 demo --nodes 10 --out /tmp/demo
    """
    from cf2.report.html import write_report
    from cf2.runs import comparison
    from cf2.samples.sources import from_dataset
    from cf2.storage import check_place

    if_stopped("The report is written at the end, so nothing was saved. Start again.")
    check_place(directory / REPORT)
    source, specs = from_dataset("ba-shapes"), _demo_specs()
    with TemporaryDirectory() as place, bar("explaining", nodes * len(specs)) as step:
        run = comparison.explain(
            Path(place) / "run", source, specs, keys=source.keys()[:nodes], resume=False, progress=step
        )
        by_method = {row["method"]: row for row in comparison.summaries(run)}
        rows = [by_method[spec.method] for spec in specs]
        results = [run.explanations(spec.method) for spec in specs]
    path = write_report(results, directory / REPORT, title="cf2 demo: BA-Shapes").resolve()
    if as_json:
        print_json({"rows": rows, "report": str(path)})
    else:
        say(comparison.rules_in_words(rows))
        out.print(comparison_table(f"BA-Shapes, {len(results[0])} nodes, percent", rows))
        out.print(f"The report is at {path}", soft_wrap=True, highlight=False)


def _demo_specs() -> list[Spec]:
    """Methods that need nothing beside the model, score edges, and are quick: a `budget` is what dear ones have."""
    from cf2.methods import registry
    from cf2.options import Spec

    known = [registry.get(name) for name in registry.names()]
    quick = [m for m in known if m.needs == "nothing" and "budget" not in {f.name for f in fields(m.settings)}]
    return [
        Spec(
            method=m.name,
            seed=registry.draw_seed(m.name, None),
            settings={name: value for name, value in DEMO_SETTINGS.items() if name in m.paper},
        )
        for m in quick
        if m.units is None or "edges" in m.units
    ]


@app.command()
def datasets(data_root: o.Root = None, as_json: o.Json = False) -> None:
    """List the data sets. Edges are undirected; nodes and edges are means per graph.

    Example: cf2 datasets --json
    """
    from cf2.samples.registry import overview

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
            tell(f"{row['name']} is not available. {row['problem']}")


@app.command()
def doctor(as_json: o.Json = False) -> None:
    """Report what is installed, which optional parts are missing, and what they are for.

    Example: cf2 doctor
    """
    from cf2.cli.doctor import examine
    from cf2.cli.doctor import remarks as advice

    facts = examine()
    if as_json:
        print_json(facts)
        return
    machine = ("cf2", "python", "system", "cores", "torch_threads", "gpu", "free_gigabytes", "chromium")
    rows = [[name.replace("_", " "), "–" if facts[name] is None else cell(facts[name])] for name in machine]
    rows += [[name, version or "missing"] for name, version in facts["required"].items()]
    out.print(table("This installation", ("what", "version or value"), rows))
    rows = [
        [part["extra"], "missing" if part["missing"] else "installed", part["gives"], part["megabytes"]]
        for part in facts["extras"]
    ]
    out.print(table("Optional parts", ("extra", "state", "what it gives", "MB"), rows))
    for sentence in advice(facts):
        tell(sentence)


@app.command()
def methods(as_json: o.Json = False) -> None:
    """List the methods with a one-line summary.

    Example: cf2 methods
    """
    from cf2.methods import registry

    known = [registry.get(name) for name in registry.names()]
    names = ("name", "summary", "units", "levels", "searches", "draws", "needs")
    if as_json:
        print_json([{name: getattr(method, name) for name in names} for method in known])
    else:
        out.print(table("Methods", ("name", "summary"), [[method.name, method.summary] for method in known]))


@app.command()
def train(
    dataset: o.Dataset,
    arch: o.Arch = None,
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
    from cf2.samples import from_clone, training
    from cf2.samples import registry as sets
    from cf2.samples.models import ARCHITECTURES, TYPED_ARCHITECTURES
    from cf2.storage import check_place

    if arch is not None:
        o.one_of("`--arch`", arch, (*ARCHITECTURES, *TYPED_ARCHITECTURES))
    recipe_for = from_clone(".", "reproduction.training").recipe_for
    data = sets.load(dataset, root=data_root)
    arch = recipe_for(data, arch).arch
    place = path or Path(f"{dataset.replace(':', '-')}-{arch}-{seed}")
    check_place(place.with_name(f"{place.name}.json"))
    if_stopped("Nothing was saved. A model is written when its training has finished.")
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
    saved = training.save(place, model, about)
    facts = {"dataset": dataset, "arch": arch, "seed": seed, "path": str(saved)}
    scores = ("train_accuracy", "validation_accuracy", "test_accuracy", "metric", "seconds")
    facts |= {name: getattr(about, name) for name in scores}
    if as_json:
        print_json(facts)
        return
    score = f"{percent(about.test_accuracy)} %" if about.metric == "accuracy" else f"{about.test_accuracy:.3f}"
    out.print(f"Test {about.metric} {score}, saved at {saved}", soft_wrap=True, highlight=False)


@app.command(cls=o.WithSettings)
@o.with_spec_options
def explain(
    dataset: o.ExplainDataset = None,
    data: o.Data = None,
    chemprop: o.Chemprop = None,
    nodes: o.ExplainNodes = None,
    pairs: o.ExplainPairs = None,
    path: o.ExplainPath = None,
    checkpoint: o.Checkpoint = None,
    setting: o.Setting = None,
    seeds: o.Seeds = None,
    resume: o.Resume = False,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    address: o.Address = None,
    data_root: o.Root = None,
    as_json: o.Json = False,
    **options: Any,
) -> None:
    """Explain predictions, verify the explanations, and store them in a run directory.

    Example: cf2 explain ba-shapes --method cf2 --nodes 300-310 --out runs/first

    Example: cf2 explain --data mine:load --nodes 3,17 --units auto

    Example: cf2 explain mutag0 --question counterfactual --edits remove,add --valid molecule
    """
    from cf2.methods import registry
    from cf2.report.words import count_nouns
    from cf2.results.names import Names
    from cf2.runs import comparison
    from cf2.runs.engines import ENGINES
    from cf2.samples.sources import from_chemprop, from_dataset, from_function

    if (dataset is None) == (data is None):
        raise typer.BadParameter("Give either a data set or --data MODULE:FUNCTION.")
    if chemprop is not None and data is None:
        raise typer.BadParameter("Give the molecules of the Chemprop model: --data molecules.csv.")
    o.one_of("`--engine`", engine, ENGINES)
    keys = o.parse_keys(nodes, pairs, options)
    seed, target = options.pop("seed"), options.pop("target")
    target = int(target) if target is not None and target.isdecimal() else target  # else the name of a class
    if options["contexts"] is None:
        options["contexts"] = o.DEFAULT_CONTEXTS if options["surely"] is None else 0
    specs = comparison.make_specs(
        methods=[o.one_of("`--method`", name, registry.names()) for name in options.pop("method") or ["cf2"]],
        seeds=tuple(range(seeds)) if seeds else (seed,),
        questions=list(dict.fromkeys(part.strip() for part in options.pop("question").split(","))),
        settings=dict(o.parse_setting(text) for text in setting or ()),
        options=options,
    )
    if chemprop is not None:
        source, target = from_chemprop(chemprop, str(data), target)
    elif dataset is not None:
        source = from_dataset(dataset, checkpoint=checkpoint, root=data_root)
    else:
        source = from_function(str(data))
    specs = [replace(spec, target=Names(source.class_names or None).number(target)) for spec in specs]
    o.check_level(source.name, source.level, nodes, pairs)
    path = comparison.new_path(source.name, specs, resume) if path is None else path
    if_stopped(partial(kept_in, path))
    with bar("explaining", None if keys is None else len(keys) * len(specs)) as step:
        run = comparison.explain(
            path,
            source,
            specs,
            keys=keys,
            resume=resume,
            engine=engine,
            workers=workers,
            address=address,
            progress=step,
        )
    rows = comparison.summaries(run)
    if as_json:
        print_json({"run": str(path), "rows": rows})
        return
    say(comparison.rules_in_words(rows))
    title = f"{source.name}, {count_nouns(len(run.keys), 'instance')}, percent"
    out.print(comparison_table(title, rows))
    remarks(rows, options["max_units"])
    out.print(f"The run is at {path}. To view it: cf2 report {path} -o report.html", soft_wrap=True, highlight=False)


COUNTERFACTUAL = """Find the smallest edits that change a prediction, verify them, and store them in a run directory.

Example: cf2 counterfactual mutag0 --edits remove,add,change --valid molecule --to 1

Example: cf2 counterfactual --data mine:load --nodes 3,17 --edits add
"""
app.command("counterfactual", cls=o.WithSettings, help=COUNTERFACTUAL)(o.as_counterfactual(explain))


@app.command()
def serve(
    run: o.RunPath, port: o.Port = 8050, host: o.Host = "127.0.0.1", trust: o.Trust = False, data: o.SameData = None
) -> None:
    """Serve the what-if page of a run on this machine: remove edges and see how the prediction changes.

    Example: cf2 serve runs/first --port 8050
    """
    from cf2.runs.store import Store, partial_sentence
    from cf2.samples.sources import trusted
    from cf2.web import serve as start

    opened = Store.open(run)
    agreed = trusted(opened.manifest.get("source"), trust=trust, data=data)
    if said := partial_sentence(opened.finished()):
        tell(said)
    ready = "The page is at {} (press Ctrl-C to stop)"
    start(opened, host=host, port=port, trust=agreed, ready=lambda address: tell(ready.format(address)))


app.command()(evaluate)
app.command()(report)
app.command("runs")(list_runs)
app.command()(check)
app.command()(patterns)


@app.command()
def reproduce(
    path: o.ReproducePath,
    table_name: o.TableName = None,
    figure: o.Figure = None,
    datasets: o.Datasets = None,
    methods: o.Methods = None,
    seeds: o.ReproduceSeeds = 5,
    instances: o.Instances = "20",
    resume: o.Resume = False,
    engine: o.ReproduceEngine = None,
    workers: o.Workers = None,
    address: o.Address = None,
    data_root: o.Root = None,
    as_json: o.Json = False,
) -> None:
    """Reproduce the paper's tables and figures next to the published values. Requires a clone of the repository.

    Example: cf2 reproduce --table causal --datasets ba-shapes,tree-cycles --out runs/paper
    """
    from cf2.runs import engines
    from cf2.samples import from_clone

    paper = from_clone(".", "reproduction")
    if_stopped(f"Finished work is stored in {path}. {GO_ON}")
    with named_bar("reproducing") as step:
        result = paper.reproduce(
            path,
            tables=table_name,
            figures=figure,
            datasets=datasets.split(",") if datasets else None,
            methods=methods.split(",") if methods else None,
            seeds=seeds,
            instances=o.number_or_all("--instances", instances),
            root=data_root,
            resume=resume,
            engine=engine or ("processes" if engines.cores() > 1 else "local"),
            workers=workers,
            address=address,
            progress=step,
        )
    if as_json:
        print_json(result)
        return
    for shown in paper.tables.terminal(result):
        out.print(shown)
    for name, why in result.get("missing", {}).items():
        tell(f"{name} was left out. {why}")
    out.print(f"Everything is in {path}", soft_wrap=True, highlight=False)


@app.command()
def bench(full: o.Full = False, data_root: o.Root = None, as_json: o.Json = False) -> None:
    """Measure speed as ratios within one run, on one thread each. Requires a clone of the repository.

    Example: cf2 bench --json
    """
    from cf2.samples import from_clone

    if_stopped("Nothing was saved. Start again.")
    measure = from_clone("benchmarks", "bench").run
    with named_bar("measuring") as step:
        figures = measure(full=full, root=data_root, progress=step)
    if as_json:
        print_json(figures)
        return
    rows = [[name, "–" if value is None else f"{value:,.3g}"] for name, value in figures.items()]
    out.print(table("Measured in this run", ("what", "figure"), rows))
