"""``verify-image``: is an image what a lock says: its labels, its attestation, and what its interpreters run."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from string import Template

from patchq.environment import signatures
from patchq.environment._caches import judge_caches
from patchq.environment._files import Files
from patchq.environment._layout import environments
from patchq.environment._loader import judge_variables
from patchq.environment._scripts import is_script
from patchq.environment._startup import judge_environment
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.environment.image import Image
from patchq.environment.installed import Environment, Package, Reference, judge_package
from patchq.formats.signing import Signing
from patchq.formats.verification import Verification

#: Labels that ``compose`` writes: the stack's id, the SHA-256 of upstream.lock, and the set's name.
LABELS = ("patchq.stack", "patchq.lock", "patchq.set")
#: Where ``compose`` puts the attestation and the bill of materials.
FOLDER = "/usr/share/patchq"
_PYTHON = re.compile(r"python(?:3(?:\.\d+t?)?)?")

#: What makes Python, the loader or a shell take other files: as a word of its own, and anywhere in a word.
_NAME = r"(PYTHON[A-Z_]+|LD_[A-Z_]+|BASH_ENV|ENV|PATH)"
_ASSIGNMENT = re.compile(_NAME + r"=(.*)", re.DOTALL)
_STEERING = re.compile(r"(?<![\w-])" + _NAME + r"=(\"[^\"]*\"|'[^']*'|[^\s;&|'\"]*)")
#: Options that a text with several words follows: ``sh -c``, ``env -S``.
_TEXT_OPTION = re.compile(r"-\w*[cS]|--split-string")
#: Ways to start a program that a command may have; each is judged whole.
_MOST_STARTS = 8
#: Programs that take a text with several words as a command.
_SPLITTING = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox", "env"})


@dataclass(frozen=True, slots=True)
class Signer:
    """By whom the attestation must be signed; ``root`` is the project's folder, where its key lies."""

    signing: Signing
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the lock says.

    :ivar packages: distribution to import name of what must be there.
    :ivar statement: the attestation with the wheels; None if there is none.
    :ivar materials: the bill of materials with the wheels; None if there is none.
    :ivar signer: None if the lock asks for no signature.
    """

    stack_id: str
    lock_sha256: str
    set_name: str
    packages: Mapping[str, str]
    references: Sequence[Reference]
    statement: bytes | None
    materials: bytes | None
    signer: Signer | None = None
    rules: Verification = field(default_factory=Verification)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVerdict:
    """What was found. ``differences`` are the image's own, beside those of its packages."""

    image: str
    packages: tuple[Package, ...]
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        wrong = any(one.level is Level.PROBLEM for one in self.differences)
        return bool(self.packages) and not wrong and all(package.is_right for package in self.packages)


def judge_image(image: Image, expected: Expected) -> ImageVerdict:
    """Compare an image with what it should be."""
    findings = Findings(frozenset(expected.rules.allow), frozenset(expected.rules.groups))
    files = image.files
    _judge_labels(image, expected, findings)
    _judge_attestation(files, expected, findings)
    starts = _starts(image)
    if len(starts) > _MOST_STARTS:
        findings.add(Code.VARIABLE, (), "the command", f"variables in more than {_MOST_STARTS - 1} ways")
    seen = [_judge_start(image, expected, variables, findings) for variables in starts[:_MOST_STARTS]]
    packages = (next((one for one in found if not one.is_right), found[0]) for found in zip(*seen, strict=True))
    _judge_site_links(image, findings)
    return ImageVerdict(image=image.name, packages=tuple(packages), differences=tuple(findings.found))


def _judge_start(
    image: Image, expected: Expected, variables: Mapping[str, str], findings: Findings
) -> list[Package]:  # fmt: skip
    """Judge what the interpreters of an image import and run where they start with ``variables``."""
    files = image.files
    home = image.env.get("HOME") or _home(files, image.user)
    found = environments(files, set(image.folders), variables, home, image.working)
    judged = [Environment(interpreter) for interpreter in found]
    seen = [_judge_package(judged, image, expected, *pair) for pair in expected.packages.items()]
    for environment in judged:
        own = {name: package for name, package in expected.packages.items() if environment.named(name)}
        sources = judge_environment(environment, own, findings)
        judge_caches(environment.interpreter, [s for s in sources if s.endswith(".py")], findings)
    judge_variables(variables, judged, files, findings, working=image.working)
    _judge_program(image, judged, expected.packages, findings)
    return seen


