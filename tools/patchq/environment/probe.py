"""Run by the Python environment that is looked at, not by patchq's: standard library only, any Python from 3.8.

It tells facts; patchq judges them. It never imports what it looks at, and runs twice:
- ``{"look": "start"}``, started as anybody would: what that start leaves behind (the path, the finders) and
  where an import would find each package. What runs at the start can lie here.
- ``{"look": "files"}``, started with ``-I -S``, so that nothing of the environment has run before it: every
  file that belongs to the packages, as it is on the disk.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

Facts = Dict[str, Any]
Row = Tuple[str, str, str, int]

#: Bytes of what is read whole, and files of one package: nobody's are larger.
MAX_TEXT, MAX_FILES = 64 << 20, 500000
HASHES = ("sha256", "sha384", "sha512")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def text_of(path: str, most: int = MAX_TEXT) -> Tuple[Optional[str], str]:
    """A plain file's text, or None and why not."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                return None, "is no plain file"
            if info.st_size > most:
                return None, "has %d bytes" % info.st_size
            return file.read(most).decode("utf-8", "surrogateescape"), ""
    except OSError as error:
        return None, error.strerror or "can't be read"


def listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


# At an ordinary start


def spec_of(name: str, finders: List[Any], places: Any = None) -> Any:
    """What an import of ``name`` would find, asking each finder without importing a parent."""
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
    """A spec as facts: the folder or file, and all the folders that its submodules are looked for in."""
    if spec is None:
        return {"origin": "", "places": [], "namespace": False}
    places = [os.path.realpath(p) for p in spec.submodule_search_locations or []]
    own = os.path.realpath(spec.origin) if spec.has_location and spec.origin else ""
    return {"origin": places[0] if places else own, "places": places, "namespace": bool(places) and not own}


def at_start(asked: Dict[str, str]) -> Facts:
    loaded = set(sys.modules)
    path = [os.path.abspath(entry) for entry in sys.path if entry]  # not the folder that this runs in
    sys.path[:] = path
    finders = [f if isinstance(f, type) else type(f) for f in sys.meta_path]
    packages = sorted({p or d.replace("-", "_") for d, p in asked.items()} | set(attested(path).values()))
    return {
        "path": path,
        "prefix": sys.prefix,
        "cache_prefix": sys.pycache_prefix or "",
        "finders": [f.__module__ + "." + f.__qualname__ for f in finders if not f.__module__.startswith("_frozen_")],
        "specs": {name: found(spec_of(name, list(sys.meta_path))) for name in packages},
        "loaded": [name for name in packages if name in loaded],
    }


# The files


def attested(path: List[str]) -> Dict[str, str]:
    """Every package on the path that carries a manifest: distribution (or the folder's name) to package."""
    names: Dict[str, str] = {}
    for entry in path:
        for name in listed(entry):
            manifest = os.path.join(entry, name, "_patchq.json")
            if os.path.lexists(manifest):
                text, _ = text_of(manifest)
                try:
                    said = json.loads(text or "")["distribution"]
                except (ValueError, TypeError, KeyError, RecursionError):
                    said = name
                names.setdefault(said if isinstance(said, str) and said else name, name)
    return names


def installed(path: List[str]) -> List[Facts]:
    """Each distribution's metadata folder on the path."""
    seen: Dict[str, Facts] = {}
    for entry in path:
        for name in listed(entry):
            folder = os.path.realpath(os.path.join(entry, name))
            if not name.endswith((".dist-info", ".egg-info", ".egg-link")) or folder in seen:
                continue
            own = name.rpartition(".")[0].split("-")
            about: Facts = {
                "folder": folder,
                "root": os.path.realpath(entry),
                "editable": "",
                "said": "",
                "record_said": "",
            }
            about["name"], about["version"] = own[0], own[1] if len(own) > 1 else ""
            about["link"] = os.path.islink(os.path.join(entry, name))
            if name.endswith(".egg-link"):
                about["editable"] = (text_of(folder, 1 << 16)[0] or "").strip().partition("\n")[0] or "?"
            else:
                metadata(folder, about)
            seen[folder] = about
    return list(seen.values())


