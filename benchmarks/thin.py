"""Compare what Python imports from a thin wheel with the full wheel's files, in every kind of process.

    python benchmarks/thin.py dist/SET/thin/WHEEL --thin PYTHON --full PYTHON

``PYTHON`` are interpreters of two environments: one with the release and the thin wheel, one with the full wheel. For
each patched module, the source and the code objects must be equal in a main, a forked, a spawned and a fork server's
process; each data file of the package must have the same bytes. Prints the numbers; exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: Run in each environment: prints digests of each module by kind of process, and of the data files.
LOOK = r"""
import hashlib, importlib, importlib.util, json, multiprocessing, os, sys, types


def flat(value):
    if isinstance(value, types.CodeType):
        parts = (value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_firstlineno)
        return (*parts, bytes(value.co_linetable), tuple(map(flat, value.co_consts)))
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return repr(value)


def look(names):
    found = {}
    for name in names:
        loader = importlib.util.find_spec(name).loader
        pair = loader.get_source(name), repr(flat(loader.get_code(name)))
        found[name] = [hashlib.sha256(text.encode()).hexdigest() for text in pair]
    return found


def child(queue, names):
    queue.put(look(names))


def data(module):
    if not module:
        return {}
    folder = os.path.join(os.path.dirname(os.path.dirname(importlib.import_module(module).__file__)), "data")
    found = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        for file in files:
            path = os.path.join(place, file)
            if "__pycache__" not in path:
                with open(path, "rb") as content:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(content.read()).hexdigest()
    return found


if __name__ == "__main__":
    names, module, target = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    found = {"main": look(names)}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue, names))
        process.start()
        found[method] = queue.get(timeout=600)
        process.join()
    found["data"] = data(module)
    with open(target, "w") as file:
        json.dump(found, file)
"""


def looked(python: str, names: list[str], module: str, folder: Path) -> dict[str, dict[str, object]]:
    script, target = folder / "look.py", folder / "found.json"
    script.write_text(LOOK)
    subprocess.run([python, str(script), json.dumps(names), module, str(target)], check=True, capture_output=True)
    return dict(json.loads(target.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--thin", required=True)
    parser.add_argument("--full", required=True)
    options = parser.parse_args()
    with zipfile.ZipFile(options.wheel) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith("/thin.json")]
        about = json.loads(wheel.read(name))
    names, module = sorted(about["modules"]), about["data_module"] if about["data"] else ""
    with tempfile.TemporaryDirectory() as text:
        thin = looked(options.thin, names, module, Path(text))
        full = looked(options.full, names, module, Path(text))
    differ = 0
    for kind in ("main", "fork", "spawn", "forkserver"):
        wrong = [n for n in names if thin[kind][n] != full["main"][n]]
        differ += len(wrong)
        print(f"{kind}: {len(names)} modules, {len(wrong)} differ {' '.join(wrong)}".rstrip())
    wrong = sorted({*thin["data"], *full["data"]} - {n for n in full["data"] if thin["data"].get(n) == full["data"][n]})
    print(f"data: {len(full['data'])} files, {len(wrong)} differ {' '.join(wrong[:5])}".rstrip())
    print(f"{options.wheel.name}: {options.wheel.stat().st_size} bytes")
    return 1 if differ or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
