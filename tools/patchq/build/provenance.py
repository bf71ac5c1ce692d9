"""Manifest ``_patchq.json``, which each wheel contains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from patchq.build.job import Job
from patchq.formats.lock import BuildConfig
from patchq.project.project import Project
from patchq.stacks.applied import Applied
from patchq.system import fsio


def manifest(
    job: Job,
    item: Applied,
    config: BuildConfig,
    version: str,
    profile: str,
    files: Mapping[str, bytes],
    left_out: Sequence[str] = (),
    siblings: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Return a dict with one entry: a wheel's manifest by its path in the wheel.

    :param files: patched members of the wheel.
    :param left_out: patches of the stack that the wheel doesn't contain.
    :param siblings: distributions and versions that the wheel pins; default: the rest of the set.
    """
    upstream = item.stack.pin.upstream
    contains = []
    upstreams = []
    for a in job.applied:
        if a.stack.pin.upstream == upstream:
            contains.append(upstream)
            upstreams.append(_describe(job.project, item))
        else:
            upstreams.append(_describe(job.project, a))
            if job.is_nested(a, item):
                contains.append(a.stack.pin.upstream)
    body = {
        "schema": "patchq/wheel/1",
        "set": job.set_name,
        "stack_id": job.stack_id,
        "distribution": config.distribution,
        "package": config.package,
        "version": version,
        "profile": profile,
        "contains": contains,
        "upstreams": upstreams,
        "left_out": [f"{upstream}/{name}" for name in left_out],
        "siblings": job.siblings(item) if siblings is None else dict(siblings),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    return {f"{config.package}/_patchq.json": fsio.dump_json(body)}


def _describe(project: Project, item: Applied) -> dict[str, Any]:
    pin, state = item.stack.pin, item.state
    commits = [p.applied.commit for p in state.patches]
    ids = dict(zip(commits, project.store.patch_ids_of(commits), strict=True))
    patches = []
    for remembered in state.patches:
        name = remembered.applied.name
        header, _ = item.stack.load(name)
        patches.append(
            {
                "name": name,
                "subject": header.subject,
                "topic": header.value("Topic"),
                "upstream_status": header.value("Upstream-Status"),
                "sha256": remembered.sha256,
                "patch_id": ids.get(remembered.applied.commit, ""),
            }
        )
    return {
        "name": pin.upstream,
        "ref": pin.ref,
        "commit": pin.commit,
        "archive": pin.archive,
        "sha256": pin.sha256,
        "subdir": pin.subdir,
        "source": state.source,
        "base": state.base,
        "tip": state.tip,
        "tree": state.tree,
        "patches": patches,
    }
