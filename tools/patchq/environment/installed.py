"""What is told of an installed package, judged: each way in which it is not what was built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patchq.environment.differences import Difference, difference, printable
from patchq.errors import FormatError
from patchq.formats.manifest import Manifest, parse_manifest

_HASHES = ("sha256", "sha384", "sha512")
_CACHE = re.compile(r"(?:.*/)?__pycache__/[^/]+\.\w+-?\w*(?:\.opt-\w+)?\.pyc")
#: What an installer adds beside what the wheel holds.
_INSTALLERS = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "RECORD.jws", "RECORD.p7s")
_SCRIPT = re.compile(r"(?:\.\./)+(?:bin|Scripts|share|include)/")


@dataclass(frozen=True, slots=True)
class Reference:
    """A wheel to hold an install against: SHA-256 by the path that a file is installed at.

    :ivar changed: whether it isn't the wheel that was built here.
    """

    name: str
    distribution: str
    version: str
    files: Mapping[str, str]
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Package:
    """What an import of one package gives.

    ``state`` is ``patched``, ``upstream`` (no manifest, or one without patches), ``other stack``,
    ``altered`` (it isn't as it was built), or ``missing``.

    :ivar reference: what from outside it was held against: ``wheel``, ``stack`` (the id that it must be of, so the
        files against their own RECORD), or ``itself``; ``against`` is the sentence.
    """

    distribution: str
    state: str
    version: str
    origin: str
    stack_id: str
    patches: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    reference: str = "itself"
    against: str = ""


def with_problem(package: Package, found: Difference) -> Package:
    """The package with one more thing wrong."""
    return replace(package, problems=(*package.problems, found.said), differences=(*package.differences, found))


@dataclass
class _Judge:
    """What one package's facts come to, as it is found out."""

    facts: Mapping[str, Any]
    found: list[Difference] = field(default_factory=list)

    def tell(self, code: str, paths: Iterable[str] = (), *words: str, level: str = "problem") -> None:
        self.found.append(difference(code, paths, *words, level=level))

    def tell_any(self, code: str, paths: Iterable[str], *words: str, level: str = "problem") -> None:
        some = sorted(set(paths))
        if some:
            self.tell(code, some, *words, level=level)

    def package(self, state: str, version: str, stack_id: str = "", **more: Any) -> Package:
        problems = tuple(d.said for d in self.found if d.level == "problem")
        notes = tuple(d.said for d in self.found if d.level == "note")
        origin = printable(self.facts["origin"])
        return Package(
            printable(self.facts["distribution"]), state, printable(version), origin, stack_id,
            more.pop("patches", ()), problems, notes, differences=tuple(self.found), **more,
        )  # fmt: skip


def judge_package(
    facts: Mapping[str, Any], expected: str, references: Sequence[Reference], versions: Mapping[str, Sequence[str]],
    *, unpatched: bool = False,
) -> Package:  # fmt: skip
    """What is wrong with one package.

    :param facts: as ``probe.py`` tells them.
    :param expected: the stack id that it must be of, or its beginning; empty for any.
    :param references: wheels of it, of any version.
    :param versions: of each distribution that is installed, by canonical name.
    :param unpatched: no patch changes it, so upstream's own build is right.
    """
    judge = _Judge(facts)
    installed = [i["version"] for i in facts["installed"]]
    if not facts["origin"]:
        judge.tell("not-installed", (), facts["distribution"])
        return judge.package("missing", "")
    _judge_place(judge)
    if facts["manifest"] is None and not facts["manifest_said"]:
        hidden = [i for i in facts["installed"] if "+patchq." in i["version"]]
        why = f", in front of the patched {hidden[0]['version']}" if hidden else ""
        if unpatched and not hidden:
            judge.tell("no-patches", level="note")
        else:
            judge.tell("not-patched", (), facts["origin"], why)
        return judge.package("upstream", ", ".join(installed))
    before = len(judge.found)
    record = _judge_record(judge, facts)
    try:
        if facts["manifest"] is None:
            raise FormatError(f"the manifest {facts['manifest_said']}", hint="")
        manifest = parse_manifest(facts["manifest"])
    except FormatError as error:
        judge.tell("manifest-malformed", (), error.message)
        return judge.package("altered", ", ".join(installed))
    unlike = _judge_files(judge, facts, record)
    _judge_manifest(judge, manifest, record, unlike)
    reference, against = _judge_wheel(judge, manifest, record, unlike, references, expected)
    altered = any(d.level == "problem" for d in judge.found[before:])
    state = "altered" if altered else "patched" if manifest.patches or manifest.left_out else "upstream"
    if expected and not manifest.stack_id.startswith(expected):
        state = "other stack"
        judge.tell("other-stack", (), manifest.stack_id[:8], expected[:8])
    _judge_installs(judge, manifest, installed, versions)
    if reference == "itself":
        only = "consistent with itself only" if not any(d.level == "problem" for d in judge.found) else "itself only"
        against = f"{only}: there is no wheel and no stack id to hold it against"
    return judge.package(
        state, manifest.version, manifest.stack_id, patches=tuple(map(printable, manifest.patches)),
        left_out=tuple(map(printable, manifest.left_out)), reference=reference, against=against,
    )  # fmt: skip


def _judge_place(judge: _Judge) -> None:
    """Where an import finds the package, and whether that is the only place."""
    facts = judge.facts
    others = [c for c in facts["copies"] if c not in (facts["origin"], *facts["places"])]
    if others:
        judge.tell("copies", others, f"{len(others)} more cop{'y' if len(others) == 1 else 'ies'}")
    if len(facts["places"]) > 1:
        judge.tell("namespace", facts["places"])
    editable = [i["editable"] for i in facts["installed"] if i["editable"]]
    if editable:
        judge.tell("editable", editable)
    if "." not in facts["package"] and facts["direct"] != facts["origin"]:
        judge.tell("redirected", (), facts["origin"], facts["direct"] or "none")
    if facts["loaded"]:
        judge.tell("preloaded", level="note")


_Record = dict[str, tuple[str, str]]


def _judge_record(judge: _Judge, facts: Mapping[str, Any]) -> _Record:
    """RECORD by path: the hash's name and digest. Of several, that of the version that the manifest names."""
    beside = [i for i in facts["installed"] if i["folder"] in facts["records"]]
    if not beside:
        judge.tell("record-missing")
        return {}
    named = re.search(r'"version": "([^"]+)"', facts["manifest"] or "")
    own = next((i for i in beside if named and i["version"] == named[1]), beside[0])
    if own["said"]:
        judge.tell("metadata", (), own["said"])
    if own["record_said"]:
        absent = own["record_said"].startswith("No such file")
        judge.tell("record-missing") if absent else judge.tell("record-malformed", (), own["record_said"])
    elif not facts["records"][own["folder"]]:
        judge.tell("record-malformed", (), "it is empty")
    if own["link"]:
        judge.tell("link", [own["folder"]])
    record: _Record = {}
    twice, unhashed = [], []
    for path, kind, digest, _ in facts["records"][own["folder"]]:
        if record.get(path, (kind, digest)) != (kind, digest):
            twice.append(path)
        record[path] = kind, digest
        last = path.rpartition("/")[2]
        if kind not in _HASHES and not _CACHE.fullmatch(path) and not last.startswith("RECORD"):
            unhashed.append(path)
    if twice:
        judge.tell("record-malformed", twice, "files are in it twice with different hashes")
    judge.tell_any("record-unhashed", unhashed)
    outside = set(facts["outside"]) & set(record)
    scripts = {p for p in outside if _SCRIPT.match(p)}
    judge.tell_any("record-outside", outside - scripts)
    judge.tell_any("record-outside", scripts, level="note")
    return {path: found for path, found in record.items() if path not in outside}


def _judge_files(judge: _Judge, facts: Mapping[str, Any], record: _Record) -> set[str]:
    """Every file against RECORD, and what RECORD doesn't name; returns those that aren't as it says."""
    files, odd = facts["files"], facts["odd"]
    mine = {p: kind for p, (kind, _) in odd.items() if p in record or _below(p, facts["package"]) or _holds(p, record)}
    judge.tell_any("link", [f"{p} -> {odd[p][1]}" for p, kind in mine.items() if kind == "link"])
    judge.tell_any("special", [f"{p} ({odd[p][1]})" for p, kind in mine.items() if kind == "other"])
    unreadable = [f"{p} ({odd[p][1]})" for p, kind in mine.items() if kind == "unreadable"]
    unreadable += [f"{p} ({found['said']})" for p, found in files.items() if "said" in found]
    judge.tell_any("unreadable", unreadable)
    changed: set[str] = set()
    missing: set[str] = set()
    lost: set[str] = set()
    covered: set[str] = set()
    for path, (kind, digest) in record.items():
        there = files.get(path)
        if there is None and any(path == p or path.startswith(p + "/") for p in mine):
            covered.add(path)
        elif there is None:
            if not _CACHE.fullmatch(path):
                (lost if _SCRIPT.match(path) else missing).add(path)
        elif kind in _HASHES and "said" not in there and there.get(kind) != digest:
            changed.add(path)
    judge.tell_any("changed", changed)
    judge.tell_any("missing", missing)
    judge.tell_any("missing", lost, level="note")
    if record:
        added = [p for p in files if p not in record and not _CACHE.fullmatch(p)]
        owners = facts["owners"]
        added = [p for p in added if _below(p, facts["package"]) or p not in owners]
        judge.tell_any("added", [f"{p} (of {owners[p]})" if p in owners else p for p in added])
    for code in ("forged", "unchecked", "unreadable"):
        wrong = [p + (f" ({said})" if said else "") for p, kind, said in facts["caches"]["wrong"] if kind == code]
        judge.tell_any(f"cache-{code}", wrong)
    judge.tell_any("cache-stale", [p for p, kind, _ in facts["caches"]["wrong"] if kind == "stale"], level="note")
    return changed | missing | covered | {p for p in files if "said" in files[p]}


def _below(path: str, package: str) -> bool:
    return (path + "/").startswith(package.replace(".", "/") + "/")


def _holds(path: str, record: _Record) -> bool:
    return any(p.startswith(path + "/") for p in record)


def _judge_manifest(judge: _Judge, manifest: Manifest, record: _Record, unlike: set[str]) -> None:
    """The manifest against what is there: where RECORD agrees with a file, both may be forged."""
    facts = judge.facts
    wrong = []
    if _canonical(manifest.distribution) != _canonical(facts["distribution"]) or manifest.package != facts["package"]:
        judge.tell("manifest-disagrees", (), f": it is of {manifest.distribution}'s {manifest.package}")
    local = manifest.version.partition("+patchq.")[2].partition(".")[0]
    if local != manifest.stack_id[:8]:
        judge.tell("manifest-disagrees", (), f": version {manifest.version} is not of stack {manifest.stack_id[:8]}")
    if manifest.computed and manifest.stack_id not in manifest.computed:
        judge.tell("manifest-disagrees", (), ": the pins and patches that it names are of another stack id")
    for path, digest in manifest.files.items() if record else ():
        there = facts["files"].get(path, {})
        if path not in unlike and (path not in record or there.get("sha256") != digest):
            wrong.append(path)
    judge.tell_any("manifest-disagrees", wrong, ", the file and RECORD say otherwise")


def _judge_wheel(
    judge: _Judge, manifest: Manifest, record: _Record, unlike: set[str], references: Sequence[Reference], expected: str
) -> tuple[str, str]:
    """Files and RECORD against the wheel that they should come from, the closest where there are several."""
    files = judge.facts["files"]
    best: tuple[Reference, set[str]] | None = None
    for wheel in references:
        if _canonical(wheel.distribution) != _canonical(manifest.distribution) or wheel.version != manifest.version:
            continue
        wrong = {p for p, digest in wheel.files.items() if files.get(p, {}).get("sha256") != digest}
        for path in record:
            installers = ".dist-info/" in path and path.rpartition("/")[2] in _INSTALLERS
            if path not in wheel.files and not (installers or _CACHE.fullmatch(path) or path.startswith("../")):
                wrong.add(path)
        wrong = {p for p in wrong if not p.endswith(".dist-info/RECORD")} - unlike
        if best is None or len(wrong) < len(best[1]):
            best = wheel, wrong
    if best is None:
        return (
            ("stack", f"stack id {expected[:8]}, its files against their own RECORD alone")
            if expected
            else ("itself", "")
        )
    judge.tell_any("wheel-differs", best[1], best[0].name)
    if best[0].changed:
        judge.tell("wheel-changed", (), best[0].name)
    return "wheel", best[0].name


def _judge_installs(
    judge: _Judge, manifest: Manifest, installed: Sequence[str], versions: Mapping[str, Sequence[str]]
) -> None:
    if manifest.version not in installed:
        judge.tell("mixed-installs", (), ", ".join(installed) or "nothing", manifest.version)
    elif len(installed) > 1:
        judge.tell("installed-twice", installed, str(len(installed)))
    for name, version in sorted(manifest.siblings.items()):
        others = versions.get(_canonical(name), ())
        if others and version not in others:
            judge.tell("sibling", (), f"{name} {version}, installed is {', '.join(others)}")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
