"""Comparison of a container image with a lock, for ``verify-image``: labels, attestation and interpreters."""

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
from patchq.environment._files import FileTree
from patchq.environment._layout import Process, environments
from patchq.environment._loader import judge_variables
from patchq.environment._scripts import is_script
from patchq.environment._startup import judge_environment
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.environment.image import Image
from patchq.environment.installed import (
    Basis,
    InstalledEnvironment,
    InstalledPackage,
    PackageState,
    Reference,
    judge_package,
    thin_packages,
)
from patchq.formats.verification import Signing, Verification

#: Labels that ``compose`` writes: the stack's id, the SHA-256 of upstream.lock, and the set's name.
LABELS = ("patchq.stack", "patchq.lock", "patchq.set")
#: Folder in which ``compose`` puts the attestation and the bill of materials.
FOLDER = "/usr/share/patchq"
#: PATH of a container whose image doesn't set one.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = re.compile(r"python(?:3(?:\.\d+t?)?)?")

#: Variables that make Python, the loader or a shell use other files. ``_ASSIGNMENT`` matches a whole word of a command,
#: ``_STEERING`` a part of a word.
_NAME = r"(PYTHON[A-Z_]+|LD_[A-Z_]+|BASH_ENV|ENV|PATH)"
_ASSIGNMENT = re.compile(_NAME + r"=(.*)", re.DOTALL)
_STEERING = re.compile(r"(?<![\w-])" + _NAME + r"=(\"[^\"]*\"|'[^']*'|[^\s;&|'\"]*)")
#: Options that precede a whole command as one text: ``sh -c``, ``env -S``.
_TEXT_OPTION = re.compile(r"-\w*[cS]|--split-string")
#: Maximum number of different sets of variables to check.
_MOST_STARTS = 8
#: Programs that run a whole command given as one text.
_SPLITTING = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox", "env"})


@dataclass(frozen=True, slots=True)
class Signer:
    """Required signer of the attestation. ``root`` is the project's folder, which contains the public key."""

    signing: Signing
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Properties that an image is required to have.

    :ivar packages: Import names of the required packages by distribution.
    :ivar references: Wheels that were built in this project.
    :ivar statement: Attestation of these wheels, if any.
    :ivar materials: Bill of materials of these wheels, if any.
    :ivar signer: Required signer, if any.
    :ivar rules: Rules of the lock.
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
    """Result of checking an image. ``differences`` concern the whole image; each package has differences of its own."""

    image: str
    packages: tuple[InstalledPackage, ...]
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        if any(one.level is Level.PROBLEM for one in self.differences):
            return False
        return bool(self.packages) and all(package.is_right for package in self.packages)


def judge_image(image: Image, expected: Expected) -> ImageVerdict:
    """Compare an image with its required properties."""
    findings = Findings(frozenset(expected.rules.allow), frozenset(expected.rules.groups))
    files = image.files
    _judge_labels(image, expected, findings)
    _judge_attestation(files, expected, findings)
    starts = _starts(image)
    if len(starts) > _MOST_STARTS:
        ways = f"more than {_MOST_STARTS - 1} combinations of values"
        findings.add(Code.VARIABLE, (), "the command's environment", ways)
    packages: dict[str, InstalledPackage] = {}
    for variables in starts[:_MOST_STARTS]:
        for package in _judge_start(image, expected, variables, findings):
            # The same problem can occur in several starts. Report only the first one.
            known = packages.setdefault(package.distribution, package)
            if known.is_right and not package.is_right:
                packages[package.distribution] = package
    _judge_site_links(image, findings)
    return ImageVerdict(
        image=image.name,
        packages=tuple(packages.values()),
        differences=tuple(findings.found),
    )


def _judge_start(
    image: Image, expected: Expected, variables: Mapping[str, str], findings: Findings
) -> list[InstalledPackage]:
    """Check the image's interpreters for a start with the environment ``variables``; return the packages."""
    files = image.files
    home = image.env.get("HOME") or _home(files, image.user)
    process = Process(env=variables, home=home, working=image.working)
    found = [InstalledEnvironment(one) for one in environments(files, set(image.folders), process)]
    seen = []
    packages = {**expected.packages, **thin_packages(found, expected.packages)}
    for name, package in packages.items():
        seen.append(_judge_package(found, image, expected, distribution=name, package=package))
    for environment in found:
        own = {}
        for name, package in packages.items():
            if environment.named(name):
                own[name] = package
        sources = judge_environment(environment, own, findings)
        sources = [source for source in sources if source.endswith(".py")]
        judge_caches(environment.interpreter, sources, findings)
    judge_variables(variables, found, files, findings, working=image.working)
    _judge_program(image, found, expected.packages, findings)
    return seen


