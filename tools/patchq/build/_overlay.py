"""Overlay builds: copies of the release's wheel in which the patched Python files replace the original ones.

Nothing is compiled.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from patchq.build import platforms, wheel
from patchq.build.contents import WheelInfo, inspect_wheel
from patchq.build.job import Job, Made
from patchq.build.provenance import manifest
from patchq.errors import BuildError, ConflictError
from patchq.formats.diff import REGULAR
from patchq.formats.lock import BuildConfig
from patchq.git.replay import leave_out
from patchq.names import show_path
from patchq.stacks.applied import Applied
from patchq.system import fsio

_COMPILED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".pyx", ".so")


def build_overlay(job: Job, item: Applied, config: BuildConfig, version: str) -> Made:
    """Copy the release's wheel to ``dist/SET``, with a stack's Python files in place of the original ones.

    :raises BuildError: if the stack changes files that an overlay can't contain, or if there is no release wheel.
    """
    item, left_out = _without_compiled(job, item)
    source, sha256 = platforms.release_wheel(job, item.stack.pin, config)
    info = _checked(job, source, sha256)
    members = set(info.members)
    files: dict[str, bytes] = {}
    gone: list[str] = []
    refused: list[str] = []
    skipped: list[str] = []
    for path, data in job.touched(item):
        name = show_path(path)
        inside = name == f"{config.package}.py" or name.startswith(config.package + "/")
        if any(fnmatch.fnmatch(name, pattern) for pattern in config.ignore):
            skipped.append(name)
        elif not inside or name.endswith(_COMPILED) or (name not in members and not name.endswith(".py")):
            refused.append(name)
        elif data is None:
            gone.append(name)
        else:
            files[name] = data
    if refused:
        raise BuildError(
            f"{item.stack.pin.upstream}: an overlay can change only the package's Python, not {', '.join(refused)}",
            hint=f"`patchq build {item.stack.pin.upstream} --profile source`",
        )
    if config.version_file and config.version_file in members:
        old = info.read([config.version_file])[config.version_file]
        files[config.version_file] = wheel.set_version(old, version)
    files |= manifest(job, item, config, version, "overlay", files, left_out)
    target = job.dist / wheel.wheel_name(source.name, version)
    wheel.overlay(source, target, version, job.siblings(item), files, gone)
    notes = []
    if skipped:
        notes = [f"not part of the wheel: {', '.join(skipped)}"]
    if modes := [name for name in _changed_modes(job, item) if name in files]:
        notes.append(
            f"not part of the wheel: the file mode of {', '.join(modes)} (an overlay keeps the release's modes)"
        )
    if left_out:
        notes.append(f"skipped, as they must be compiled (--profile source): {', '.join(left_out)}")
    return Made(target, tuple(notes), left_out)


def _changed_modes(job: Job, item: Applied) -> list[str]:
    """Return the files whose executable bit the stack changes."""
    modes: list[str] = []
    for change in job.project.store.changes(item.state.base, item.state.tip):
        if change.new and change.new.mode != (change.old.mode if change.old else REGULAR):
            modes.append(show_path(change.path))
    return modes


def _checked(job: Job, source: Path, sha256: str) -> WheelInfo:
    """Check all members of a release wheel, and return its contents.

    The hash in the lock identifies the wheel, so each wheel is checked only once.
    """
    info = inspect_wheel(source)
    done = job.project.layout.private / "wheels" / f"{sha256}.checked"
    if not done.exists():
        info.check()
        fsio.write_atomic(done, b"")
    return info


def _without_compiled(job: Job, item: Applied) -> tuple[Applied, tuple[str, ...]]:
    """Omit those patches of a stack that must be compiled.

    Return the remaining stack and the names of the omitted patches.

    A patch with ``Build: source`` is omitted as a whole, because its Python code may depend on its compiled code.
    Patches that require an omitted patch are omitted, too.
    """
    upstream, state, store = item.stack.pin.upstream, item.state, job.project.store
    names = [p.applied.name for p in state.patches]
    gone: list[str] = []
    for name, header in item.stack.headers():
        needs_one = any(f"{upstream}/{g}" in header.values("Requires") for g in gone)
        if name in names and (header.value("Build") == "source" or needs_one):
            gone.append(name)
    if not gone:
        return item, ()

    def conflicted(name: str, error: ConflictError) -> NoReturn:
        raise BuildError(
            f"{upstream}: {name} doesn't apply without {', '.join(gone)}, which an overlay leaves out",
            hint=f"move {name} before them with `patchq move`, add `Requires:` to it, or build with --profile source",
        ) from error

    commits = list(zip(names, store.log(f"{state.base}..{state.tip}"), strict=True))
    remembered = dict(zip(names, state.patches, strict=True))
    kept = []
    for applied in leave_out(store, upstream, state.base, commits, gone, conflicted):
        kept.append(replace(remembered[applied.name], applied=applied))
    if kept:
        tip = kept[-1].applied.commit
    else:
        tip = state.base
    left = replace(item, state=replace(state, tip=tip, tree=store.tree_of([tip])[0], patches=tuple(kept)))
    return left, tuple(gone)
