"""Templates to text: the only importer of jinja2. HTML is escaped, a name that isn't there is an error."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchq.names import TEXT

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext

FOLDER = Path(__file__).parent.parent / "templates"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_eval_context

    @pass_eval_context
    def show(context: EvalContext, value: object) -> object:
        """Return a page's value without characters that hide or turn others; our own markup stays."""
        if context.autoescape and isinstance(value, str) and not hasattr(value, "__html__"):
            return value.translate(TEXT)
        return value

    found = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=show,
        autoescape=lambda name: bool(name and ".html" in name),
    )
    found.filters.update(md=markdown_text, sh=shlex.quote, docker=_docker_text, yaml=_yaml_text)
    return found


def render(template: str, **values: Any) -> str:
    """The text of a template below ``templates/``."""
    return _environment().get_template(template).render(**values)


def raw(text: str) -> str:
    """Text of our own that is to stand in a page as it is."""
    from markupsafe import Markup

    return Markup(text)


def markdown_text(value: str) -> str:
    """Somebody's words as one line of Markdown that can't become markup, a link or a table cell's end."""
    line = "".join(c if c.isprintable() else " " for c in str(value))
    line = re.sub(r"([\\`*_{}\[\]()#+!|~<>])", r"\\\1", line)
    # A mention or an address would become a link by itself.
    return line.replace("@", "@\u200b").replace("://", ":\u200b//")


def _docker_text(value: str) -> str:
    """A value of a Dockerfile's ENV, in which nothing is a variable."""
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _yaml_text(value: object) -> str:
    """A value of a compose file, in which nothing is a variable: JSON, which YAML is too."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