def find_installed(image: Image, distribution: str) -> list[InstalledEnvironment]:
    """Return the environments of an image that contain a distribution.

    Copies that are reachable by several paths are returned once.
    """
    home = image.env.get("HOME") or _home(image.files, image.user)
    process = Process(env=image.env, home=home, working=image.working)
    found = []
    infos: set[str] = set()
    for interpreter in environments(image.files, set(image.folders), process):
        environment = InstalledEnvironment(interpreter)
        own = {image.files.resolve(one.info) for one in environment.named(distribution)}
        if own - infos:
            found.append(environment)
            infos |= own
    return found


def _judge_labels(image: Image, expected: Expected, findings: Findings) -> None:
    if image.labels is None:
        findings.note(Code.LABELS_UNJUDGED)
        return
    required = (expected.stack_id, expected.lock_sha256, expected.set_name)
    for name, right in zip(LABELS, required, strict=True):
        value = image.labels.get(name, "")
        if value != right:
            findings.add(Code.LABEL, (), name, value or "missing", right)


def _judge_attestation(files: FileTree, expected: Expected, findings: Findings) -> None:
    """Check the image's attestation: its signature, stack, lock and wheels."""
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
        signer = expected.signer
        fault = signatures.fault(signer.signing, signer.root, statement, signed)
        if fault:
            findings.add(Code.SIGNATURE, (), fault, signature)
    try:
        if not _is_of(statement, expected):
            findings.add(Code.ATTESTATION_OTHER)
    except (ValueError, KeyError, TypeError, RecursionError):
        findings.add(Code.ATTESTATION_MALFORMED)
    _judge_materials(files, expected, findings)


def _is_of(statement: bytes, expected: Expected) -> bool:
    """Return whether an attestation is about the expected stack and lock."""
    definition = json.loads(statement)["predicate"]["buildDefinition"]
    if definition["externalParameters"] != {"set": expected.set_name, "stackId": expected.stack_id}:
        return False
    # The first dependency in the attestation is the lock.
    locks = [one["digest"]["sha256"] for one in definition["resolvedDependencies"][:1]]
    return bool(locks == [expected.lock_sha256])


def _judge_materials(files: FileTree, expected: Expected, findings: Findings) -> None:
    path = f"{FOLDER}/patchq.cdx.json"
    try:
        materials = files.read(path)
    except OSError:
        findings.add(Code.MATERIALS_MISSING, [path])
        return
    if expected.materials is not None and materials != expected.materials:
        findings.add(Code.MATERIALS_DIFFER, [path])


