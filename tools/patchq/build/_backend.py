"""Wheels built from source by a tree's own PEP 517 backend."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchq.errors import BuildError
from patchq.system import runner


def ccache_environment() -> dict[str, str]:
    """Return CMake settings that run compilers through ccache; empty if ccache isn't installed."""
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


def build_wheel(
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
    :param requires: build requirements that replace those of the backend.
    :param isolated: build in a separate environment.
    :param offline: install nothing from an index.
    :raises BuildError: if the build fails; the message has the end of the backend's output.
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