def _judge_labels(image: Image, expected: Expected, findings: Findings) -> None:
    if image.labels is None:
        findings.note(Code.LABELS_UNJUDGED)
        return
    for name, right in zip(LABELS, (expected.stack_id, expected.lock_sha256, expected.set_name), strict=True):
        said = image.labels.get(name, "")
        if said != right:
            findings.add(Code.LABEL, (), name, said or "missing", right)


def _judge_attestation(files: Files, expected: Expected, findings: Findings) -> None:
    """Judge the statement in the image: of this stack and lock, and that of the wheels that are here."""
    path = f"{FOLDER}/provenance.json"
    try:
        statement = files.read(path)
    except OSError:
        findings.add(Code.ATTESTATION_MISSING, [path])
        return
    if expected.statement is not None and statement != expected.statement:
        findings.add(Code.ATTESTATION_DIFFERS)
    if expected.signer:
        signature = f"{FOLDER}/{signatures.name_of(expected.signer.signing)}"
        try:
            signed: bytes | None = files.read(signature)
        except OSError:
            signed = None
        if wrong := signatures.fault(expected.signer.signing, expected.signer.root, statement, signed):
            findings.add(Code.SIGNATURE, (), wrong, signature)
    try:
        told = json.loads(statement)
        parameters = told["predicate"]["buildDefinition"]["externalParameters"]
        locks = [d["digest"]["sha256"] for d in told["predicate"]["buildDefinition"]["resolvedDependencies"][:1]]
        if parameters != {"set": expected.set_name, "stackId": expected.stack_id} or locks != [expected.lock_sha256]:
            findings.add(Code.ATTESTATION_OTHER)
    except (ValueError, KeyError, TypeError, RecursionError):
        findings.add(Code.ATTESTATION_MALFORMED)
    _judge_materials(files, expected, findings)


def _judge_materials(files: Files, expected: Expected, findings: Findings) -> None:
    path = f"{FOLDER}/patchq.cdx.json"
    try:
        materials = files.read(path)
    except OSError:
        findings.add(Code.MATERIALS_MISSING, [path])
        return
    if expected.materials is not None and materials != expected.materials:
        findings.add(Code.MATERIALS_DIFFER, [path])