def _home(files: FileTree, user: str) -> str:
    """Return the home folder of a container's user."""
    for line in files.text("/etc/passwd", 1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 5 and (user or "0") in (fields[0], fields[2]):
            return fields[5] or "/"
    if user in ("", "0", "root"):
        return "/root"
    return "/"


def _judge_package(
    candidates: Sequence[InstalledEnvironment],
    image: Image,
    expected: Expected,
    *,
    distribution: str,
    package: str,
) -> InstalledPackage:
    """Check a package in the environment that contains it. Report a problem if several environments contain it."""
    holders = []
    for candidate in candidates:
        if candidate.interpreter.is_found and candidate.named(distribution):
            holders.append(candidate)
    if not holders:
        missing = Findings()
        missing.add(Code.NOT_INSTALLED, (), distribution)
        return InstalledPackage(
            distribution=distribution,
            state=PackageState.MISSING,
            version="",
            differences=tuple(missing.found),
        )
    found = judge_package(
        holders[0],
        distribution,
        package,
        expected=expected.stack_id,
        references=expected.references,
        search=_search(image),
    )
    more = Findings(found=list(found.differences))
    infos: set[str] = set()
    for holder in holders:
        infos.update(image.files.resolve(one.info) for one in holder.named(distribution))
    if len(infos) > 1 and not any(one.code is Code.INSTALLED_TWICE for one in more.found):
        more.add(Code.INSTALLED_TWICE, sorted(infos), str(len(infos)))
    copies: set[str] = set()
    for environment in candidates:
        copies.update(map(printable, environment.copies(package)))
    copies.discard(found.origin)
    for one in found.differences:
        if one.code in (Code.COPIES, Code.NAMESPACE):
            copies -= set(one.paths)
    if copies:
        more.add(Code.COPIES, sorted(copies), str(len(copies)))
    if found.stack_id and expected.references and found.reference is not Basis.WHEEL:
        more.add(Code.WHEEL_UNKNOWN)
    return replace(found, differences=tuple(more.found))


def _judge_program(
    image: Image, found: Sequence[InstalledEnvironment], packages: Mapping[str, str], findings: Findings
) -> None:
    """Check the programs named ``python`` that a container may start."""
    files = image.files
    for environment in found:
        folder = environment.interpreter.scripts
        for name in files.listed(folder):
            path = f"{folder}/{name}"
            if _PYTHON.fullmatch(name) and is_script(files, path):
                findings.judge(name, Code.INTERPRETER, [path], "is a script, not an interpreter")
    right: set[str] = set()
    for environment in found:
        if environment.interpreter.is_found and any(map(environment.named, packages)):
            right.update(map(files.resolve, _program_folders(environment)))
    words = _words(image)
    # Any program may start another one: timeout, nice, tini or a script of the image.
    for number, word in enumerate(words):
        if not _PYTHON.fullmatch(posixpath.basename(word)):
            continue
        if "/" in word:
            program = word
        else:
            program = _which(image, word)
        if not files.is_file(program):
            continue
        if "-c" in words[number + 1 :]:
            fault = "runs code from the image's configuration"
            findings.judge("command", Code.INTERPRETER, [program], fault)
        folder, name = posixpath.split(program)
        if is_script(files, program) or files.resolve(folder) not in right:
            findings.judge(name, Code.INTERPRETER, [program], "doesn't find the packages")


def _which(image: Image, name: str) -> str:
    """Return the path of a program, found on ``PATH``; empty if it isn't found."""
    for folder in _search(image):
        if image.files.is_file(f"{folder}/{name}"):
            return f"{folder}/{name}"
    return ""


def _search(image: Image) -> list[str]:
    """Return the folders in each ``PATH`` that the command sets, then the folders in the image's ``PATH``."""
    values = [value for name, value in _assignments(image) if name == "PATH"]
    values.append(image.env.get("PATH") or _DEFAULT_PATH)
    folders = ":".join(values).split(":")
    return list(dict.fromkeys(folder for folder in folders if folder.startswith("/")))


def _program_folders(environment: InstalledEnvironment) -> list[str]:
    """Return the folders of the programs that start an environment's interpreter."""
    found = [environment.interpreter.scripts]
    if environment.interpreter.prefix == environment.interpreter.base:
        found += [f"{site.rpartition('/lib')[0]}/bin" for site in environment.interpreter.sites]
    return found


def _words(image: Image) -> list[str]:
    """Return the words of a container's command.

    A command line that is passed to a shell or to ``env -S`` is split into its words, too.
    """
    words: list[str] = []
    splits = False
    for word in image.command:
        if splits:
            words += _split(re.sub(r"^(-\w*S|--split-string=)", "", word))
        else:
            words.append(word)
        splits = splits or posixpath.basename(word) in _SPLITTING
    return words


def _split(text: str) -> list[str]:
    """Split a shell command into words, and split words that are themselves commands."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        words = text.split()
    if words == [text]:
        return words
    found = []
    for word in words:
        found += _split(word)  # sh -c 'bash -c "…"'
    return found


def _assignments(image: Image) -> Iterator[tuple[str, str]]:
    """Yield the variables that a command sets, with ``env`` or in a shell command."""
    words = _words(image)
    for before, word in pairwise(["", *image.command]):
        if not _TEXT_OPTION.fullmatch(before):
            words.append(word)
    found = []
    for match in map(_ASSIGNMENT.fullmatch, words):
        if match:
            found.append((match[1], match[2]))
    known = {name for name, _ in found}
    for word in image.command:
        for name, value in _STEERING.findall(word):
            if name not in known:
                found.append((name, value.strip("'\"")))
    for name, value in found:
        yield name, Template(value).safe_substitute(image.env)


def _starts(image: Image) -> list[dict[str, str]]:
    """Return the environments (variables by name) in which the container's programs may start.

    The first environment has only the image's variables. In the other environments, values that the command sets
    replace the image's values. All environments are checked, because patchq can't determine which program gets which
    value.
    """
    values: dict[str, dict[str, None]] = {}
    for name, value in _assignments(image):
        values.setdefault(name, {})[value] = None
    starts = [dict(image.env)]
    count = max(map(len, values.values()), default=0)
    for number in range(min(count, _MOST_STARTS)):
        start = dict(image.env)
        for name, choices in values.items():
            start[name] = list(choices)[min(number, len(choices) - 1)]
        if start not in starts:
            starts.append(start)
    return starts


def _judge_site_links(image: Image, findings: Findings) -> None:
    """Report site folders that can't be resolved because their links form a loop."""
    files = image.files
    for folder in sorted(image.folders):
        for name in ("site-packages", "dist-packages"):
            path = f"{folder.rstrip('/')}/{name}"
            if files.resolve(folder) == folder and not files.resolve(path):
                findings.add(Code.SITE_LINK, [path], files.target(path))
