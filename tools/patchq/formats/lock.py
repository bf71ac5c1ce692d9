"""``upstream.lock``: upstreams, their pins, and the sets that are built and tested together.

The format is TOML with ``version = 1``. This module reads the lock; :mod:`patchq.formats.lockedit` rewrites
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from patchq.errors import FormatError, StateTooNew, StateTooOld, UserError, nearest
from patchq.formats import toml
from patchq.formats._checkrules import RULES, SIGNERS, CheckRules
from patchq.formats.verification import Signing, Verification, read_signing, read_verification
from patchq.names import CommitId
from patchq.records import dataclass
from patchq.system.paths import check_inside, check_name, check_ref, find_twins

VERSION = 1
#: Size limit of a lock in bytes.
MOST_BYTES = 4 << 20
PROFILES = ("overlay", "source", "empty")
TITLES = ("", "tags", "conventional")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Prefixes of variables that make programs run or load other code.
_STEERING = re.compile(r"(LD|DYLD|PYTHON|PIP|UV|GIT|SSH|BASH|PERL|CMAKE|DISTUTILS|SETUPTOOLS|XDG|LC)_")
#: PROJECT==VERSION: names as in PEP 508, versions as in PEP 440.
_PROJECT = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = (
    r"v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?[0-9]*)?"
    r"(?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?(?:[-_.]?dev[-_.]?[0-9]*)?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?"
)
_RELEASE = re.compile(f"{_PROJECT}=={_VERSION}", re.IGNORECASE | re.ASCII)
_REQUIRED = re.compile(rf"{_PROJECT}(?:\[[a-z0-9,]+\])?=={_VERSION}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Upstream at one ref.

    The git source is ``url`` and ``commit``. The archive source is ``archive`` (``PROJECT==VERSION``, or the path of a
    local archive) with its ``sha256``; ``subdir`` is the folder of the tree in the archive. ``wheels`` are the
    release's wheels for overlay builds: file name → SHA-256.
    """

    upstream: str
    ref: str
    url: str = ""
    commit: CommitId | None = None
    archive: str = ""
    sha256: str = ""
    subdir: str = ""
    source: str = ""
    wheels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """Settings for building an upstream's wheels; see docs/reference/formats.md."""

    distribution: str
    package: str
    profile: str = "source"
    version_file: str = ""
    requires: tuple[str, ...] = ()
    empty_requires: tuple[str, ...] = ()
    empty_env: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    data_module: str = ""


