"""What runs, or changes the path, at each start of an interpreter: .pth files and customising modules, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patchq.environment.differences import Difference, difference

#: Start-up code that no RECORD names, though everybody has it: what virtualenv and uv put into an environment, and
#: Debian's setuptools.
_KNOWN = {
    "_virtualenv.pth": "import _virtualenv",
    "distutils-precedence.pth": "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local')"
    " == 'local'; enabled and __import__('_distutils_hack').add_shim();",
}


def _own(stdlib: str) -> tuple[str, ...]:
    """Debian's Python has one itself; site-packages may lie below this folder, and is somebody else's."""
    return (f"{stdlib}/sitecustomize.py", f"{stdlib}/usercustomize.py")


def judge_startup(facts: Mapping[str, Any], finders: Sequence[str]) -> list[Difference]:
    """What runs, or changes the path, at each start of the interpreter: a problem where nobody installed it."""
    found = []
    for entry in facts["startup"]:
        path, name = entry["path"], entry["path"].rpartition("/")[2]
        own = f"{path} (of {entry['owner']})" if entry["owner"] else path
        if entry["kind"] == "path":
            if not entry["intact"]:
                found.append(difference("startup-path", [path], level="note"))
        elif entry["kind"] == "unreadable":
            found.append(difference("startup-code", [path], f"can't be read ({entry['said']})"))
        elif entry["intact"]:
            found.append(difference("startup-code", [own], "is as its distribution installed it", level="note"))
        elif entry["owner"]:
            found.append(difference("startup-code", [own], "was changed since its distribution installed it"))
        elif _KNOWN.get(name) == entry["said"] or (entry["kind"] == "module" and path in _own(facts["stdlib"])):
            found.append(difference("startup-code", [path], "is usual there", level="note"))
        else:
            found.append(difference("startup-code", [path], "no installed distribution has it"))
    if finders:
        found.append(difference("finders", sorted(set(finders)), level="note"))
    return found
