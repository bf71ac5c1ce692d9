"""Comparison of a container image with the lock, the applied stack and the wheels in ``dist/SET``."""

from __future__ import annotations

from pathlib import Path

from patchq.build import _attest
from patchq.build.reference import wheels_of
from patchq.environment.image import read_image
from patchq.environment.inspect_image import Expected, ImageVerdict, Signer, judge_image
from patchq.errors import UserError
from patchq.project.project import Project
from patchq.stacks.applied import compute_stack_id, patched_upstreams, read_applied
from patchq.system import fsio, project_files


def check_image(project: Project, path: Path, *, set_name: str = "", platform: str = "") -> ImageVerdict:
    """Compare a container image with the lock, the applied stack and the wheels, and return the result.

    :raises UserError: if the image can't be read, if the set isn't applied, or if the set's wheels aren't built.
    """
    set_name = project.choose_set(set_name)
    applied = read_applied(project, set_name, edits_matter=False)
    patched = patched_upstreams(project, applied)
    packages = {}
    for a in applied:
        if a.build and a.stack.pin.upstream in patched:
            packages[a.build.distribution] = a.build.package
    if not packages:
        raise UserError(
            f"the set {set_name} has no patches, so its images hold upstream's own releases",
            hint="`patchq list` shows the patches of each stack",
        )
    references, wrong = wheels_of(project, set_name)
    changed = [r.name for r in references if r.changed] + wrong
    if not references or changed:
        if changed:
            what = f"{changed[0]} was changed after it was built"
        else:
            what = f"dist/{set_name} has no wheels to compare with"
        raise UserError(what, hint="`patchq build` makes the same wheels again")
    signing = project.lock.signing
    expected = Expected(
        stack_id=compute_stack_id(applied),
        lock_sha256=project_files.hash_file(project.layout.root, project.layout.lock),
        set_name=set_name,
        packages=packages,
        references=references,
        statement=fsio.read_or_none(project.layout.dist / set_name / _attest.NAME),
        materials=fsio.read_or_none(project.layout.dist / set_name / "patchq.cdx.json"),
        signer=Signer(signing, project.layout.root) if signing else None,
        rules=project.lock.verify,
    )
    return judge_image(read_image(path, platform), expected)
