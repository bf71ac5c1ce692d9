"""``build``: wheels of the patched trees that carry their own proof.

Each wheel has a local version made of the whole set's stack id, holds ``_patchq.json`` and pins
its patched siblings, so that an installer can't put upstream's wheel back.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from patchq.build import backend, wheel
from patchq.errors import BuildError, ConflictError, UserError
from patchq.formats.lock import BuildConfig, Pin
from patchq.git.replay import leave_out
from patchq.git.worktree import copy_tree
from patchq.names import show_path
from patchq.project.project import Project
from patchq.sources import index
from patchq.stacks.applied import Applied, compute_stack_id, read_applied, release_version
from patchq.system import fsio

_COMPILED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".pyx", ".so")


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel in ``dist/``. ``fresh`` is False when it was there already."""

    upstream: str
    distribution: str
    version: str
    profile: str
    path: Path
    sha256: str
    stack_id: str
    fresh: bool
    notes: tuple[str, ...] = ()


def build(
    project: Project,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    profile: str = "",
    wheel_tag: str = "",
    isolation: bool = True,
    offline: bool = False,
) -> list[Built]:
    """Build wheels of a set's upstreams, all that have a build or the named ones.

    :param profile: ``overlay``, ``source`` or ``empty`` instead of the lock's.
    :param wheel_tag: overlay the release wheel whose file name holds this, instead of this machine's.
    :param isolation: build in an environment of its own with the lock's pinned requirements.
    :raises UserError: if a stack isn't applied as its files say.
    :raises BuildError: if a build fails, or its wheel doesn't hold what was patched.
    """
    set_name = project.choose_set(set_name)
    with project.locked("build"):
        applied = read_applied(project, set_name)
        project.check_names([a.stack.pin for a in applied], names, set_name)
        stack_id = compute_stack_id(applied)
        chosen = [a for a in applied if a.build and (not names or a.stack.pin.upstream in names)]
        for name in names:
            if name not in [a.stack.pin.upstream for a in chosen]:
                raise UserError(
                    f"{name} has no build of its own", hint=f"see [upstreams.{name}.build] in the formats reference"
                )
        if not chosen:
            raise UserError(
                f"nothing to build: no upstream of {set_name} has a build",
                hint="add [upstreams.NAME.build] to upstream.lock; see docs/reference/formats.md",
            )
        versions = {
            a.stack.pin.upstream: f"{release_version(a.stack.pin)}+patchq.{stack_id[:8]}" for a in applied if a.build
        }
        job = _Job(project, set_name, applied, stack_id, versions, wheel_tag, isolation, offline)
        built = [job.build(a, profile or (a.build.profile if a.build else "")) for a in chosen]
        _write_beside(project, applied, stack_id, set_name)
        return built


