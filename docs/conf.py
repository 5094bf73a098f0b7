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

logger = logging.getLogger(__name__)

project = "cf2"
author = copyright = "the cf2 developers"
version = release = installed("cf2")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["config.cache"]

highlight_language = "sh"  # of a block that names none
html_theme = "furo"
html_title = f"cf2 {release}"
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "monokai"

default_role = "literal"  # docstrings write `name` for code
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = False

NAPOLEON = Config()

# Pages that a command makes, or that come with a part that may not be installed: the site builds without them.
OPTIONAL = {"methods", "pyg", "report", "results"}


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_directive("command-help", CommandHelp)
    app.connect("source-read", drop_missing_pages)
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


# -- pages that are not there yet ------------------------------------------------------------------------------


def drop_missing_pages(app: Any, docname: str, source: list[str]) -> None:
    """Take missing pages out of the contents, and turn links to them, or to files beside `docs`, into plain text."""
    source[0] = re.sub(r"\[([^\]]*)\]\(\.\./([\w./-]+)(#[\w-]*)?\)", r"\1 (`\2`)", source[0])
    for name in OPTIONAL - app.env.found_docs:
        text = re.sub(rf"^{name}$\n?", "", source[0], flags=re.MULTILINE)
        source[0] = re.sub(rf"\[([^\]]*)\]\({name}\.md(#[\w-]*)?\)", r"\1", text)


# -- docstrings ------------------------------------------------------------------------------------------------


def read_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """From a NumPy docstring to reStructuredText.

    Of a property, napoleon would take the words before a colon for its type, so it is read like a method.
    """
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
        try:
            pages = help_pages()
        except ImportError:
            return [nodes.note("", nodes.paragraph(text="The command line was not installed when this page was made."))]
        found: list[nodes.Node] = []
        for name, text in pages.items():
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
