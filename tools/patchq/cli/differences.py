"""Text and JSON for the differences that ``verify-installed`` and ``verify-image`` find."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from patchq.environment.differences import Code, Difference, Level
from patchq.names import counted

if TYPE_CHECKING:
    from patchq.environment.installed import InstalledPackage
    from patchq.environment.verify import PrebuiltKernels

#: Sentence for each code. ``{0}`` and ``{1}`` are the words of a difference; its paths follow.
SENTENCES = {
    Code.NOT_INSTALLED: "{0} is not installed there",
    Code.NOT_PATCHED: "imports come from {0}, which patchq did not build",
    Code.NO_PATCHES: "is upstream's own build: no patch of the stack changes it",
    Code.COPIES: "the import path contains {0} more copies",
    Code.OTHER_STACK: "was built from stack {0}, not from {1}",
    Code.DIFFERENT_STACKS: "the packages were built from different stacks: {0}",
    Code.MIXED_INSTALLS: "the metadata names {0}, but the package is {1}: two installs are mixed",
    Code.INSTALLED_TWICE: "is installed {0} times",
    Code.EDITABLE: "is an editable install: Python imports the current files of that folder",
    Code.REDIRECTED: "an import hook returns {0}, but the path has {1}",
    Code.NAMESPACE: "is a namespace package in several folders",
    Code.SIBLING: "requires {0}, but {1} is installed",
    Code.THIN: "is the unchanged release; {0} serves its patched modules",
    Code.THIN_IDLE: "Python does not start {0} here, so Python imports the release's own modules",
    Code.THIN_OTHER_RELEASE: "is not the release that {0} patches",
    Code.METADATA: "its metadata can't be read: {0}",
    Code.RECORD_MISSING: "has no RECORD of the installed files",
    Code.RECORD_MALFORMED: "its RECORD is damaged: {0}",
    Code.RECORD_OUTSIDE: "its RECORD names files outside the environment, which were not checked",
    Code.RECORD_UNHASHED: "its RECORD has no SHA-2 hash of",
    Code.CHANGED: "changed since the build",
    Code.MISSING: "in its RECORD, but missing",
    Code.ADDED: "not in its RECORD, so added since the install",
    Code.LINK: "symbolic links, which a wheel can't contain",
    Code.SPECIAL: "not regular files",
    Code.UNREADABLE: "can't be read",
    Code.MANIFEST_MALFORMED: "{0}",
    Code.MANIFEST_DISAGREES: "its manifest does not match the installed package: {0}",
    Code.WHEEL_DIFFERS: "differ from {0} but match RECORD, so RECORD was changed, too",
    Code.WHEEL_CHANGED: "{0} is not the wheel that was built here",
    Code.WHEEL_UNKNOWN: "matches none of the built wheels",
    Code.WHEEL_UNREADABLE: "{0}",
    Code.SCRIPT: "is not the script of its entry point ({0})",
    Code.CACHE_FORGED: "compiled caches that differ from their sources",
    Code.CACHE_UNCHECKED: "compiled caches that Python loads without checking the source",
    Code.CACHE_UNREADABLE: "compiled caches that can't be checked",
    Code.CACHE_STALE: "outdated compiled caches, which Python doesn't load",
    Code.CACHE_UNJUDGED: "{0} compiled caches were not checked: that needs Python {1} on this machine,"
    " or `patchq verify-installed` in the image",
    Code.STARTUP_CODE: "runs at each start of Python",
    Code.STARTUP_PATH: "adds to the path at each start of Python",
    Code.FINDERS: "import hooks are installed",
    Code.PRELOADED: "is imported at each start of Python, before any code imports it",
    Code.SHADOWED: "is imported instead of {0}",
    Code.STDLIB: "in the standard library's folder, but not part of it ({0})",
    Code.PLUGIN: "{0} has the plugin {1} in {2}, which a patched package loads",
    Code.INTERPRETER: "the program {0}",
    Code.VARIABLE: "{0} is set to {1}",
    Code.LIBRARY: "{0} puts libraries before those of the system and Python",
    Code.LABEL: "its label {0} is {1}, not {2}",
    Code.LABELS_UNJUDGED: "a file system has no labels or settings; those of its image were not checked",
    Code.ATTESTATION_MISSING: "it has no attestation",
    Code.ATTESTATION_DIFFERS: "its attestation differs from the wheels' attestation",
    Code.ATTESTATION_OTHER: "its attestation names another stack, set or lock",
    Code.ATTESTATION_MALFORMED: "its attestation can't be read",
    Code.SIGNATURE: "its attestation {0} ({1})",
    Code.MATERIALS_MISSING: "it has no bill of materials",
    Code.MATERIALS_DIFFER: "its bill of materials differs from the wheels' bill of materials",
    Code.SITE_LINK: "is a link to {0}: patchq can't determine where Python would look",
}
_KERNELS = {
    "own": "{place}: {kernels} of this stack",
    "other": "{place}: {kernels} of another stack, which the installed stack does not use",
    "maybe": "{place}: {kernels}, maybe of another stack: this FlashInfer would load them",
    "cubins": "{place} {version} is installed: prebuilt cubins; the version check of a patched FlashInfer refuses them",
    "foreign": "{place} {version} is installed: kernels compiled from unpatched sources;"
    " the version check of a patched FlashInfer refuses them",
}
_ALLOWABLE = (
    Code.STARTUP_CODE,
    Code.SHADOWED,
    Code.STDLIB,
    Code.PLUGIN,
    Code.INTERPRETER,
    Code.VARIABLE,
    Code.LIBRARY,
)
_SHOWN = 8


def sentence(found: Difference) -> str:
    """Return a difference as one sentence with its paths."""
    text = SENTENCES[found.code].format(*found.words)
    if found.code is Code.NOT_PATCHED and len(found.words) > 1:
        text += f", in front of the patched {found.words[1]}"
    if found.code is Code.COPIES and found.words == ("1",):
        text = "the import path contains 1 more copy"
    if found.code is Code.STARTUP_CODE and found.level is Level.PROBLEM:
        text += ", and its content isn't known" + "".join(f" ({word})" for word in found.words)
    if found.code is Code.STARTUP_CODE and found.level is Level.NOTE and any(found.words[1:]):
        text += f", as {found.words[1]} installs it"
    some = ", ".join(found.paths[:_SHOWN])
    if len(found.paths) > _SHOWN:
        some += f" and {len(found.paths) - _SHOWN} more"
    if some:
        return f"{text}: {some}"
    return text


def sentences(found: tuple[Difference, ...], level: Level) -> list[str]:
    result: list[str] = []
    for one in found:
        if one.level is level:
            result.append(sentence(one))
    return result


def as_json(found: tuple[Difference, ...]) -> list[dict[str, Any]]:
    """Return differences as JSON objects, each with its sentence as ``message``."""
    result: list[dict[str, Any]] = []
    for one in found:
        result.append(
            {"code": one.code.value, "level": one.level.value, "message": sentence(one), "paths": list(one.paths)}
        )
    return result


def against(package: InstalledPackage) -> str:
    """Return a description of the wheel or stack id with which a package was compared."""
    if package.reference == "wheel":
        return package.against
    if package.reference == "stack":
        return f"stack id {package.against}, its files only against its own RECORD"
    if not package.stack_id:
        return ""
    only = "itself only"
    if package.is_right:
        only = "consistent with itself only"
    return f"{only}: patchq found neither its wheel (`--set`, `--dist`) nor an expected stack id (`--stack`)"


def package_json(package: InstalledPackage) -> dict[str, Any]:
    return {
        **asdict(package),
        "differences": as_json(package.differences),
        "problems": sentences(package.differences, Level.PROBLEM),
        "notes": sentences(package.differences, Level.NOTE),
        "against": against(package),
    }


def kernel_sentence(kernels: PrebuiltKernels) -> str:
    return _KERNELS[kernels.use].format(**asdict(kernels), kernels=counted(kernels.count, "kernel"))


def can_allow(found: tuple[Difference, ...]) -> bool:
    """Return whether at least one of the problems can be allowed in the lock."""
    return any(one.level is Level.PROBLEM and one.code in _ALLOWABLE for one in found)