@dataclass(frozen=True, slots=True)
class ContributeConfig:
    """Pull request rules of an upstream. They supplement the rules that patchq reads from the upstream's own files.

    :ivar title: style of the prefix in titles: ``tags`` (``[Bugfix][Core] …``), ``conventional`` (``fix(core):
        …``) or empty.
    :ivar sign_off: True if each commit needs a ``Signed-off-by:`` of the submitter.
    :ivar most_lines: number of changed lines above which upstream asks for a discussion first; 0
        for no limit.
    """

    title: str = ""
    sign_off: bool = False
    most_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Container settings of a set; see docs/how-to/containers.md.

    :ivar image: base image of the container.
    :ivar requires: requirements to install before the built wheels, with or without exact versions.
    :ivar index: package index for ``requires``; empty for pip's own index.
    :ivar caches: folders whose contents are kept when a container is removed.
    :ivar serve: command of the service.
    """

    image: str
    requires: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    caches: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    port: int = 0
    gpu: bool = False
    index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Third-party project. ``into`` is ``(parent, path)`` if the upstream is nested in the tree of another upstream.

    :ivar keyring: file of the project that contains keys. One of these keys must have signed the upstream's tag or
        commit.
    """

    name: str
    url: str = ""
    into: tuple[str, str] | None = None
    build: BuildConfig | None = None
    pins: Mapping[str, Pin] = field(default_factory=dict)
    contribute: ContributeConfig = ContributeConfig()
    keyring: str = ""
    check: CheckRules = field(default_factory=CheckRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Parsed lock.

    ``sets[SET][UPSTREAM]`` is the ref of an upstream in a set. ``environments[SET]`` contains a set's container
    settings.

    :ivar mismatches: ``mismatches[SET][DISTRIBUTION]`` is the reason why a set may contain another version of a
        distribution than an upstream requires.
    :ivar mergers: merge programs by name, for ``resolve --merger``.
    :ivar name: name of the project, for reports; if empty, the name of its folder is used.
    :ivar patchq: version of patchq with which the project was made; empty if not recorded.
    :ivar signing: required signer of attestations; None if no signature is required.
    :ivar verify: additional items that ``verify-installed`` and ``verify-image`` accept.
    """

    default_set: str
    upstreams: Mapping[str, Upstream]
    sets: Mapping[str, Mapping[str, str]]
    environments: Mapping[str, Environment] = field(default_factory=dict)
    mergers: Mapping[str, str] = field(default_factory=dict)
    mismatches: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    patchq: str = ""
    name: str = ""
    signing: Signing | None = None
    verify: Verification = field(default_factory=Verification)

    def pins_of(self, set_name: str) -> list[Pin]:
        """Return the pins of a set, with parents before the upstreams nested in them.

        :raises UserError: for an unknown set.
        """
        if set_name not in self.sets:
            known = ", ".join(self.sets) or "none"
            hint = nearest(set_name, list(self.sets), f"known sets: {known}")
            raise UserError(f"no set {set_name!r} in upstream.lock", hint=hint)
        chosen = self.sets[set_name]
        order = sorted(chosen, key=lambda name: (self.upstreams[name].into is not None, list(chosen).index(name)))
        return [self.upstreams[name].pins[chosen[name]] for name in order]

    def nested_in(self, parent: str) -> dict[str, str]:
        """Return the upstreams nested in ``parent``, as path → upstream's name."""
        found: dict[str, str] = {}
        for u in self.upstreams.values():
            if u.into and u.into[0] == parent:
                found[u.into[1]] = u.name
        return found


def parse(data: bytes, where: str = "upstream.lock") -> Lock:
    """Parse and check a lock.

    :raises FormatError: for an invalid lock; the message names the table and the key.
    :raises StateTooNew, StateTooOld: for a newer or an older format version.
    """
    try:
        raw = toml.loads(data)
    except ValueError as error:
        raise FormatError(f"{where}: {error}", hint=f"edit {where}") from None
    _check_version(raw, where)
    reader = _LockReader(where)
    upstreams = {name: reader.upstream(name, table) for name, table in reader.table(raw, "upstreams", "").items()}
    sets = reader.table(raw, "sets", "")
    for at, names in (
        ("upstreams", list(upstreams)),
        ("sets", list(sets)),
        *((f"upstreams.{u.name}.pins", list(u.pins)) for u in upstreams.values()),
    ):
        if twins := find_twins(names):
            raise reader.bad(at, f"{twins[0]!r} and {twins[1]!r} are the same folder on macOS and Windows")
    _check_nesting(upstreams, reader)
    sets = {name: reader.a_set(name, table, upstreams) for name, table in sets.items()}
    default = str(raw.get("default-set", next(iter(sets), "")))
    if sets and default not in sets:
        raise reader.bad("default-set", f"{default!r} is not a set")
    environments = {}
    for name, table in reader.table(raw, "environments", "").items():
        environments[name] = reader.environment(name, table, sets)
    mismatches = {}
    for name, table in reader.table(raw, "mismatches", "").items():
        mismatches[name] = reader.mismatches(name, table, sets)
    made_with = reader.text(raw, "patchq", "patchq")
    return Lock(
        default_set=default,
        upstreams=upstreams,
        sets=sets,
        environments=environments,
        mergers=_read_mergers(raw, where),
        mismatches=mismatches,
        patchq=made_with,
        name=reader.text(raw, "name", "name"),
        signing=read_signing(raw, where),
        verify=read_verification(raw, where),
    )


def _check_version(raw: Mapping[str, Any], where: str) -> None:
    """Raise an error unless the lock has the format version that this patchq reads."""
    version = raw.get("version")
    if type(version) is not int:  # isinstance would accept true
        raise FormatError(f"{where} has no version = {VERSION}", hint=f"edit {where}")
    if version > VERSION:
        raise StateTooNew(f"{where} has format {version}, this patchq reads {VERSION}", hint="update patchq")
    if version < VERSION:
        raise StateTooOld(f"{where} has the old format {version}", hint="CHANGELOG.md describes how to rewrite it")


def _check_nesting(upstreams: Mapping[str, Upstream], reader: _LockReader) -> None:
    """Raise an error if an upstream is nested in an unknown upstream, or in an upstream that is nested itself."""
    for upstream in upstreams.values():
        if upstream.into and upstream.into[0] not in upstreams:
            raise reader.bad(f"upstreams.{upstream.name}.into", f"{upstream.into[0]!r} is not an upstream")
        if upstream.into and upstreams[upstream.into[0]].into:
            raise reader.bad(
                f"upstreams.{upstream.name}.into",
                "the upstream that contains it is nested, too; only one level is supported",
            )


def _read_mergers(raw: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the program of each merger in a lock, by the merger's name.

    A lock contains only the name of an installed program, not a command. patchq sets the program's arguments.

    :raises FormatError: for a merger that isn't a table with a program's name, without a folder.
    """
    table = raw.get("mergers", {})
    found: dict[str, str] = {}
    for name, entry in table.items() if isinstance(table, dict) else [("", None)]:
        program = None
        if isinstance(entry, dict) and set(entry) == {"program"}:
            program = entry.get("program")
        if not isinstance(program, str) or not _PROGRAM.fullmatch(program):
            raise FormatError(
                f"{where}: mergers.{name}: needs a table with only the name of a program, without its folder",
                hint='[mergers.mergiraf] program = "mergiraf"',
            )
        found[name] = program
    return found


class _LockReader:
    """Reader that converts the lock's tables to dataclasses. Each error names the table and the key."""

    def __init__(self, where: str) -> None:
        self.where = where

    def bad(self, key: str, what: str) -> FormatError:
        return FormatError(f"{self.where}: {key}: {what}", hint=f"edit {self.where}, or use `patchq pin`")

    def table(self, raw: Mapping[str, Any], key: str, at: str) -> Mapping[str, Any]:
        value = raw.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(f"{at}{key}", "is not a table")
        return value

    def text(self, raw: Mapping[str, Any], key: str, at: str) -> str:
        value = raw.get(key, "")
        if not isinstance(value, str) or any(ord(c) < 32 for c in value):
            raise self.bad(f"{at}.{key}", "is not a line of text")
        return value

    def texts(self, raw: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(f"{at}.{key}", "is not a list of strings")
        return tuple(value)

    def known(self, raw: Any, keys: str, at: str) -> None:
        if not isinstance(raw, dict):
            raise self.bad(at, "is not a table")
        for key in raw:
            if key not in keys.split():
                raise self.bad(f"{at}.{key}", f"unknown key (known: {keys})")

    def upstream(self, name: str, raw: Any) -> Upstream:
        at = f"upstreams.{name}"
        check_name(name, f"an upstream ({self.where})")
        self.known(raw, "url into keyring build contribute check pins", at)
        into = self.text(raw, "into", at)
        url = self.text(raw, "url", at)
        pins = {ref: self.pin(name, ref, url, table) for ref, table in self.table(raw, "pins", f"{at}.").items()}
        nested = None
        if into:
            nested = self.into(into, at)
        keyring = self.text(raw, "keyring", at)
        if keyring:
            check_inside(keyring, f"{self.where}: {at}.keyring")
        rules = self.check(raw, at)
        return Upstream(
            name=name,
            url=url,
            into=nested,
            build=self.build(raw, at),
            pins=pins,
            contribute=self.contribute(raw, at),
            keyring=keyring,
            check=rules,
        )

    def into(self, value: str, at: str) -> tuple[str, str]:
        parent, colon, path = value.partition(":")
        if not colon:
            raise self.bad(f"{at}.into", "is not PARENT:PATH")
        check_name(parent, f"an upstream ({self.where}, {at}.into)")
        return parent, str(check_inside(path, f"{self.where}: {at}.into"))

    def pin(self, upstream: str, ref: str, url: str, raw: Any) -> Pin:
        at = f'upstreams.{upstream}.pins."{ref}"'
        check_ref(ref, f"a pin ({self.where})")
        self.known(raw, "commit archive sha256 subdir source wheels", at)
        commit, sha256 = self.text(raw, "commit", at), self.text(raw, "sha256", at)
        archive, subdir = self.text(raw, "archive", at), self.text(raw, "subdir", at)
        source = self.text(raw, "source", at)
        wheels = self.table(raw, "wheels", f"{at}.")
        if commit and not _COMMIT.fullmatch(commit):
            raise self.bad(f"{at}.commit", "is not a full commit id (40 hexadecimal digits)")
        if archive and not _SHA256.fullmatch(sha256):
            raise self.bad(f"{at}.sha256", "an archive needs its SHA-256 (64 hexadecimal digits)")
        if "==" in archive and not _RELEASE.fullmatch(archive):
            raise self.bad(f"{at}.archive", f"{archive!r} is not PROJECT==VERSION")
        for name, digest in wheels.items():
            if not name.endswith(".whl") or "/" in name or not _SHA256.fullmatch(str(digest)):
                raise self.bad(f"{at}.wheels", f"{name!r} is not a wheel with its SHA-256")
        if not archive and not (url and commit):
            raise self.bad(at, "has neither a commit (with the upstream's url) nor an archive")
        if source not in ("", "git", "archive"):
            raise self.bad(f"{at}.source", 'is neither "git" nor "archive"')
        if subdir:
            check_inside(subdir, f"{self.where}: {at}.subdir")
        return Pin(
            upstream=upstream,
            ref=ref,
            url=url,
            commit=CommitId(commit) if commit else None,
            archive=archive,
            sha256=sha256,
            subdir=subdir,
            source=source,
            wheels=dict(wheels),
        )

    def build(self, upstream: Mapping[str, Any], at: str) -> BuildConfig | None:
        if "build" not in upstream:
            return None
        at += ".build"
        raw = upstream["build"]
        keys = "distribution package profile version-file requires empty-requires empty-env ignore links data-module"
        self.known(raw, keys, at)
        distribution = self.text(raw, "distribution", at)
        package = self.text(raw, "package", at) or distribution.replace("-", "_")
        profile = self.text(raw, "profile", at) or "source"
        if not distribution or profile not in PROFILES:
            raise self.bad(at, f"needs a distribution, and one of the profiles {', '.join(PROFILES)}")
        check_name(distribution, f"a distribution ({self.where})")
        check_name(package, f"a package ({self.where})")
        env = self.table(raw, "empty-env", f"{at}.")
        prefix = package.upper() + "_"
        for key, value in env.items():
            # Data only: PATH, LD_PRELOAD and PYTHON* would run code, whatever the package's name.
            named = re.fullmatch(re.escape(prefix) + r"[A-Z0-9_]+", key) and not _STEERING.match(key)
            if not named or not isinstance(value, str):
                raise self.bad(f"{at}.empty-env", f"{key}: only variables named {prefix}… are allowed")
        version_file = self.text(raw, "version-file", at)
        if version_file:
            check_inside(version_file, f"{self.where}: {at}.version-file")
        requires = self.texts(raw, "requires", at), self.texts(raw, "empty-requires", at)
        for requirement in (*requires[0], *requires[1]):
            if not _REQUIRED.fullmatch(requirement):
                raise self.bad(f"{at}.requires", f"{requirement!r} is not PROJECT==VERSION")
        links = self.table(raw, "links", f"{at}.")
        for inside, source in links.items():
            for path in (inside, str(source)):
                check_inside(path, f"{self.where}: {at}.links")
                if not _PLAIN_PATH.fullmatch(path):
                    raise self.bad(f"{at}.links", f"{path!r} may have only letters, digits, . _ - and /")
        return BuildConfig(
            distribution=distribution,
            package=package,
            profile=profile,
            version_file=version_file,
            requires=requires[0],
            empty_requires=requires[1],
            empty_env=dict(env),
            ignore=self.texts(raw, "ignore", at),
            links={str(k): str(v) for k, v in links.items()},
            data_module=self._module(raw, package, at),
        )

    def _module(self, raw: Mapping[str, Any], package: str, at: str) -> str:
        """Return the setting ``data-module``: the module that computes a package's data folders from its own path."""
        module = self.text(raw, "data-module", at)
        if module and not (module.startswith(package + ".") and all(map(str.isidentifier, module.split(".")))):
            raise self.bad(f"{at}.data-module", f"{module!r} is not a module of {package}")
        return module

    def contribute(self, upstream: Mapping[str, Any], at: str) -> ContributeConfig:
        at += ".contribute"
        raw = upstream.get("contribute", {})
        self.known(raw, "title sign-off most-lines", at)
        title, sign_off, most = self.text(raw, "title", at), raw.get("sign-off", False), raw.get("most-lines", 0)
        if title not in TITLES:
            raise self.bad(f"{at}.title", f"is none of {', '.join(t for t in TITLES if t)}")
        if not isinstance(sign_off, bool):
            raise self.bad(f"{at}.sign-off", "is neither true nor false")
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise self.bad(f"{at}.most-lines", "is not a number of lines")
        return ContributeConfig(title, sign_off, most)

    def check(self, upstream: Mapping[str, Any], at: str) -> CheckRules:
        at += ".check"
        raw = upstream.get("check", {})
        self.known(raw, "off warn sign-off reason imported", at)
        off, warn, imported = (self.texts(raw, key, at) for key in ("off", "warn", "imported"))
        sign_off, reason = self.text(raw, "sign-off", at) or "author", self.text(raw, "reason", at)
        for rule in (*off, *warn, *imported):
            if rule not in RULES:
                raise self.bad(at, f"{rule!r} is not a rule of `patchq check` ({', '.join(RULES)})")
        if sign_off not in SIGNERS:
            raise self.bad(f"{at}.sign-off", f"is none of {', '.join(SIGNERS)}")
        if raw and not reason:
            raise self.bad(f"{at}.reason", "is missing: give the reason for these rules")
        return CheckRules(off=off, warn=warn, sign_off=sign_off, reason=reason, imported=imported)

    def environment(self, name: str, raw: Any, sets: Mapping[str, Any]) -> Environment:
        at = f"environments.{name}"
        self.known(raw, "image requires index env caches serve port gpu", at)
        if name not in sets:
            raise self.bad(at, "is not a set")
        image = self.text(raw, "image", at)
        if not _IMAGE.fullmatch(image):
            raise self.bad(f"{at}.image", f"{image!r} is not the name of an image")
        env = self.table(raw, "env", f"{at}.")
        for key, value in env.items():
            if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key) or not isinstance(value, str) or not value.isprintable():
                raise self.bad(f"{at}.env", f"{key} is not a NAME with a line of text")
        requires, caches, serve = (self.texts(raw, key, at) for key in ("requires", "caches", "serve"))
        for text in (*requires, *caches, *serve):
            if not text or not text.isprintable():
                raise self.bad(at, f"{text!r} is not a line of text")
        if any(not c.startswith("/") or ".." in c or not _PLAIN_PATH.fullmatch(c[1:]) for c in caches):
            raise self.bad(f"{at}.caches", "must be absolute paths of folders")
        if any(re.search(r"(^|\s)-", r) for r in requires):
            raise self.bad(f"{at}.requires", "must be requirements, not options")
        index = self.text(raw, "index", at)
        if index and not re.fullmatch(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)*/?", index):
            raise self.bad(f"{at}.index", "is not an https address of an index")
        port, gpu = raw.get("port", 0), raw.get("gpu", False)
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536 or not isinstance(gpu, bool):
            raise self.bad(at, "port must be a number, and gpu true or false")
        return Environment(
            image=image, requires=requires, env=dict(env), caches=caches, serve=serve, port=port, gpu=gpu, index=index
        )

    def mismatches(self, name: str, raw: Any, sets: Mapping[str, Any]) -> dict[str, str]:
        at = f"mismatches.{name}"
        if name not in sets:
            raise self.bad(at, "is not a set")
        if not isinstance(raw, dict):
            raise self.bad(at, "is not a table")
        for distribution in raw:
            check_name(distribution, f"a distribution ({self.where}, {at})")
            if not self.text(raw, distribution, at).strip():
                raise self.bad(f"{at}.{distribution}", "gives no reason")
        return dict(raw)

    def a_set(self, name: str, raw: Any, upstreams: Mapping[str, Upstream]) -> dict[str, str]:
        at = f"sets.{name}"
        check_name(name, f"a set ({self.where})")
        if not isinstance(raw, dict):
            raise self.bad(at, "is not a table")
        for upstream, ref in raw.items():
            if upstream not in upstreams:
                raise self.bad(f"{at}.{upstream}", "is not an upstream")
            if ref not in upstreams[upstream].pins:
                raise self.bad(f"{at}.{upstream}", f"{ref!r} is not one of its pins")
        for upstream in raw:
            into = upstreams[upstream].into
            if into and into[0] not in raw:
                raise self.bad(f"{at}.{upstream}", f"is nested in {into[0]}, which is not in the set")
        return dict(raw)
