"""Build thin wheels (``build --thin``), which contain the differences between a full wheel and its release.

A thin wheel is made from the full wheel, so that both install the same patched files. If a thin wheel can't contain
some of the differences, the build fails, and its error lists these differences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from patchq.build import platforms, wheel, zipped
from patchq.build.build import build, job_of
from patchq.build.contents import WheelInfo, inspect_wheel
from patchq.build.dist import Built
from patchq.build.job import Job, Unpatched
from patchq.errors import BuildError
from patchq.formats.lock import BuildConfig
from patchq.formats.manifest import Manifest, parse_manifest
from patchq.project.project import Project
from patchq.system import fsio

#: Name of the folder of thin wheels in ``dist/SET``.
FOLDER = "thin"
#: Modules of this package that a thin wheel contains, with their names in the wheel.
_RUNTIME = {"_start.py": "__init__.py", "_base.py": "_base.py", "_serve.py": "_serve.py", "_place.py": "__main__.py"}
_LICENSES = ("license", "licence", "copying", "notice", "authors")
_MODULE = ".py"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinWheel:
    """Thin wheel in ``dist/SET/thin``.

    :ivar distribution: name of the thin wheel's distribution, such as ``vllm-patchq-thin``.
    :ivar package: name of the package in the thin wheel, such as ``_patchq_thin_vllm``.
    :ivar release: unchanged wheel of the release, which must be installed, too.
    :ivar files: number of patched files.
    :ivar size: size of the thin wheel in bytes.
    """

    upstream: str
    distribution: str
    version: str
    path: Path
    sha256: str
    stack_id: str
    package: str
    release: str
    patches: tuple[str, ...]
    left_out: tuple[str, ...]
    files: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReleaseDifference:
    """Files of a full wheel that the release's wheel doesn't contain, or contains in another version.

    :ivar modules: path of each patched module by its name.
    :ivar data: patched files that aren't imported: the package opens them by path.
    :ivar info: metadata files that differ, by their names in the metadata folder.
    """

    files: Mapping[str, bytes]
    modules: Mapping[str, str]
    data: tuple[str, ...]
    info: Mapping[str, bytes]


def build_thin(
    project: Project,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    wheel_tag: str = "",
    isolation: bool = True,
    offline: bool = False,
    platforms: Sequence[str] = (),
) -> tuple[list[ThinWheel], tuple[Unpatched, ...]]:
    """Build thin wheels of a set's patched upstreams into ``dist/SET/thin``.

    The full wheels are built first, by :func:`patchq.build.build.build` with the same options.

    :returns: the thin wheels, and the upstreams without patches.
    :raises BuildError: if a full wheel differs from its release in a file that a thin wheel can't replace,
        such as a compiled or removed one.
    """
    set_name = project.choose_set(set_name)
    full = build(
        project,
        names,
        set_name=set_name,
        wheel_tag=wheel_tag,
        isolation=isolation,
        offline=offline,
        platforms=platforms,
    )
    with project.locked("build"):
        job = job_of(project, set_name, wheel_tag=wheel_tag, isolation=isolation, offline=offline)
        made = [_build_one(job, built) for built in full.wheels]
        _write_requirements(job)
    return made, full.unpatched


def _build_one(job: Job, built: Built) -> ThinWheel:
    item = next(one for one in job.applied if one.stack.pin.upstream == built.upstream)
    config = item.build
    assert config
    if "." in config.package:
        raise BuildError(
            f"{built.upstream}: {config.package} is part of a namespace package, which a thin wheel can't serve",
            hint=f"`patchq build {built.upstream}`",
        )
    source, _ = platforms.release_wheel(job, item.stack.pin, config)
    release, full = inspect_wheel(source), inspect_wheel(built.path)
    manifest_name = f"{config.package}/_patchq.json"
    text = full.read([manifest_name])[manifest_name].decode()
    manifest, raw = parse_manifest(text), json.loads(text)
    difference = _compare(built.upstream, config, release, full, manifest)
    about = _describe(config, release, full, manifest, difference)
    package = f"_patchq_thin_{config.package}"
    files = _runtime(package)
    files[f"{package}/thin.json"] = fsio.dump_json(about)
    files[f"{package}/base.csv"] = _rows(release)
    files |= {f"{package}/files/{name}": data for name, data in difference.files.items()}
    files |= {f"{package}/info/{name}": data for name, data in difference.info.items()}
    return _write(job, built, release, manifest, raw, package, files)


# Comparison


def _compare(
    upstream: str, config: BuildConfig, release: WheelInfo, full: WheelInfo, manifest: Manifest
) -> _ReleaseDifference:
    """Return the differences between a full wheel and its release.

    :raises BuildError: if a thin wheel can't contain one of these differences.
    """
    changed, refused = _changed_members(config, release, full)
    found = full.read(changed)
    own = f"{config.package}/_patchq.json"
    data = []
    modules = {}
    for name in found:
        if _is_module(config, name):
            modules[_module_name(name)] = name
        elif name != own:
            data.append(name)
    if not config.data_module:
        refused |= dict.fromkeys(data, "read by path, and the build table has no data-module")
    info = _changed_info(release, full)
    if "entry_points.txt" in info:
        refused["entry_points.txt"] = "entry points are read from the release's metadata"
    for name in _other_requirements(release, full, manifest):
        refused[name] = "a requirement that differs from the release's"
    if refused:
        listed = "; ".join(f"{name} ({reason})" for name, reason in sorted(refused.items()))
        raise BuildError(
            f"{upstream}: a thin wheel can't deliver {listed}", hint=f"`patchq build {upstream}` makes the full wheel"
        )
    return _ReleaseDifference(files=found, modules=modules, data=tuple(data), info=info)


def _changed_members(config: BuildConfig, release: WheelInfo, full: WheelInfo) -> tuple[list[str], dict[str, str]]:
    """Return the changed members that a thin wheel can contain.

    For each other changed member, also return the reason why a thin wheel can't contain it.
    """
    changed = []
    refused = {}
    for name in _members(release):
        if name not in full.record:
            refused[name] = "removed"
    for name in _members(full):
        if release.record.get(name) == full.record[name]:
            continue
        if not name.startswith(config.package + "/"):
            refused[name] = f"outside of {config.package}"
        elif name.endswith((".so", ".pyd", ".dylib")):
            refused[name] = "compiled"
        else:
            changed.append(name)
    return changed, refused


def _members(info: WheelInfo) -> Iterator[str]:
    """Yield the members that RECORD lists, except those in the metadata folder."""
    for name in info.record:
        if not name.startswith(info.dist_info + "/"):
            yield name


def _is_module(config: BuildConfig, name: str) -> bool:
    """Return whether a member is imported: a .py file outside of the data folders."""
    inner = name.removeprefix(config.package + "/")
    return name.endswith(_MODULE) and not any(inner.startswith(folder + "/") for folder in config.links)


def _module_name(path: str) -> str:
    return path.removesuffix(_MODULE).removesuffix("/__init__").replace("/", ".")


def _changed_info(release: WheelInfo, full: WheelInfo) -> dict[str, bytes]:
    """Return the full wheel's metadata files that differ from the release's metadata files, except RECORD."""
    changed = []
    for name in full.record:
        inner = name.removeprefix(full.dist_info + "/")
        is_info = inner != name and inner != "RECORD"
        if is_info and full.record[name] != release.record.get(f"{release.dist_info}/{inner}"):
            changed.append(name)
    return {name.removeprefix(full.dist_info + "/"): data for name, data in full.read(changed).items()}


def _other_requirements(release: WheelInfo, full: WheelInfo, manifest: Manifest) -> list[str]:
    """Return the requirements in which the two wheels differ, except those that name siblings of the set."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found = []
    for info in (release, full):
        lines = HeaderParser().parsestr(info.metadata).get_all("Requires-Dist") or []
        requirements = map(Requirement, lines)
        found.append({str(one) for one in requirements if canonicalize_name(one.name) not in manifest.siblings})
    return sorted(found[0] ^ found[1])


