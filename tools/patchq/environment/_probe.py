"""Run by the Python environment that is looked at, not by patchq's: standard library only, any Python from 3.8.

It tells how the interpreter is set up; patchq reads the files and judges them. It imports nothing of the environment,
and runs twice:
- ``{"look": "start"}``, started as anyone would: what that start leaves behind (the path, the finders) and where an
  import would find each package. What runs at the start can lie here.
- ``{"look": "settings"}``, started with ``-I -S``, so that nothing of the environment has run before it.
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
    """Return what an import of ``name`` would find, asking each finder without importing a parent."""
    spec: Any = None
    for part in range(name.count(".") + 1):
        full = ".".join(name.split(".")[: part + 1])
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
    """Return a spec's folder or file, and all the folders that its submodules are looked for in."""
    if spec is None:
        return {"origin": "", "places": []}
    places = [os.path.realpath(p) for p in spec.submodule_search_locations or []]
    own = os.path.realpath(spec.origin) if spec.has_location and spec.origin else ""
    return {"origin": places[0] if places else own, "places": places}


def at_start(packages: List[str]) -> Facts:
    loaded = set(sys.modules)
    path = [os.path.abspath(entry) for entry in sys.path if entry]  # not the folder that this runs in
    sys.path[:] = path
    asked = set(packages)
    for entry in path:
        with contextlib.suppress(OSError):
            names = os.listdir(entry)
            asked.update(name for name in names if os.path.lexists(os.path.join(entry, name, "_patchq.json")))
    finders = [f if isinstance(f, type) else type(f) for f in sys.meta_path]
    return {
        "path": path,
        "cache_prefix": sys.pycache_prefix or "",
        "finders": [f.__module__ + "." + f.__qualname__ for f in finders if not f.__module__.startswith("_frozen_")],
        "specs": {name: found(spec_of(name, list(sys.meta_path))) for name in sorted(asked)},
        "loaded": sorted(asked & loaded),
    }


def site_folders(prefix: str, isolated: bool) -> List[str]:
    """Return the folders whose .pth files an ordinary start reads, without such a start, which can hide them."""
    import site

    if isolated:
        return site.getsitepackages([prefix])
    folders = site.getsitepackages([prefix, sys.base_prefix, sys.base_exec_prefix])
    user = os.environ.get("PYTHONUSERBASE") or site.getuserbase()
    name = "python%d.%d" % sys.version_info[:2]
    return [os.path.join(user, "lib", name, "site-packages"), *folders]


def settings() -> Facts:
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
        "variables": {k: v for k, v in os.environ.items() if VARIABLE.match(k)},
        "home": os.path.expanduser("~"),
    }


if __name__ == "__main__":
    question = json.loads(sys.stdin.read())
    answer = at_start(question["packages"]) if question["look"] == "start" else settings()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
