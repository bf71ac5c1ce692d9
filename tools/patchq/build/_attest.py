"""In-toto statement with the SLSA provenance of a set's wheels. Every machine produces the same bytes.

https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance. :mod:`patchq.environment.signatures` signs the
statement.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from patchq import __version__
from patchq.build.job import Job
from patchq.errors import without_secrets
from patchq.project.stack import Stack
from patchq.system import fsio, project_files

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
#: Build type. docs/reference/formats.md describes its parameters.
BUILD_TYPE = "https://patchq.dev/build/v1"
BUILDER = "https://patchq.dev/patchq"
#: File name of the statement, next to the wheels and in images.
NAME = "provenance.json"


def statement(job: Job, wheels: Mapping[str, str]) -> bytes:
    """Return the contents of the statement file for ``wheels`` (SHA-256 by file name)."""
    layout = job.project.layout
    lock = project_files.hash_file(layout.root, layout.lock)
    pins: list[dict[str, Any]] = []
    patches: list[dict[str, Any]] = []
    for a in job.applied:
        pins.append(_pin(a.stack))
        for p in a.state.patches:
            patches.append(_patch(a.stack, p.applied.name))
    body = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(wheels.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"set": job.set_name, "stackId": job.stack_id},
                "internalParameters": {},
                "resolvedDependencies": [
                    {"uri": "upstream.lock", "digest": {"sha256": lock}},
                    *pins,
                    *patches,
                ],
            },
            "runDetails": {"builder": {"id": BUILDER, "version": {"patchq": __version__}}},
        },
    }
    return fsio.dump_json(body)


def _pin(stack: Stack) -> dict[str, Any]:
    pin = stack.pin
    digest: dict[str, str] = {}
    if pin.commit:
        digest["gitCommit"] = str(pin.commit)
    if pin.sha256:
        digest["sha256"] = pin.sha256
    if pin.url:
        uri = f"git+{without_secrets(pin.url)}@{pin.ref}"
    else:
        uri = f"pkg:pypi/{pin.archive.replace('==', '@')}"
    return {"name": pin.upstream, "uri": uri, "digest": digest}


def _patch(stack: Stack, name: str) -> dict[str, Any]:
    folder = f"patches/{stack.pin.upstream}/{stack.path('x').parent.name}"
    return {"uri": f"{folder}/{name}.patch", "digest": {"sha256": hashlib.sha256(stack.read(name)).hexdigest()}}
