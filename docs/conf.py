"""How the site is built: `sphinx-build -W --keep-going docs docs/_build`. Nothing is fetched from a network."""

from __future__ import annotations

import html
import re
from importlib.metadata import version as installed
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.utils.math import MathError, latex2mathml
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util import logging

from cf2.options import Spec

logger = logging.getLogger(__name__)

project = "cf2"
author = copyright = "the cf2 developers"
version = release = installed("cf2")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["config.cache", "ref.python"]  # two classes have a property `edges`

highlight_language = "sh"  # of a block that names none
html_theme = "furo"
html_title = f"cf2 {release}"
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_static_path, html_css_files = ["_static"], ["site.css"]
pygments_style, pygments_dark_style = "friendly", "monokai"

default_role = "literal"  # docstrings write `name` for code
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = False

NAPOLEON = Config()


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_directive("command-help", CommandHelp)
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)


# -- formulas: MathML made here, so that a page needs no script from elsewhere ---------------------------------


def inline_math(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def block_math(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def mathml(node: nodes.Element, as_block: bool) -> str:
    """A formula as MathML; one that cannot be converted is a warning, which fails the build."""
    try:
        return latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("%s in the formula %s", error, node.astext(), location=node)
        return f"<code>{html.escape(node.astext())}</code>"


# -- pages: what GitHub shows plainly, and the site in its own way -----------------------------------------------


def read_page(app: Any, docname: str, source: list[str]) -> None:
    """Links out of `docs` become plain text, bold links buttons, and tables of names the full docstrings."""
    text = re.sub(r"(?<!\!)\[([^\]]*)\]\(\.\./([\w./-]+)(#[\w-]*)?\)", r"\1 (`\2`)", source[0])
    text = re.sub(r"\*\*(\[[^\]]+\]\([^)]+\))\*\*", r"\1{.button}", text)
    text = re.sub(r"<!-- names (.*?) -->\n.*?<!-- end -->", docstrings, text, flags=re.DOTALL)
    source[0] = re.sub(r"The fields of an explanation:\n\n<!-- fields .*?<!-- end -->", "", text, flags=re.DOTALL)


def docstrings(names: re.Match[str]) -> str:
    """Directives that show the docstrings of some names, `cf2.name` or `cf2.Class:member,member`."""
    parts = []
    for entry in names[1].split():
        name, _, members = entry.partition(":")
        kind = "class" if name.split(".")[-1][0].isupper() else "function"
        kind = "exception" if name.endswith("Error") else kind
        parts.append(f".. auto{kind}:: {name}\n" + (f"   :members: {members.replace(',', ', ')}\n" if members else ""))
    return "```{eval-rst}\n" + "\n".join(parts) + "```"


# -- docstrings ------------------------------------------------------------------------------------------------


def read_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """From a NumPy docstring to reStructuredText.

    The options of a Spec become a list. Of a property, napoleon would take the words before a colon for its type, so it
    is read like a method.
    """
    entries = re.sub(r"\n {4,}(?=\S)", " ", "\n".join(lines)) if obj is Spec else ""
    lines[:] = re.sub(r"(?m)^(\w+): ", r"- ``\1``: ", entries).splitlines() or lines
    _escape(lines)
    kind = "method" if what == "property" else what
    lines[:] = NumpyDocstring(lines, NAPOLEON, app, kind, name, obj, options).lines()


def _escape(lines: list[str]) -> None:
    """Leave code and *emphasis* alone and escape what reStructuredText would misread, such as |x| and **kwargs."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", "..")):
            parts = re.split(r"(`+[^`]*`+)", line)
            parts[::2] = [
                re.sub(r"\*\*|\||(?<=\w)_(?=\W|$)", lambda hit: "\\" + "\\".join(hit[0]), p) for p in parts[::2]
            ]
            lines[number] = "".join(parts)


# -- the command line ------------------------------------------------------------------------------------------


class CommandHelp(Directive):
    """The help of every command, as the program itself prints it."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name, text in help_pages().items():
            title = f"cf2 {name}".strip()
            section = nodes.section(ids=[nodes.make_id(title)], names=[title.lower()])
            section += [nodes.title(text=title), nodes.literal_block(text, text, language="text")]
            found.append(section)
        return found


def help_pages(width: int = 78) -> dict[str, str]:
    """The plain help text of the program ("") and of each of its commands."""
    import click
    import typer

    from cf2.cli.commands import app

    group: Any = typer.main.get_command(app)
    context = click.Context(group, info_name="cf2", terminal_width=width, max_content_width=width)
    commands = {"": group} | {name: group.get_command(context, name) for name in group.list_commands(context)}
    pages = {}
    for name, command in commands.items():
        command.rich_markup_mode = None  # plain text, without boxes
        inner = click.Context(command, info_name=name, parent=context) if name else context
        pages[name] = command.get_help(inner)
    return pages