# Writing


def _describe(
    config: BuildConfig, release: WheelInfo, full: WheelInfo, manifest: Manifest, difference: _ReleaseDifference
) -> dict[str, object]:
    """Return the contents of ``thin.json``, which the modules in the wheel read."""
    data_file = ""
    if difference.data:
        data_file = config.data_module.replace(".", "/") + _MODULE
    return {
        "schema": "patchq/thin/1",
        "distribution": release.name,
        "package": config.package,
        "version": release.version,
        "dist_info": release.dist_info,
        "patched_version": manifest.version,
        "patched_info": full.dist_info,
        "stack_id": manifest.stack_id,
        "patches": manifest.patches,
        "left_out": manifest.left_out,
        "modules": difference.modules,
        "data": difference.data,
        "data_module": config.data_module,
        "data_file": data_file,
        "files": {name: wheel.record_line(name, data)[1] for name, data in difference.files.items()},
        "info": sorted(difference.info),
    }


def _runtime(package: str) -> dict[str, bytes]:
    """Return the modules that serve the patched files, and the ``.pth`` file that starts them."""
    here = Path(__file__).parent
    files = {}
    for source, name in _RUNTIME.items():
        files[f"{package}/{name}"] = (here / source).read_bytes()
    files[f"{package}.pth"] = f"import {package}\n".encode()
    return files


def _rows(release: WheelInfo) -> bytes:
    """Return the release's RECORD without the files in ``NAME.data``, because installers move these files."""
    text = release.read([f"{release.dist_info}/RECORD"])[f"{release.dist_info}/RECORD"].decode()
    folder = release.dist_info.removesuffix(".dist-info") + ".data/"
    rows = []
    for line in text.splitlines(keepends=True):
        if not line.lstrip('"').startswith(folder):
            rows.append(line)
    return "".join(rows).encode()


