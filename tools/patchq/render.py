"""Templates to text: the only importer of jinja2. HTML is escaped, a name that isn't there is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=lambda name: bool(name and ".html" in name),
    )  # fmt: skip


def render(template: str, **values: Any) -> str:
    """The text of a template below ``templates/``."""
    return _environment().get_template(template).render(**values)
