"""The ways in which an environment is not what was built: each has a code, a sentence and the files it is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from patchq.names import show_path

#: How each kind of difference is told; docs/reference/json.md has them all.
SENTENCES = {
    "not-installed": "{0} is not installed there",
    "not-patched": "imports come from {0}, which patchq did not build{1}",
    "no-patches": "is upstream's own build, as no patch of the stack changes it",
    "copies": "{0} on the path",
    "other-stack": "is of stack {0}, not of {1}",
    "different-stacks": "the packages are of different stacks: {0}",
    "mixed-installs": "the metadata says {0}, the package is {1}: two installs are mixed",
    "installed-twice": "is installed {0} times",
    "editable": "is an editable install: what is imported is what lies there now",
    "redirected": "an import hook gives {0}, where the path has {1}",
    "namespace": "is joined from several folders",
    "sibling": "wants {0}",
    "metadata": "its metadata can't be read: {0}",
    "record-missing": "has no RECORD that says what was installed",
    "record-malformed": "its RECORD is damaged: {0}",
    "record-outside": "its RECORD names files outside the environment, which were not looked at",
    "record-unhashed": "its RECORD gives no SHA-2 for",
    "changed": "changed since the build",
    "missing": "in its RECORD, but not there",
    "added": "not in its RECORD, so added since the install",
    "link": "symbolic links, which no wheel holds",
    "special": "no plain files",
    "unreadable": "can't be read",
    "manifest-malformed": "{0}",
    "manifest-disagrees": "its manifest is not of what is installed{0}",
    "wheel-differs": "not as in {0}, though RECORD says so: RECORD was changed with them",
    "wheel-changed": "{0} is not the wheel that was built here",
    "cache-forged": "compiled caches that are not what their sources compile to",
    "cache-unchecked": "compiled caches that Python loads without looking at the source",
    "cache-unreadable": "compiled caches that can't be judged",
    "cache-stale": "compiled caches of other sources than these, which Python doesn't load",
    "startup-code": "runs at each start of this Python, and {0}",
    "startup-path": "adds to the path at each start",
    "finders": "import hooks are at work",
    "preloaded": "is imported at each start of this Python, before anybody asks for it",
}
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """One kind of difference: its ``code``, a sentence, and the files that it is about.

    ``level`` is ``problem``, or ``note`` where it is told but nothing is wrong.
    """

    code: str
    level: str
    said: str
    paths: tuple[str, ...] = ()


def difference(code: str, paths: Iterable[str] = (), *words: str, level: str = "problem") -> Difference:
    """One, with its sentence; what is somebody else's text is made printable."""
    shown = [printable(p) for p in paths]
    said = SENTENCES[code].format(*map(printable, words))
    some = ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
    return Difference(code, level, f"{said}: {some}" if shown else said, tuple(shown))


def printable(text: str) -> str:
    """Text of an environment for people: paths that are no UTF-8, control characters escaped."""
    try:
        return show_path(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return show_path(text.encode("utf-8", "surrogatepass"))