def _home(files: Files, user: str) -> str:
    """Return the home folder of the user that a container starts as."""
    for line in files.text("/etc/passwd", 1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 5 and (user or "0") in (fields[0], fields[2]):
            return fields[5] or "/"
    return "/root" if user in ("", "0", "root") else "/"


def _judge_package(
    judged: Sequence[Environment], image: Image, expected: Expected, distribution: str, package: str
) -> Package:
    """Judge one package in the environment that has it; it must be the only one."""
    holders = [one for one in judged if one.interpreter.is_found and one.named(distribution)]
    if not holders:
        missing = Findings()
        missing.add(Code.NOT_INSTALLED, (), distribution)
        return Package(distribution=distribution, state="missing", version="", differences=tuple(missing.found))
    found = judge_package(
        holders[0], distribution, package, expected=expected.stack_id, references=expected.references,
        search=_search(image),
    )  # fmt: skip
    more = Findings(found=list(found.differences))
    files = image.files
    infos = sorted({files.resolve(one.info) for environment in holders for one in environment.named(distribution)})
    if len(infos) > 1 and not any(one.code is Code.INSTALLED_TWICE for one in more.found):
        more.add(Code.INSTALLED_TWICE, infos, str(len(infos)))
    copies = {path for environment in judged for path in environment.copies(package)} - {found.origin}
    named = {path for one in more.found if one.code in (Code.COPIES, Code.NAMESPACE) for path in one.paths}
    if elsewhere := sorted(set(map(printable, copies)) - named):
        more.add(Code.COPIES, elsewhere, str(len(elsewhere)))
    if found.stack_id and expected.references and found.reference != "wheel":
        more.add(Code.WHEEL_UNKNOWN)
    return replace(found, differences=tuple(more.found))


def _judge_program(
    image: Image, judged: Sequence[Environment], packages: Mapping[str, str], findings: Findings
) -> None:
    """Judge the programs named ``python`` that a container may start."""
    files = image.files
    holders = [one for one in judged if one.interpreter.is_found and any(map(one.named, packages))]
    for environment in judged:
        folder = environment.interpreter.scripts
        for name in files.listed(folder):
            if _PYTHON.fullmatch(name) and is_script(files, f"{folder}/{name}"):
                findings.judge(name, Code.INTERPRETER, [f"{folder}/{name}"], "is a script, no interpreter")
    words = _words(image)
    # Any program may start the one that comes behind it: timeout, nice, tini, an image's own script.
    for number, program in enumerate(words):
        if not _PYTHON.fullmatch(posixpath.basename(program)):
            continue
        if "/" not in program:
            program = next((f"{f}/{program}" for f in _search(image) if files.is_file(f"{f}/{program}")), "")
        if not files.is_file(program):
            continue
        if "-c" in words[number + 1 :]:
            findings.judge("command", Code.INTERPRETER, [program], "runs code that the image's configuration holds")
        folder = files.resolve(posixpath.dirname(program))
        owners = [one for one in judged if folder in {files.resolve(p) for p in _program_folders(one)}]
        if is_script(files, program) or not any(owner in holders for owner in owners):
            findings.judge(posixpath.basename(program), Code.INTERPRETER, [program], "doesn't find the packages")


def _search(image: Image) -> list[str]:
    """Return the folders of ``PATH``, the command's own first; runtimes set one where an image doesn't."""
    path = image.env.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    own = [value for name, value in _assignments(image) if name == "PATH"]
    folders = ":".join([*own, path]).split(":")
    return list(dict.fromkeys(folder for folder in folders if folder.startswith("/")))


def _program_folders(environment: Environment) -> list[str]:
    found = [environment.interpreter.scripts]
    if environment.interpreter.prefix == environment.interpreter.base:
        found += [f"{site.rpartition('/lib')[0]}/bin" for site in environment.interpreter.sites]
    return found


def _words(image: Image) -> list[str]:
    """Return the words of a container's command, with those of a text that a shell or ``env -S`` gets in its place."""
    words: list[str] = []
    splits = False
    for word in image.command:
        words += _split(re.sub(r"^(-\w*S|--split-string=)", "", word)) if splits else [word]
        splits = splits or posixpath.basename(word) in _SPLITTING
    return words


def _split(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        words = text.split()
    # A text in a text: sh -c 'bash -c "…"'.
    return words if words == [text] else [inner for word in words for inner in _split(word)]


def _assignments(image: Image) -> Iterator[tuple[str, str]]:
    """Yield the variables that a command sets, whichever program stands in front: by ``env``, or in a shell's text."""
    words = _words(image)
    words += [word for before, word in pairwise(["", *image.command]) if not _TEXT_OPTION.fullmatch(before)]
    found = [(match[1], match[2]) for match in map(_ASSIGNMENT.fullmatch, words) if match]
    known = {name for name, _ in found}
    hidden = [pair for word in image.command for pair in _STEERING.findall(word)]
    found += [(name, value.strip("'\"")) for name, value in hidden if name not in known]
    for name, value in found:
        yield name, Template(value).safe_substitute(image.env)


def _starts(image: Image) -> list[dict[str, str]]:
    """Return the variables that programs may start with: the image's own, and with each value that its command sets.

    Which program of a command a value is for isn't told, and others may be started without it.
    """
    values: dict[str, dict[str, None]] = {}
    for name, value in _assignments(image):
        values.setdefault(name, {})[value] = None
    starts = [dict(image.env)]
    count = max(map(len, values.values()), default=0)
    for number in range(min(count, _MOST_STARTS)):
        chosen = {name: list(some)[min(number, len(some) - 1)] for name, some in values.items()}
        starts.append({**image.env, **chosen})
    return [start for number, start in enumerate(starts) if start not in starts[:number]]


def _judge_site_links(image: Image, findings: Findings) -> None:
    """Report links in place of site folders that lead nowhere that can be told."""
    files = image.files
    for folder in sorted(image.folders):
        for name in ("site-packages", "dist-packages"):
            path = f"{folder.rstrip('/')}/{name}"
            if files.resolve(folder) == folder and not files.resolve(path):
                findings.add(Code.SITE_LINK, [path], files.target(path))