def _write(
    job: Job,
    built: Built,
    release: WheelInfo,
    manifest: Manifest,
    raw: dict[str, object],
    package: str,
    files: dict[str, bytes],
) -> ThinWheel:
    distribution = f"{manifest.distribution}-patchq-thin"
    name = release.dist_info.removesuffix(".dist-info").rpartition("-")[0]
    stem = f"{name}_patchq_thin-{manifest.version}"
    digests = {}
    for path, data in sorted(files.items()):
        if not path.endswith(".pth"):
            digests[path] = hashlib.sha256(data).hexdigest()
    own = {
        **raw,
        "distribution": distribution,
        "package": package,
        "profile": FOLDER,
        "siblings": {f"{name}-patchq-thin": version for name, version in manifest.siblings.items()},
        "files": digests,
    }
    files[f"{package}/_patchq.json"] = fsio.dump_json(own)
    info = f"{stem}.dist-info"
    files |= _metadata(release, distribution, manifest.version, info)
    record = f"{info}/RECORD"
    files[record] = wheel.rewrite_record("", (), files, record)
    folder = job.dist / FOLDER
    target = folder / "-".join([stem, *release.path.name.removesuffix(".whl").split("-")[2:]])
    target = target.with_name(target.name + ".whl")
    _remove_older(folder, target)
    zipped.write(target, dict(sorted(files.items())))
    return ThinWheel(
        upstream=built.upstream,
        distribution=distribution,
        version=manifest.version,
        path=target,
        sha256=fsio.sha256_file(target),
        stack_id=manifest.stack_id,
        package=package,
        release=release.path.name,
        patches=manifest.patches,
        left_out=manifest.left_out,
        files=len(json.loads(files[f"{package}/thin.json"])["files"]),
        size=target.stat().st_size,
    )


def _metadata(release: WheelInfo, distribution: str, version: str, info: str) -> dict[str, bytes]:
    """Return the metadata of a thin wheel, with the license and the license files of the release."""
    head = HeaderParser().parsestr(release.metadata)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {distribution}",
        f"Version: {version}",
        f"Summary: Patched files of {release.name} {release.version}, for the unchanged release",
        f"Requires-Dist: {release.name}==={release.version}",
    ]
    lines += [f"Requires-Python: {value}" for value in head.get_all("Requires-Python") or []]
    for value in head.get_all("Classifier") or []:
        if value.startswith("License ::"):
            lines.append(f"Classifier: {value}")
    wheel_file = f"{release.dist_info}/WHEEL"
    wanted = []
    for name in release.record:
        if _is_license(release, name):
            wanted.append(name)
    found = release.read([wheel_file, *wanted])
    tags = []
    for line in found.pop(wheel_file).decode().splitlines():
        if line.startswith(("Root-Is", "Tag:")):
            tags.append(line)
    files = {info + name.removeprefix(release.dist_info): data for name, data in found.items()}
    files[f"{info}/METADATA"] = ("\n".join(lines) + "\n").encode()
    files[f"{info}/WHEEL"] = ("\n".join(["Wheel-Version: 1.0", "Generator: patchq", *tags]) + "\n").encode()
    return files


def _is_license(release: WheelInfo, name: str) -> bool:
    inner = name.removeprefix(release.dist_info + "/")
    return inner != name and inner.rpartition("/")[2].lower().startswith(_LICENSES)


def _remove_older(folder: Path, target: Path) -> None:
    """Remove the thin wheels of other stacks for the same distribution and machine."""
    own = target.name.split("-")
    for path in folder.glob("*.whl"):
        parts = path.name.split("-")
        if path != target and (parts[0], parts[2:]) == (own[0], own[2:]):
            fsio.remove(path)


def _write_requirements(job: Job) -> None:
    """Write the requirements file in the folder of thin wheels. It lists this stack's wheels, each with its hash."""
    folder = job.dist / FOLDER
    lines: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.whl")):
        info = inspect_wheel(path)
        if f"+patchq.{job.stack_id[:8]}" in info.version:
            lines.setdefault(f"{info.name}=={info.version}", []).append(fsio.sha256_file(path))
    entries = []
    for line, digests in lines.items():
        entries.append(" \\\n    ".join([line, *(f"--hash=sha256:{digest}" for digest in digests)]))
    head = f"# patchq set {job.set_name}, stack {job.stack_id}, for unchanged releases\n"
    requirements = head + "--no-index\n--find-links .\n" + "\n".join(entries) + "\n"
    fsio.write_atomic(folder / "requirements.txt", requirements.encode())
    fsio.write_atomic(folder / "constraints.txt", (head + "".join(f"{line}\n" for line in lines)).encode())
