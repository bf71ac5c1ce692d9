"""Print an interpreter's settings as JSON. That interpreter runs this script.

This script uses only the standard library, and runs in any Python from 3.8. It imports nothing from the environment.
patchq runs it twice, with these JSON texts as input:
- ``{"look": "start"}``, in a normal start: prints the path, the finders, and where an import would
  find each package. Code that runs at the start can falsify this answer.
- ``{"look": "settings"}``, started with ``-I -S``: prints the settings. No code of the environment runs before this
  script.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Any, Dict, List

Facts = Dict[str, Any]
VARIABLE = re.compile("PYTHON|LD_|(BASH_ENV|ENV|FLASHINFER_WORKSPACE_BASE)$")


def spec_of(name: str, finders: List[Any], places: Any = None) -> Any:
    """Return the module spec that an import of ``name`` would find. No parent package is imported."""
    spec: Any = None
    full = ""
    for part in name.split("."):
        if full:
            full = full + "." + part
        else:
            full = part
        spec = None
        for finder in finders:
            try:
                spec = finder.find_spec(full, places)
            except Exception:
                spec = None
            if spec is not None:
                break
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec


def found(spec: Any) -> Facts:
    """Return the folder or file of a spec, and the folders in which its submodules are searched."""
    if spec is None:
        return {"origin": "", "places": []}
    places = [os.path.realpath(place) for place in spec.submodule_search_locations or []]
    origin = ""
    if places:
        origin = places[0]
    elif spec.has_location and spec.origin:
        origin = os.path.realpath(spec.origin)
    return {"origin": origin, "places": places}


def at_start(packages: List[str]) -> Facts:
    """Return the interpreter's state after a normal start, and the location of each package."""
    loaded = set(sys.modules)
    # The empty entry stands for the current folder, which only this script uses.
    path = []
    for entry in sys.path:
        if entry:
            path.append(os.path.abspath(entry))
    sys.path[:] = path
    wanted = set(packages)
    for entry in path:
        with contextlib.suppress(OSError):
            for name in os.listdir(entry):
                if os.path.lexists(os.path.join(entry, name, "_patchq.json")):
                    wanted.add(name)
    return {
        "path": path,
        "cache_prefix": sys.pycache_prefix or "",
        "finders": added_finders(),
        "specs": {name: found(spec_of(name, list(sys.meta_path))) for name in sorted(wanted)},
        "loaded": sorted(wanted & loaded),
    }


def added_finders() -> List[str]:
    """Return the names of the finders that don't belong to Python itself."""
    names = []
    for finder in sys.meta_path:
        kind: type = type(finder)
        if isinstance(finder, type):
            kind = finder
        if not kind.__module__.startswith("_frozen_"):
            names.append(kind.__module__ + "." + kind.__qualname__)
    return names


def site_folders(prefix: str, isolated: bool) -> List[str]:
    """Return the folders whose .pth files are read in a normal start.

    The folders are computed without a normal start, because start-up code can hide them.
    """
    import site

    if isolated:
        return site.getsitepackages([prefix])
    folders = site.getsitepackages([prefix, sys.base_prefix, sys.base_exec_prefix])
    user = os.environ.get("PYTHONUSERBASE") or site.getuserbase()
    name = "python%d.%d" % sys.version_info[:2]
    return [os.path.join(user, "lib", name, "site-packages"), *folders]


def settings() -> Facts:
    """Return the interpreter's settings. In a virtual environment, ``prefix`` is the environment's folder."""
    prefix, isolated = sys.prefix, False
    program = os.path.dirname(os.path.abspath(sys.executable))
    for folder in (program, os.path.dirname(program)):
        with contextlib.suppress(OSError), open(os.path.join(folder, "pyvenv.cfg"), "rb") as file:
            config = file.read(1 << 20)
            prefix = os.path.dirname(program)
            isolated = not re.search(rb"^include-system-site-packages\s*=\s*true", config, re.M | re.I)
            break
    return {
        "python": sys.executable,
        "version": list(sys.version_info[:2]),
        "prefix": prefix,
        "base": sys.base_prefix,
        "stdlib": sys.path,
        "sites": site_folders(prefix, isolated),
        "variables": {name: value for name, value in os.environ.items() if VARIABLE.match(name)},
        "home": os.path.expanduser("~"),
    }


if __name__ == "__main__":
    question = json.loads(sys.stdin.read())
    if question["look"] == "start":
        answer = at_start(question["packages"])
    else:
        answer = settings()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
