"""Rendering of templates. Only this module imports jinja2. HTML is escaped; undefined names are errors."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchq.names import TEXT, counted

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext

FOLDER = Path(__file__).parent.parent / "templates"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_eval_context

    @pass_eval_context
    def show(context: EvalContext, value: object) -> object:
        """Escape invisible characters, and characters that change the text direction, in a value on an HTML page.

        patchq's own markup is not escaped.
        """
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
    found.globals["counted"] = counted
    found.filters.update(md=markdown_text, sh=shlex.quote, docker=_docker_text, yaml=_yaml_text)
    return found


def render(template: str, **values: Any) -> str:
    """Return the text of a template below ``templates/``."""
    return _environment().get_template(template).render(**values)


def raw(text: str) -> str:
    """Mark patchq's own text as safe for an HTML page, so that templates don't escape it."""
    from markupsafe import Markup

    return Markup(text)


def markdown_text(value: str) -> str:
    """Return untrusted text as one line of Markdown, with markup, links and cell separators escaped."""
    line = "".join(c if c.isprintable() else " " for c in str(value))
    line = re.sub(r"([\\`*_{}\[\]()#+!|~<>])", r"\\\1", line)
    # Markdown turns mentions and addresses into links.
    return line.replace("@", "@\u200b").replace("://", ":\u200b//")


def _docker_text(value: str) -> str:
    """Quote a value for a Dockerfile's ENV, without variable expansion."""
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _yaml_text(value: object) -> str:
    """Quote a value for a compose file, without variable expansion.

    JSON quoting is used, because JSON is valid YAML.
    """
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