def metadata(folder: str, about: Facts) -> None:
    name = "METADATA" if folder.endswith(".dist-info") else "PKG-INFO"
    path = os.path.join(folder, name) if os.path.isdir(folder) else folder
    text, said = text_of(path)
    fields = dict(re.findall(r"^(Name|Version): *(.*?) *\r?$", (text or "").partition("\n\n")[0], re.M))
    if len(fields) < 2 or canonical(fields["Name"]) != canonical(about["name"]):
        about["said"] = name + " " + (said or "doesn't name it and its version")
    about["version"] = fields.get("Version", about["version"])
    try:
        url = json.loads(text_of(os.path.join(folder, "direct_url.json"), 1 << 20)[0] or "{}")
        if url["dir_info"]["editable"]:
            about["editable"] = str(url["url"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass


def record_of(about: Facts) -> List[Row]:
    """RECORD's rows as (path, hash's name, hexadecimal digest, size)."""
    text, about["record_said"] = text_of(os.path.join(about["folder"], "RECORD"))
    rows: List[Row] = []
    try:
        for row in csv.reader(io.StringIO(text or "", newline="")):
            if not row:
                continue
            name, digest, size = row
            kind, _, coded = digest.partition("=")
            if "\0" in name or (size and not re.match(r"\d{1,18}\Z", size)):
                raise ValueError("a name or a size that can't be")
            hashed = base64.urlsafe_b64decode(coded.encode("ascii") + b"=" * (-len(coded) % 4)).hex()
            rows.append((name, kind, hashed, int(size) if size else -1))
    except (ValueError, csv.Error) as error:  # binascii.Error and UnicodeError are ValueErrors
        about["record_said"] = "line %d: %s" % (len(rows) + 1, error)
    return rows


def walk(root: str, top: str) -> Iterator[Tuple[str, int, str]]:
    """All that is below a folder, links not followed, as (path below root, entry's mode, link's target or why not)."""
    todo, count = [top], 0
    while todo:
        folder = todo.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda e: e.name)
        except OSError as error:
            yield folder, 0, error.strerror or "can't be read"
            continue
        for entry in entries:
            name = folder + "/" + entry.name
            count += 1
            if count > MAX_FILES:
                yield top, 0, "holds more than %d files" % MAX_FILES
                return
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                todo.append(name)
            else:
                yield name, mode, os.readlink(entry.path) if stat.S_ISLNK(mode) else ""


def look_up(root: str, name: str) -> Optional[Tuple[str, int, str]]:
    """As :func:`walk` says it, for one name; None where nothing is there. Links in between are told as links."""
    at = root
    parts = name.split("/")
    for number, part in enumerate(parts):
        at = os.path.join(at, part)
        try:
            mode = os.lstat(at).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(mode):
            return "/".join(parts[: number + 1]), mode, os.readlink(at)
    return name, mode, ""


def digests(path: str, size: int, kinds: Iterable[str]) -> Facts:
    """A file's hashes; only its size where that alone says that it was changed."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(fd, "rb") as file:
            there = os.fstat(file.fileno()).st_size
            if 0 <= size != there:
                return {"size": there}
            sums = {kind: hashlib.new(kind) for kind in kinds}
            for chunk in iter(lambda: file.read(1 << 20), b""):
                for one in sums.values():
                    one.update(chunk)
            return dict({kind: one.hexdigest() for kind, one in sums.items()}, size=there)
    except OSError as error:
        return {"said": error.strerror or "can't be read"}


def files_of(root: str, package: str, records: Iterable[List[Row]], prefixes: List[str]) -> Facts:
    """Every file that is recorded for a package or lies in its folders: hashes, and what is no plain file."""
    wanted: Dict[str, Tuple[int, str]] = {}
    odd: Dict[str, Tuple[str, str]] = {}
    plain: List[str] = []
    outside: List[str] = []
    tops = {package.split(".")[0]}
    for rows in records:
        for name, kind, _, size in rows:
            landing = os.path.normpath(os.path.join(root, name))
            inside = landing.startswith(root + os.sep) and not os.path.isabs(name) and "\\" not in name
            if inside and ".." not in name.split("/"):
                tops.add(name.split("/")[0])
                wanted[name] = (size, kind)
            elif any(landing.startswith(prefix) for prefix in prefixes):
                wanted[name] = (size, kind)
            else:
                outside.append(name)
    there = {name: look_up(root, name) for name in wanted}
    seen = {name: entry for name, entry in there.items() if entry}
    for top in sorted(tops - {"__pycache__", ""}):
        entry = look_up(root, top)
        if entry and stat.S_ISDIR(entry[1]):
            seen.update((name, (name, mode, said)) for name, mode, said in walk(root, top))
        elif entry:
            seen[top] = entry
    for name, (at, mode, said) in seen.items():
        if stat.S_ISREG(mode):
            plain.append(name)
        elif stat.S_ISLNK(mode):
            odd[at] = "link", said
        else:
            odd[at] = ("unreadable", said) if said else ("other", "folder" if stat.S_ISDIR(mode) else "special file")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        sizes = [wanted.get(name, (-1, ""))[0] for name in plain]
        kinds = [{"sha256", wanted.get(name, (-1, ""))[1]} & set(HASHES) for name in plain]
        sums = list(pool.map(digests, [os.path.join(root, name) for name in plain], sizes, kinds))
    return {"files": dict(zip(plain, sums)), "odd": odd, "outside": outside}


# What runs at each start


def site_folders() -> List[str]:
    """The folders whose .pth files an ordinary start reads: known without such a start, which can hide them."""
    import site

    above = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    config = text_of(os.path.join(above, "pyvenv.cfg"), 1 << 20)[0]
    if config is None or re.search(r"^include-system-site-packages\s*=\s*true", config, re.M | re.I):
        return [*site.getsitepackages([above, sys.base_prefix, sys.base_exec_prefix]), site.getusersitepackages()]
    return site.getsitepackages([above])


def startup(path: List[str], distributions: List[Facts]) -> List[Facts]:
    """Lines of .pth files, and modules, that run or change the path whenever this interpreter starts."""
    told: List[Facts] = []
    owners: Dict[str, Tuple[str, str, str, int]] = {}
    for about in distributions:
        text = text_of(os.path.join(about["folder"], "RECORD"))[0]
        if text and re.search(r"^\"?[^,/\n]*(\.pth|customize\.py)\b", text, re.M):
            for name, kind, digest, size in record_of(dict(about)):
                owners[os.path.join(about["root"], name)] = about["name"] + " " + about["version"], kind, digest, size

    def tell(place: str, kind: str, said: str) -> None:
        owner, how, digest, size = owners.get(os.path.realpath(place), ("", "sha256", "", -1))
        intact = bool(owner) and how in HASHES and digests(place, size, {how}).get(how) == digest
        told.append({"path": place, "kind": kind, "said": said, "owner": owner, "intact": intact})

    folders = [p for p in path if os.path.basename(p) in ("site-packages", "dist-packages")]
    for folder in sorted({os.path.realpath(p) for p in folders + site_folders()}):
        for name in listed(folder):
            if not name.endswith(".pth"):
                continue
            text, why = text_of(os.path.join(folder, name), 1 << 20)
            lines = [line.strip() for line in (text or "").split("\n")]
            code = [line for line in lines if line.startswith(("import ", "import\t"))]
            paths = [line for line in lines if line and not line.startswith("#") and line not in code]
            for kind, said in (("code", code), ("path", paths), ("unreadable", [why] if why else [])):
                if said:
                    tell(os.path.join(folder, name), kind, "\n".join(said)[:2000])
    for name in ("sitecustomize", "usercustomize"):
        spec = spec_of(name, [importlib.machinery.PathFinder], path)
        if spec and spec.origin:
            tell(spec.origin, "module", name)
    return told


# All of it


def look(distribution: str, package: str, asked: Facts, distributions: List[Facts]) -> Facts:
    """The facts of one package, as it would be found from the path that the ordinary start had."""
    path, top = asked["path"], package.split(".")[0]
    direct = found(spec_of(top, [importlib.machinery.PathFinder], path))
    told = asked["specs"].get(package, direct)
    copies: List[str] = []
    for entry in path:
        for name in [top] + [top + suffix for suffix in importlib.machinery.all_suffixes()]:
            place = os.path.join(entry, name)
            if os.path.isdir(place) if name == top else os.path.isfile(place):
                copies.append(os.path.realpath(place))
    own = [d for d in distributions if canonical(d["name"]) == canonical(distribution)]
    facts = {
        "distribution": distribution, "package": package, "installed": own, "copies": list(dict.fromkeys(copies)),
        "manifest": None, "manifest_said": "", "direct": direct["origin"], "loaded": package in asked["loaded"], **told,
    }  # fmt: skip
    origin = told["origin"]
    manifest = os.path.join(origin, "_patchq.json") if os.path.isdir(origin) else ""
    if not (manifest and os.path.lexists(manifest)):
        return facts
    facts["manifest"], facts["manifest_said"] = text_of(manifest)
    root = os.path.normpath(os.path.join(origin, *[os.pardir] * (package.count(".") + 1)))
    here = [d for d in own if d["root"] == root]
    records = {d["folder"]: record_of(d) for d in here if d["folder"].endswith(".dist-info")}
    # Scripts and data lie beside the library's folders: PREFIX/lib/pythonX.Y/site-packages.
    above = os.path.dirname(os.path.dirname(os.path.dirname(root)))
    prefixes = [p.rstrip(os.sep) + os.sep for p in (os.path.realpath(asked["prefix"]), above) if p != os.sep]
    facts.update(files_of(root, package, records.values(), prefixes), root=root, records=records)
    if any(os.path.islink(os.path.join(entry, top)) for entry in path):
        facts["odd"][top] = "link", origin
    others = [d for d in distributions if d["root"] == root and d not in here]
    recorded = {row[0] for rows in records.values() for row in rows}
    strange = {name for name in facts["files"] if name not in recorded and not name.endswith(".pyc")}
    facts["owners"] = {}
    for other in others if strange else []:
        for name in strange.intersection(row[0] for row in record_of(dict(other))):
            facts["owners"][name] = other["name"]
    return facts


def files(asked: Facts) -> Facts:
    path, wanted = asked["path"], dict(asked["packages"])
    sys.pycache_prefix = asked["cache_prefix"] or None
    attests = attested(path)
    for distribution in [d for d, package in wanted.items() if not package]:
        theirs = [p for name, p in attests.items() if canonical(name) == canonical(distribution)]
        wanted[distribution] = theirs[0] if theirs else distribution.replace("-", "_")
    more = {d: p for d, p in asked.get("optional", {}).items() if p in attests.values()}
    distributions = installed(path)
    cache = os.path.join(os.environ.get("FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~")), ".cache", "flashinfer")
    below = {version: os.walk(os.path.join(cache, version)) for version in listed(cache)}
    kernels = {v: sum(f.endswith(".so") for _, _, names in tree for f in names) for v, tree in below.items()}
    return {
        "python": sys.executable,
        "stdlib": os.path.dirname(os.__file__),
        "distributions": [[canonical(d["name"]), d["version"]] for d in distributions],
        "packages": [look(d, p, asked, distributions) for d, p in {**(wanted or attests), **more}.items()],
        "startup": startup(path, distributions),
        "jit_cache": {"folder": cache, "kernels": {v: n for v, n in kernels.items() if n}},
    }


if __name__ == "__main__":
    question = json.loads(sys.stdin.read())
    answer = at_start(question["packages"]) if question["look"] == "start" else files(question)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
