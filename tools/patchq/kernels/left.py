"""Check for kernel modules that an environment would compile at first use, because it has no kernel wheel."""

from __future__ import annotations

import json
from pathlib import Path

from patchq.environment.doctor import Diagnosis, Health
from patchq.environment.installed import InstalledPackage
from patchq.kernels.wanted import Wanted
from patchq.names import counted


def judge_left(upstream: str, wanted: Wanted, packages: tuple[InstalledPackage, ...], cache: str) -> Diagnosis:
    """Report the kernels that an environment will compile at first use, with the cost and the cache folder.

    :param packages: Packages found in the environment, including the kernels' package if it is
        installed.
    :param cache: Folder in which the environment keeps compiled kernels.
    """
    topic = f"kernels of {upstream}"
    own = None
    for package in packages:
        if package.distribution == wanted.distribution:
            own = package
            break
    if own is None or not own.is_right:
        reason = "no wheel of them is installed"
        if own is not None:
            reason = f"{wanted.distribution} was changed after it was built"
        return Diagnosis(
            topic=topic,
            level=Health.NOTE,
            message=f"{reason}: the modules of {counted(len(wanted.modules), 'generator')} compile "
            f"when they are first used{_cost(wanted, cache)}",
            hint=f"run `patchq build {upstream} --kernels ARCH`, and install the wheel",
        )
    try:
        about = json.loads(Path(own.origin, "kernels.json").read_bytes())
        compiled = {str(module["name"]) for module in about["modules"]}
        names = [str(name) for name in about["wanted"]]
        arch = str(about["arch"])
    except (OSError, ValueError, TypeError, KeyError):
        return Diagnosis(
            topic=topic,
            level=Health.NOTE,
            message="kernels.json can't be read",
            hint="install the wheel again",
        )
    left = [name for name in names if name not in compiled]
    if left:
        return Diagnosis(
            topic=topic,
            level=Health.NOTE,
            message=f"{len(left)} of {counted(len(names), 'module')} for {arch} still compile: "
            f"{', '.join(left)}{_cost(wanted, cache)}",
            hint=f"`patchq build {upstream} --kernels {arch}` without --only",
        )
    message = f"{counted(len(names), 'module')} for {arch}: all are installed, and none compiles at first use"
    return Diagnosis(topic=topic, level=Health.OK, message=message)


def _cost(wanted: Wanted, cache: str) -> str:
    """Describe the memory and time that compiling takes, and the folder where the result is cached."""
    most = max((module.gib for module in wanted.modules), default=0)
    cost = f"; one compiler takes up to {most:g} GiB"
    if wanted.minutes:
        cost += f", all of them took {wanted.minutes:g} minutes of one processor"
    return f"{cost}; kept in {cache}"
