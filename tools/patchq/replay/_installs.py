"""Effects of installers such as pip on the adopted package, derived from the calls that a replay recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from patchq.replay._shims import CONNECTS, INSTALLERS, NETWORK, NO_EFFECT, REQUIREMENT
from patchq.replay.outcomes import Reason, StepStatus
from patchq.replay.package import Package

#: Options of ``pip install`` with a value.
_WITH_VALUE = frozenset(
    "-r --requirement -c --constraint -t --target --prefix --root -i --index-url --extra-index-url -f --find-links "  # noqa: SIM905
    "--platform --python-version --implementation --abi --progress-bar --timeout --retries --trusted-host --cache-dir "
    "--config-settings --global-option --upgrade-strategy --python --torch-backend --index --no-binary --only-binary "
    "--log --proxy --report --src -C --index-strategy --prerelease".split()
)
_FORCING = frozenset(("--force-reinstall", "-I", "--ignore-installed", "--reinstall", "--reinstall-package"))
_UPGRADING = frozenset(("-U", "--upgrade", "-P", "--upgrade-package"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one installer call on the package.

    :ivar words: names of requirements or programs, for the message.
    """

    status: StepStatus
    reason: Reason
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Install:
    words: tuple[str, ...]
    forces: bool
    upgrades: bool
    with_dependencies: bool


def effects(calls: Sequence[tuple[str, ...]], package: Package, *, installs_base: bool) -> Iterator[Effect]:
    """Yield the effects of the recorded calls of a step.

    :param installs_base: True if the step is the first that installs the package.
    """
    requirements: list[str] = []
    for call in reversed(calls):
        program, *arguments = call
        if program == REQUIREMENT:
            requirements += arguments
        elif program == "pip":
            yield from _pip(arguments, requirements[::-1], package, installs_base=installs_base)
            requirements = []
        elif program == CONNECTS or program in NETWORK or program == "git":
            yield Effect(status=StepStatus.NOT_UNDERSTOOD, reason=Reason.NETWORK, words=(" ".join(call[:3]),))
        elif program != NO_EFFECT:
            yield from _others(program, arguments, package)


def _others(program: str, arguments: Sequence[str], package: Package) -> Iterator[Effect]:
    """Yield the effects of an installer other than pip."""
    names = {package.distribution, f"python3-{package.distribution}"}
    named = []
    for word in arguments:
        if canonicalize_name(re.split(r"[=<>!~\[]", word)[0]) in names:
            named.append(word)
    if named:
        yield Effect(status=StepStatus.REFUSED, reason=Reason.REINSTALLS, words=(f"{program} {named[0]}",))
    elif program in INSTALLERS or program in ("uv", "uvx"):
        words = " ".join([program, *arguments][:4])
        yield Effect(status=StepStatus.NOT_UNDERSTOOD, reason=Reason.DEPENDENCIES, words=(words,))


def _pip(
    arguments: Sequence[str], requirements: Sequence[str], package: Package, *, installs_base: bool
) -> Iterator[Effect]:
    command = next((word for word in arguments if not word.startswith("-")), "")
    rest: Sequence[str] = []
    if command:
        rest = arguments[arguments.index(command) + 1 :]
    install = _parse(rest, requirements)
    if command == "uninstall":
        for word in install.words:
            if canonicalize_name(word) == package.distribution:
                yield Effect(status=StepStatus.REFUSED, reason=Reason.UNINSTALLS, words=(word,))
        return
    if command not in ("install", "sync") or "--dry-run" in rest:
        return
    others = []
    for word in install.words:
        name = _name_of(word)
        if name is None:
            yield Effect(status=StepStatus.NOT_UNDERSTOOD, reason=Reason.UNKNOWN_INSTALL, words=(word,))
        elif name != package.distribution:
            others.append(word)
        elif reason := _own(word, install, package, installs_base=installs_base):
            yield Effect(status=StepStatus.REFUSED, reason=reason, words=(word,))
    if others and install.with_dependencies and not installs_base:
        yield Effect(status=StepStatus.NOT_UNDERSTOOD, reason=Reason.DEPENDENCIES, words=tuple(others))


def _parse(arguments: Sequence[str], requirements: Sequence[str]) -> _Install:
    words = []
    options = set()
    skip = False
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if skip:
            skip = False
        elif word in ("-e", "--editable"):
            words.append(f"file:{after}")
            skip = True
        elif word.startswith("-"):
            options.add(word.partition("=")[0])
            skip = word in _WITH_VALUE | {"--reinstall-package", "-P", "--upgrade-package"}
        else:
            words.append(word)
    return _Install(
        words=(*words, *requirements),
        # pip installs into a target folder even if the same version is already installed elsewhere.
        forces=bool(options & (_FORCING | {"-t", "--target"})),
        upgrades=bool(options & _UPGRADING),
        with_dependencies="--no-deps" not in options,
    )


def _name_of(word: str) -> str | None:
    """Return the name of the distribution in an argument of ``pip install``; None if the name is unknown.

    >>> [_name_of(w) for w in ("a_b[c]>=1", "/x/a-1-py3-none-any.whl", "a @ git+https://x", "./a", "git+https://x#egg=a")]
    ['a-b', 'a', 'a', None, 'a']
    """
    egg = re.search(r"#(?:.*&)?egg=([\w.-]+)", word)
    if egg:
        return canonicalize_name(egg[1])
    if word.partition("#")[0].endswith(".whl"):
        try:
            return parse_wheel_filename(word.partition("#")[0].rsplit("/", 1)[-1])[0]
        except (InvalidWheelFilename, InvalidVersion):
            return None
    try:
        return canonicalize_name(Requirement(word).name)
    except InvalidRequirement:
        return None


def _own(word: str, install: _Install, package: Package, *, installs_base: bool) -> Reason | None:
    """Return the reason why a ``pip install`` changes the package's files; None if it leaves them unchanged."""
    if ".whl" in word or "://" in word or word.startswith((".", "/")):
        return Reason.REINSTALLS
    try:
        requirement = Requirement(word)
        right = not package.version or requirement.specifier.contains(Version(package.version), prereleases=True)
    except (InvalidRequirement, InvalidVersion):
        return Reason.REINSTALLS
    if not right:
        return Reason.OTHER_VERSION
    exact = any(one.operator in ("==", "===") for one in requirement.specifier)
    if installs_base:
        return None
    if install.forces or (install.upgrades and not exact):
        return Reason.REINSTALLS
    return None
