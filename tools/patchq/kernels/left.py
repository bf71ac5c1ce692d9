"""What would still be compiled where a stack runs: modules that no kernels wheel there has."""

from __future__ import annotations

import json
from pathlib import Path

from patchq.environment.doctor import Finding
from patchq.environment.installed import Package
from patchq.kernels.wanted import Wanted


def judge_left(upstream: str, wanted: Wanted, packages: tuple[Package, ...], cache: str) -> Finding:
    """One finding of an upstream's kernels in an environment: which compile, what that takes, and where they are kept.

    :param packages: what was found there, the kernels' own package among them where it is installed.
    :param cache: where what is compiled when it is first used is kept there.
    """
    topic = f"kernels of {upstream}"
    own = next((p for p in packages if p.distribution == wanted.distribution), None)
    if own is None or not own.is_right:
        what = "no wheel of them is installed" if own is None else f"{wanted.distribution} isn't as it was built"
        return Finding(
            topic, "note",
            f"{what}: {len(wanted.modules)} generators' modules compile when they are first used{_cost(wanted, cache)}",
            f"`patchq build {upstream} --kernels ARCH`, and install it",
        )  # fmt: skip
    try:
        about = json.loads(Path(own.origin, "kernels.json").read_bytes())
        there, asked = {str(m["name"]) for m in about["modules"]}, [str(name) for name in about["wanted"]]
        arch = str(about["arch"])
    except (OSError, ValueError, TypeError, KeyError):
        return Finding(topic, "note", "kernels.json can't be read", "install the wheel again")
    left = [name for name in asked if name not in there]
    if left:
        return Finding(
            topic, "note",
            f"{len(left)} of {len(asked)} modules for {arch} still compile: {', '.join(left)}{_cost(wanted, cache)}",
            f"`patchq build {upstream} --kernels {arch}` without --only",
        )  # fmt: skip
    return Finding(topic, "ok", f"all {len(asked)} modules for {arch} are there; nothing of them compiles", "")


def _cost(wanted: Wanted, cache: str) -> str:
    """What compiling them takes, and where the result is kept."""
    most = max((module.gib for module in wanted.modules), default=0)
    time = f", all of them took {wanted.minutes:g} minutes of one processor" if wanted.minutes else ""
    return f"; one compiler takes up to {most:g} GiB{time}; kept in {cache}"
