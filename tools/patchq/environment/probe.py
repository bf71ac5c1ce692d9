"""Run by the Python environment that is looked at, not by patchq's: standard library only.

Reads ``{"packages": {distribution: package}}`` from standard input and prints what an import would
find, what is installed, and every other copy on the path.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from typing import Any


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def look(distribution: str, package: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "distribution": distribution,
        "package": package,
        "installed": [],
        "copies": [],
        "origin": None,
    }
    for dist in importlib.metadata.distributions():
        if canonical(dist.metadata["Name"] or "") == canonical(distribution):
            found["installed"].append({"version": dist.version, "location": str(dist.locate_file(""))})
    for entry in sys.path:
        folder = os.path.join(entry, package)
        if os.path.isdir(folder):
            real = os.path.realpath(folder)
            if real not in found["copies"]:
                found["copies"].append(real)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec and spec.submodule_search_locations:
        found["origin"] = os.path.realpath(next(iter(spec.submodule_search_locations)))
        manifest = os.path.join(found["origin"], "_patchq.json")
        if os.path.isfile(manifest):
            with open(manifest, encoding="utf-8") as file:
                found["manifest"] = json.load(file)
            found["altered"] = altered(os.path.dirname(found["origin"]), found["manifest"].get("files", {}))
    return found


def altered(root: str, files: dict[str, str]) -> list[str]:
    wrong = []
    for name, digest in files.items():
        try:
            with open(os.path.join(root, *name.split("/")), "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() != digest:
                    wrong.append(name)
        except OSError:
            wrong.append(name + " (missing)")
    return wrong


def attested() -> dict[str, str]:
    """Every package on the path that carries a manifest, for when nobody said what to look for."""
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = sorted(os.listdir(entry))
        except OSError:
            continue
        for name in names:
            manifest = os.path.join(entry, name, "_patchq.json")
            if os.path.isfile(manifest):
                with open(manifest, encoding="utf-8") as file:
                    found.setdefault(json.load(file)["distribution"], name)
    return found


def main() -> None:
    sys.path = [entry for entry in sys.path if entry]  # not the folder that patchq happens to run this in
    asked = json.load(sys.stdin)["packages"] or attested()
    extras = {}
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        try:
            extras[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    base = os.environ.get("FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~"))
    cache = os.path.join(base, ".cache", "flashinfer")
    kernels = {}
    if os.path.isdir(cache):
        for version in sorted(os.listdir(cache)):
            count = sum(f.endswith(".so") for _, _, files in os.walk(os.path.join(cache, version)) for f in files)
            if count:
                kernels[version] = count
    print(
        json.dumps(
            {
                "python": sys.executable,
                "version": sys.version.split()[0],
                "packages": [look(d, p) for d, p in asked.items()],
                "extras": extras,
                "jit_cache": {"folder": cache, "kernels": kernels},
            }
        )
    )


if __name__ == "__main__":
    main()
