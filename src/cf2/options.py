"""The options and arguments of the commands, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
Root = Annotated[
    Path | None,
    typer.Option("--data-root", help="Where the raw data sets are; else CF2_DATA, else the cache."),
]
Engine = Annotated[str, typer.Option(help="Where the work runs: local, processes or ray.")]
Workers = Annotated[int | None, typer.Option(min=1, help="How many workers; all cores if not given.")]
Address = Annotated[str | None, typer.Option(help="The Ray cluster to use; a local one if not given.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
RunPath = Annotated[Path, typer.Argument(help="The directory of a run, made by `cf2 explain … --out`.")]
Directory = Annotated[Path, typer.Option("--out", help="Where the report goes.")]
Nodes = Annotated[int, typer.Option(min=1, help="How many nodes to explain.")]
Retrain = Annotated[bool, typer.Option("--retrain", help="Train the base model instead of loading it.")]
Dataset = Annotated[str, typer.Argument(help="The name of a data set; see `cf2 datasets`.")]
Arch = Annotated[str, typer.Option(help="gcn, gin, gat or sage.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides the split and the first weights.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="As the data set's recipe says, if not given.")]
TrainPath = Annotated[Path | None, typer.Option("--out", help="Where to save; without ending.")]
ExplainDataset = Annotated[str | None, typer.Argument(help="A data set with its shipped or given model.")]
Data = Annotated[str | None, typer.Option(help="MODULE:FUNCTION that returns (model, data). This runs your code.")]
Method = Annotated[list[str] | None, typer.Option(help="See `cf2 methods`; may be given several times.")]
ExplainNodes = Annotated[str | None, typer.Option(help="Ids of nodes or graphs, such as 3,17,40-44.")]
ExplainPath = Annotated[Path | None, typer.Option("--out", help="The directory of the run.")]
Checkpoint = Annotated[Path | None, typer.Option(help="A model saved by `cf2 train`.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="A setting, such as epochs=100.")]
Features = Annotated[bool, typer.Option(help="Explain by feature entries.")]
Edges = Annotated[bool, typer.Option(help="Explain by edges.")]
Search = Annotated[bool, typer.Option(help="Search for a verified set from the method's scores.")]
ExplainSeed = Annotated[int | None, typer.Option(min=0, help="Draw a random start; none: a fixed one.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Explain under so many seeds.")]
MaxUnits = Annotated[
    int | None, typer.Option(min=1, help="The most units an instance may have; a larger one is not explained.")
]
Reduce = Annotated[str | None, typer.Option(help="gradient: keep the units that matter most.")]
EvaluateMethod = Annotated[str | None, typer.Option(help="One method of the run; the first if not given.")]
ReportPath = Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")]
Pictures = Annotated[int, typer.Option(min=0, help="How many instances to draw.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Only this machine, unless told otherwise.")]
ReproducePath = Annotated[Path, typer.Option("--out", help="Where tables, figures and runs go.")]
TableName = Annotated[list[str] | None, typer.Option("--table", help="truth, causal, accuracy, …")]
Figure = Annotated[list[str] | None, typer.Option(help="alpha or cases.")]
Datasets = Annotated[str | None, typer.Option(help="Names, separated by commas.")]
Methods = Annotated[str | None, typer.Option(help="Names, separated by commas.")]
ReproduceSeeds = Annotated[int, typer.Option(min=1, help="Retrain the base models so many times.")]
Full = Annotated[bool, typer.Option("--full", help="Measure the curves of the documentation, too.")]


def parse_setting(text: str) -> tuple[str, Any]:
    """`epochs=100` -> ("epochs", 100); what is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"Expected a setting as NAME=VALUE, but got {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_ids(text: str) -> list[int]:
    """`3,17,40-44` -> the seven ids it names."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise typer.BadParameter(f"Expected ids such as 3,17,40-44, but got {text!r}.")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def one_of(what: str, value: str, known: Any) -> str:
    """A name that must be known: bad usage (exit 2) if it is not."""
    from cf2.errors import unknown_name

    if value not in known:
        raise typer.BadParameter(str(unknown_name(what, value, known)))
    return value
