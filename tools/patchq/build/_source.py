"""Source builds: upstream's own build runs on the patched sources, and the wheel is checked for the patches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from patchq.build import _backend, wheel
from patchq.build.contents import WheelInfo, inspect_wheel
from patchq.build.job import Job, Made
from patchq.build.provenance import manifest
from patchq.errors import BuildError
from patchq.formats.lock import BuildConfig
from patchq.git.repository import copy_tree
from patchq.names import show_path
from patchq.stacks.applied import Applied


def build_source(job: Job, item: Applied, config: BuildConfig, version: str, profile: str) -> Made:
    """Build a wheel of a stack in its set's folder.

    :param profile: ``source``, or ``empty`` for a build with the lock's ``empty-env``.
    :raises BuildError: if the build fails, or the wheel contains the unpatched version of a file.
    """
    (job.project.layout.private / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=job.project.layout.private / "tmp") as text:
        work = Path(text)
        source = work / "source"
        _copy_sources(job, item, source)
        if config.version_file and (source / config.version_file).is_file():
            path = source / config.version_file
            path.write_bytes(wheel.set_version(path.read_bytes(), job.versions[item.stack.pin.upstream]))
        env = {
            "SETUPTOOLS_SCM_PRETEND_VERSION": job.versions[item.stack.pin.upstream],
            "SOURCE_DATE_EPOCH": "315532800",
            **({"MAX_JOBS": str(os.cpu_count() or 1)} if "MAX_JOBS" not in os.environ else {}),
            **(_backend.ccache_environment() if profile == "source" else {}),
            **(dict(config.empty_env) if profile == "empty" else {}),
        }
        if profile == "empty":
            requires = config.empty_requires
        else:
            requires = config.requires
        made = _backend.build_wheel(
            item.stack.pin.upstream,
            source,
            work / "out",
            env,
            requires,
            job.isolation and bool(requires or profile != "empty"),
            job.offline,
        )
        info = inspect_wheel(made)
        found = _find_patched(job, item, info)
        target = job.dist / wheel.wheel_name(made.name, version)
        extra = manifest(job, item, config, version, profile, found)
        wheel.repack(made, target, version, job.siblings(item), extra)
        return Made(target)


def _copy_sources(job: Job, item: Applied, target: Path) -> None:
    """Copy the patched tree as plain files, together with the patched trees that are nested in it."""
    copy_tree(job.project.store, item.state.tip, target)
    for path, name in job.project.lock.nested_in(item.stack.pin.upstream).items():
        nested = next((a for a in job.applied if a.stack.pin.upstream == name), None)
        if nested:
            place = target / path
            if place.is_dir():
                place.rmdir()
            place.parent.mkdir(parents=True, exist_ok=True)
            copy_tree(job.project.store, nested.state.tip, place)
    for path_bytes, entry in job.project.store.list_tree(item.state.tip).items():
        if entry.mode == b"160000" and not any((target / os.fsdecode(path_bytes)).iterdir()):
            name = show_path(path_bytes)
            raise BuildError(
                f"{item.stack.pin.upstream}: {name} is a submodule, and no pin provides its files",
                hint=f"pin it with `patchq pin` and `--into {item.stack.pin.upstream}:{name}`, "
                f"or `patchq fetch {item.stack.pin.upstream} --source archive`",
            )


def _find_patched(job: Job, item: Applied, info: WheelInfo) -> dict[str, bytes]:
    """Return the members of a built wheel that come from files which the stack changes.

    :raises BuildError: if the wheel contains such a file without the stack's changes.
    """
    found: dict[str, bytes] = {}
    own = []
    for a in job.applied:
        if a is item or job.is_nested(a, item):
            own.append(a)
    for part in own:
        for path, data in job.touched(part):
            name = show_path(path)
            places = []
            for n in info.members:
                if n == name or n.endswith("/" + name):
                    places.append(n)
            right = {n: d for n, d in info.read(places).items() if d == data}
            if places and not right:
                raise BuildError(
                    f"{info.path.name} contains {places[0]} without the changes of the patches",
                    hint="upstream's build took this file from another place, which its log may name",
                )
            found.update(right)
    return found
