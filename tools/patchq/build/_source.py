"""Source builds: run upstream's own build on the patched sources, and check that the wheel contains the patches."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchq.build import wheel
from patchq.build.contents import WheelInfo, inspect_wheel
from patchq.build.job import Job, Made
from patchq.build.provenance import manifest
from patchq.errors import BuildError
from patchq.formats.lock import BuildConfig
from patchq.git.repository import copy_tree
from patchq.names import show_path
from patchq.stacks.applied import Applied
from patchq.system import runner


def build_source(job: Job, item: Applied, config: BuildConfig, version: str, profile: str) -> Made:
    """Build a wheel of a stack's patched tree in ``dist/SET``.

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
            **(_ccache_environment() if profile == "source" else {}),
            **(dict(config.empty_env) if profile == "empty" else {}),
        }
        if profile == "empty":
            requires = config.empty_requires
        else:
            requires = config.requires
        made = _build_wheel(
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
                hint=f"pin it with `patchq pin --into {item.stack.pin.upstream}:{name}`, "
                f"or run `patchq fetch {item.stack.pin.upstream} --source archive`",
            )


def _find_patched(job: Job, item: Applied, info: WheelInfo) -> dict[str, bytes]:
    """Return the patched files in a built wheel, with their contents.

    :raises BuildError: if the wheel contains a file only without the stack's changes.
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
                    hint="upstream's build copied this file from another folder; the build's log may name that folder",
                )
            found.update(right)
    return found


def _ccache_environment() -> dict[str, str]:
    """Return CMake settings that run compilers through the compiler cache ccache; empty if ccache isn't installed."""
    if not shutil.which("ccache"):
        return {}
    return {f"CMAKE_{lang}_COMPILER_LAUNCHER": "ccache" for lang in ("C", "CXX", "CUDA")}


@contextmanager
def _pip(offline: bool) -> Iterator[None]:
    """Set pip's environment variables during a build.

    The ``build`` library has no parameter for pip's environment.
    """
    before = dict(os.environ)
    if offline:
        os.environ.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", VIRTUALENV_NO_PERIODIC_UPDATE="1")
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _build_wheel(
    name: str,
    source: Path,
    out: Path,
    env: Mapping[str, str],
    requires: Sequence[str],
    isolated: bool,
    offline: bool = False,
) -> Path:
    """Build a wheel of a source tree and return its path.

    :param name: name of the upstream, for messages.
    :param requires: build requirements that replace the backend's requirements.
    :param isolated: build in a separate environment.
    :param offline: install nothing from an index.
    :raises BuildError: if the build fails; the message contains the end of the backend's output.
    """
    from build import BuildBackendException, BuildException, ProjectBuilder
    from build import FailedProcessError as Failed
    from build.env import DefaultIsolatedEnv

    log: list[bytes] = []

    def run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
        done = runner.run(
            cmd, cwd=Path(cwd) if cwd else None, env={**env, **(extra_environ or {})}, ok_codes=range(-64, 256)
        )
        log.append(done.stdout + done.stderr)
        if done.returncode:
            raise runner.CommandError(cmd, done.returncode, done.stdout, done.stderr)

    try:
        with warnings.catch_warnings():
            # Backend warnings are meant for upstream's developers, not for the user.
            warnings.simplefilter("ignore")
            if not isolated:
                return Path(ProjectBuilder(source, sys.executable, run).build("wheel", out))
            with _pip(offline), DefaultIsolatedEnv(installer="pip") as environment:
                builder = ProjectBuilder.from_isolated_env(environment, source, run)
                environment.install(set(requires) or builder.build_system_requires)
                if not requires:
                    environment.install(builder.get_requires_for_build("wheel"))
                return Path(builder.build("wheel", out))
    except runner.ProcessFailed:
        what = ", ".join(sorted(requires)) or "the requirements of its build backend"
        raise BuildError(
            f"the build of {name} failed: pip can't install {what}",
            hint="without a network, install them in this environment and build with --no-isolation",
        ) from None
    except (BuildException, BuildBackendException, Failed, runner.CommandError) as error:
        if isinstance(error, runner.CommandError):
            message = error.output
        else:
            message = str(error)
        tail = b"".join(log).decode("utf-8", "replace").splitlines()[-25:]
        raise BuildError(
            f"the build of {name} failed: {message}\n" + "\n".join(tail),
            hint="if a package is missing, install it in this environment and build with --no-isolation",
        ) from None