class _Job:
    """What all builds of one call share."""

    def __init__(
        self, project: Project, set_name: str, applied: Sequence[Applied], stack_id: str,
        versions: Mapping[str, str], wheel_tag: str, isolation: bool, offline: bool,
    ) -> None:  # fmt: skip
        self.project, self.set_name, self.applied, self.stack_id = project, set_name, applied, stack_id
        self.versions, self.wheel_tag, self.isolation, self.offline = versions, wheel_tag, isolation, offline
        self.layout, self.store = project.layout, project.store

    def build(self, item: Applied, profile: str) -> Built:
        upstream, config = item.stack.pin.upstream, item.build
        assert config
        key = self._key(item, profile)
        record = self.layout.private / "wheels" / f"{key}.json"
        done = self._already(record, upstream, config, profile)
        if done:
            return done
        self.project.say(f"{upstream}: building ({profile})")
        version = self.versions[upstream] + (".empty" if profile == "empty" else "")
        left_out: tuple[str, ...] = ()
        if profile == "overlay":
            path, notes, left_out = self._overlay(item, config, version)
        else:
            path, notes = self._source(item, config, version, profile)
        self._drop_older(record, config, profile, path)
        digest = fsio.sha256_file(path)
        fsio.write_atomic(
            record,
            fsio.dump_json(
                {
                    "version": 1,
                    "file": path.name,
                    "stat": fsio.stat_key(path),
                    "sha256": digest,
                    "wheel": version,
                    "distribution": config.distribution,
                    "profile": profile,
                    "notes": notes,
                    "left_out": left_out,
                }
            ),
        )
        return Built(upstream, config.distribution, version, profile, path, digest, self.stack_id, True, tuple(notes))

    def _key(self, item: Applied, profile: str) -> str:
        config = item.build
        assert config
        requires = config.empty_requires if profile == "empty" else config.requires
        body = [
            self.stack_id, item.stack.pin.upstream, profile, self.wheel_tag or sys.platform + os.uname().machine,
            [a.state.tip for a in self.applied], requires, config.version_file, self.set_name,
            dict(item.stack.pin.wheels), sorted(config.ignore),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]

    def _already(self, record: Path, upstream: str, config: BuildConfig, profile: str) -> Built | None:
        data = fsio.read_or_none(record)
        if data is None:
            return None
        known = fsio.load_state(data, record, 1)
        path = self.layout.dist / str(known["file"])
        if not path.exists():
            return None
        if list(fsio.stat_key(path)) != known["stat"] and fsio.sha256_file(path) != known["sha256"]:
            return None
        return Built(
            upstream, config.distribution, known["wheel"], profile, path, known["sha256"], self.stack_id, False,
            tuple(known["notes"]),
        )  # fmt: skip

    def _drop_older(self, record: Path, config: BuildConfig, profile: str, path: Path) -> None:
        """Wheels that patchq itself put into dist/ for an earlier stack; the new one is complete."""
        for other in record.parent.glob("*.json") if record.parent.is_dir() else ():
            known = fsio.load_state(other.read_bytes(), other, 1)
            if known["distribution"] == config.distribution and known["profile"] == profile and other != record:
                same_tags = known["file"].split("-")[2:] == path.name.split("-")[2:]
                if same_tags and known["file"] != path.name:
                    fsio.remove(self.layout.dist / known["file"])
                if same_tags:
                    fsio.remove(other)

    # Overlay

    def _overlay(self, item: Applied, config: BuildConfig, version: str) -> tuple[Path, list[str], tuple[str, ...]]:
        item, left_out = self._without_compiled(item)
        source = self._release_wheel(item.stack.pin, config)
        info = wheel.inspect_wheel(source)
        members = set(info.members)
        files: dict[str, bytes] = {}
        gone: list[str] = []
        refused: list[str] = []
        skipped: list[str] = []
        for path, data in self._touched(item):
            name = show_path(path)
            inside = name.startswith(config.package + "/")
            if any(fnmatch.fnmatch(name, pattern) for pattern in config.ignore):
                skipped.append(name)
            elif not inside or name.endswith(_COMPILED) or (name not in members and not name.endswith(".py")):
                refused.append(name)
            elif data is None:
                gone.append(name)
            else:
                files[name] = data
        if refused:
            raise BuildError(
                f"{item.stack.pin.upstream}: an overlay can't hold what these are compiled into: {', '.join(refused)}",
                hint=f"`patchq build {item.stack.pin.upstream} --profile source`",
            )
        if config.version_file and config.version_file in members:
            import zipfile

            with zipfile.ZipFile(source) as zf:
                files[config.version_file] = wheel.set_version(zf.read(config.version_file), version)
        manifest = self._manifest(item, config, version, "overlay", dict(files), left_out)
        files[f"{config.package}/_patchq.json"] = manifest
        target = self.layout.dist / wheel.wheel_name(source.name, version)
        wheel.overlay(source, target, version, self._pins(item), files, gone)
        notes = [f"not part of the wheel: {', '.join(skipped)}"] if skipped else []
        if left_out:
            notes.append(f"left out, as they take effect when compiled (--profile source): {', '.join(left_out)}")
        return target, notes, left_out

    def _without_compiled(self, item: Applied) -> tuple[Applied, tuple[str, ...]]:
        """The stack for a wheel whose compiled members are upstream's, and the patches that it can't have.

        Those that say ``Build: source`` are left out whole, their Python too: half of such a patch would
        promise what the compiled half doesn't do. So are those that require them.
        """
        upstream, state, store = item.stack.pin.upstream, item.state, self.store
        applied = {p.applied.name for p in state.patches}
        gone: list[str] = []
        for name, header in item.stack.headers():
            needs_one = any(f"{upstream}/{g}" in header.values("Requires") for g in gone)
            if name in applied and (header.value("Build") == "source" or needs_one):
                gone.append(name)
        if not gone:
            return item, ()

        def conflicted(name: str, error: ConflictError) -> NoReturn:
            raise BuildError(
                f"{upstream}: {name} doesn't apply without {', '.join(gone)}, which an overlay leaves out",
                hint=f"`patchq move` {name} before them, say `Requires:` in it, or --profile source",
            ) from error

        names = [p.applied.name for p in state.patches]
        commits = list(zip(names, store.log(f"{state.base}..{state.tip}"), strict=True))
        now = {a.name: a for a in leave_out(store, upstream, state.base, commits, gone, conflicted)}
        kept = tuple(replace(p, applied=now[p.applied.name]) for p in state.patches if p.applied.name in now)
        tip = kept[-1].applied.commit if kept else state.base
        left = replace(item, state=replace(state, tip=tip, tree=store.tree_of([tip])[0], patches=kept))
        return left, tuple(gone)

    def _release_wheel(self, pin: Pin, config: BuildConfig) -> Path:
        """The release's wheel for this machine, from the cache or the index, hash-checked."""
        if not pin.wheels:
            raise BuildError(
                f"{pin.upstream} {pin.ref} has no release wheels in the lock",
                hint=f"`patchq pin {pin.upstream} --ref {pin.ref} --archive PROJECT==VERSION` records them; "
                "or --profile source",
            )
        name = wheel.choose_wheel(list(pin.wheels), self.wheel_tag)
        sha256 = pin.wheels[name]
        if have := index.cached(sha256):
            return have
        if self.offline:
            raise BuildError(
                f"{name} is not in the cache, and --offline forbids fetching it", hint="run without --offline"
            )
        self.project.say(f"{pin.upstream}: downloading {name}")
        release = pin.archive.partition("==")[2]
        files = [f for f in index.find_wheels(config.distribution, release) if f.name == name]
        if not files:
            raise BuildError(f"the package index no longer has {name}", hint="`patchq pin` again to see what it has")
        return index.download(files[0], sha256, self.project.progress)

    # Source

    def _source(self, item: Applied, config: BuildConfig, version: str, profile: str) -> tuple[Path, list[str]]:
        (self.layout.private / "tmp").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=self.layout.private / "tmp") as text:
            work = Path(text)
            source = work / "source"
            self._copy_sources(item, source)
            if config.version_file and (source / config.version_file).is_file():
                path = source / config.version_file
                path.write_bytes(wheel.set_version(path.read_bytes(), self.versions[item.stack.pin.upstream]))
            env = {
                "SETUPTOOLS_SCM_PRETEND_VERSION": self.versions[item.stack.pin.upstream],
                "SOURCE_DATE_EPOCH": "315532800",
                **({"MAX_JOBS": str(os.cpu_count() or 1)} if "MAX_JOBS" not in os.environ else {}),
                **(backend.ccache_environment() if profile == "source" else {}),
                **(dict(config.empty_env) if profile == "empty" else {}),
            }
            requires = config.empty_requires if profile == "empty" else config.requires
            made = backend.build_wheel(
                item.stack.pin.upstream,
                source,
                work / "out",
                env,
                requires,
                self.isolation and bool(requires or profile != "empty"),
            )
            found = self._find_patched(item, made)
            manifest = self._manifest(item, config, version, profile, found)
            target = self.layout.dist / wheel.wheel_name(made.name, version)
            extra = {f"{config.package}/_patchq.json": manifest}
            wheel.repack(made, target, version, self._pins(item), extra)
            return target, []

    def _copy_sources(self, item: Applied, target: Path) -> None:
        """The patched tree, with the patched nested ones in their places, as plain files."""
        copy_tree(self.store, item.state.tip, target)
        for path, name in self.project.lock.nested_in(item.stack.pin.upstream).items():
            nested = next((a for a in self.applied if a.stack.pin.upstream == name), None)
            if nested:
                place = target / path
                if place.is_dir():
                    place.rmdir()
                place.parent.mkdir(parents=True, exist_ok=True)
                copy_tree(self.store, nested.state.tip, place)
        for path_bytes, entry in self.store.list_tree(item.state.tip).items():
            if entry.mode == b"160000" and not any((target / os.fsdecode(path_bytes)).iterdir()):
                name = show_path(path_bytes)
                raise BuildError(
                    f"{item.stack.pin.upstream}: {name} is a submodule that no pin fills",
                    hint=f"`patchq pin NAME --url URL --ref REF --into {item.stack.pin.upstream}:{name}`, "
                    f"or `patchq fetch {item.stack.pin.upstream} --source archive`",
                )

    def _find_patched(self, item: Applied, made: Path) -> dict[str, bytes]:
        """The members of a built wheel that come from touched files.

        :raises BuildError: if the wheel holds such a file with other bytes than the patched ones.
        """
        import zipfile

        found: dict[str, bytes] = {}
        own = [a for a in self.applied if a is item or self._is_nested(a, item)]
        with zipfile.ZipFile(made) as zf:
            names = zf.namelist()
            for part in own:
                for path, data in self._touched(part):
                    name = show_path(path)
                    places = [n for n in names if n == name or n.endswith("/" + name)]
                    same = {n: zf.read(n) for n in places}
                    right = {n: d for n, d in same.items() if d == data}
                    if places and not right:
                        raise BuildError(
                            f"{made.name} holds {places[0]}, but not as the patches leave it",
                            hint="the build took it from elsewhere: look at its log",
                        )
                    found.update(right)
        return found

    def _is_nested(self, part: Applied, parent: Applied) -> bool:
        into = self.project.lock.upstreams[part.stack.pin.upstream].into
        return bool(into) and into[0] == parent.stack.pin.upstream  # type: ignore[index]

    # What every wheel says of itself

    def _touched(self, item: Applied) -> Iterator[tuple[bytes, bytes | None]]:
        """Each file that the stack changes, with its content after it; None where it removes it."""
        changes = self.store.changes(item.state.base, item.state.tip)
        blobs = self.store.read_blobs(c.new.blob for c in changes if c.new)
        for change in changes:
            yield change.path, blobs[change.new.blob] if change.new else None

    def _pins(self, item: Applied) -> dict[str, str]:
        from packaging.utils import canonicalize_name

        return {
            canonicalize_name(a.build.distribution): self.versions[a.stack.pin.upstream]
            for a in self.applied
            if a.build and a.stack.pin.upstream != item.stack.pin.upstream
        }

    def _manifest(
        self, item: Applied, config: BuildConfig, version: str, profile: str, files: Mapping[str, bytes],
        left_out: Sequence[str] = (),
    ) -> bytes:  # fmt: skip
        upstream = item.stack.pin.upstream
        applied = [item if a.stack.pin.upstream == upstream else a for a in self.applied]
        body = {
            "schema": "patchq/wheel/1",
            "set": self.set_name,
            "stack_id": self.stack_id,
            "distribution": config.distribution,
            "package": config.package,
            "version": version,
            "profile": profile,
            "contains": [a.stack.pin.upstream for a in applied if a is item or self._is_nested(a, item)],
            "upstreams": [self._describe(a) for a in applied],
            "left_out": [f"{upstream}/{name}" for name in left_out],
            "siblings": self._pins(item),
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        }
        return fsio.dump_json(body)

    def _describe(self, item: Applied) -> dict[str, Any]:
        pin, state = item.stack.pin, item.state
        commits = [p.applied.commit for p in state.patches]
        ids = dict(zip(commits, self.project.store.patch_ids_of(commits), strict=True))
        patches = []
        for remembered in state.patches:
            name = remembered.applied.name
            header, _ = item.stack.load(name)
            patches.append(
                {"name": name, "subject": header.subject, "topic": header.value("Topic"),
                 "upstream_status": header.value("Upstream-Status"), "sha256": remembered.sha256,
                 "patch_id": ids.get(remembered.applied.commit, "")}
            )  # fmt: skip
        return {
            "name": pin.upstream, "ref": pin.ref, "commit": pin.commit, "archive": pin.archive, "sha256": pin.sha256,
            "subdir": pin.subdir, "source": state.source, "base": state.base, "tip": state.tip, "tree": state.tree,
            "patches": patches,
        }  # fmt: skip


def _write_beside(project: Project, applied: Sequence[Applied], stack_id: str, set_name: str) -> None:
    """``constraints.txt`` and the CycloneDX document of what is in ``dist/`` now."""
    from patchq.build.sbom import render

    folder = project.layout.dist
    known = []
    for record in sorted((project.layout.private / "wheels").glob("*.json")):
        entry = fsio.load_state(record.read_bytes(), record, 1)
        path = folder / entry["file"]
        if path.exists() and f"+patchq.{stack_id[:8]}" in entry["wheel"] and entry["profile"] != "empty":
            known.append((entry["distribution"], entry["wheel"], path.name, entry["sha256"], entry.get("left_out", ())))
    lines = sorted({f"{name}=={version}" for name, version, *_ in known})
    text = f"# patchq set {set_name}, stack {stack_id}\n" + "".join(f"{line}\n" for line in lines)
    documents = {
        "constraints.txt": text.encode(),
        "patchq.cdx.json": render(project, [a.stack for a in applied], known, stack_id),
    }
    for name, data in documents.items():
        if fsio.read_or_none(folder / name) != data:
            fsio.write_atomic(folder / name, data)
