"""Each JSON answer that a test sees, against the JSON Schema of its verb that the package carries."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import patchq

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

FOLDER = Path(patchq.__file__).parent / "schemas"


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """Of one schema, by its verb."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text()))


def check(body: dict[str, Any]) -> str:
    """Check an answer; returns the name of its schema."""
    tool, name, version = body["schema"].split("/")
    assert (tool, version) == ("patchq", "1")
    wrong = [f"{e.json_path}: {e.message[:400]}" for e in validator(name).iter_errors(json.loads(json.dumps(body)))]
    assert not wrong, f"{body['schema']} is not what tools/patchq/schemas/{name}.json says: {wrong}"
    return str(name)
