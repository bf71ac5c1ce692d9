"""Outcome of a step, derived from its replay."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from patchq.names import TreeId
from patchq.replay._installs import effects
from patchq.replay._machine import CommandResult
from patchq.replay._shims import NO_EFFECT
from patchq.replay.outcomes import Account, Reason, StepStatus
from patchq.replay.package import Package, PackageChanges

#: Commands that edit files. A match for sed, perl or awk stops at the next such name, which keeps
#: the search linear.
_EDITS = re.compile(
    r"\b(?:sed|perl)\b(?:(?!\b(?:sed|perl)\b)[^|;&])*\s-\w*i|\bgit\s+(?:apply|am)\b|\bpatch\b\s+-|\b(?:cp|mv|rm|tee|truncate|ln|chmod)\b|"
    r"(?:^|[;&|(]) *install\b|"
    r"[^0-9&]>>?\s*[^&\s]|\bpython[0-9.]*\s+(?:-c|-\s|-$|<<|[^-]\S*\.py)|\bawk\b(?:(?!\bawk\b).)*inplace|\bed\b\s"
)
#: Code of ``python -c``, and words in such code that may write a file.
_PYTHON_CODE = re.compile(r"""\bpython[0-9.]*\s+(?:-[A-Zbdisuv]+\s+)*-c\s*("(?:\\.|[^"\\])*"|'[^']*')""", re.DOTALL)
_MAY_WRITE = re.compile(
    r"write|\bopen\b|replace|\bsub\b|rename|copy|unlink|remove|exec|system|subprocess|shutil|fileinput"
)
_PATCHES = re.compile(r"\bgit\s+(?:apply|am)\b|\bpatch\b\s")
#: Command of a system's package manager, up to the end of its line: ``patch`` is a package, too.
_SYSTEM_PACKAGES = re.compile(r"\b(?:apt|apt-get|apk|yum|dnf|microdnf|zypper)[ \t](?:\\\n|[^;&|\n])*")
_WORD = re.compile(r"[\w./+@-]+")
#: A shell's message for a program that doesn't exist.
_NOT_FOUND = re.compile(r"^\S*: (?:line )?\d+: (\S+): (?:command )?not found$", re.MULTILINE)


def is_edit(text: str) -> bool:
    """Return True if a command looks like an edit of files. A test such as ``python -c "import x"`` doesn't."""
    return bool(_EDITS.search(" " + _PYTHON_CODE.sub(_without_test, text)))


def _without_test(match: re.Match[str]) -> str:
    """Return a ``python -c`` command if its code may write a file; an empty string otherwise."""
    if _MAY_WRITE.search(match[1]):
        return match[0]
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageNames:
    """Names by which steps refer to the package.

    :ivar files: names of the package's files that contain a dot.
    :ivar place: path of the site-packages folder.
    """

    files: Collection[str]
    tops: Collection[str]
    place: str

    def are_in(self, text: str) -> bool:
        """Return True if a text names a file of the package or the package's folder, or applies a patch."""
        if _PATCHES.search(_SYSTEM_PACKAGES.sub("", text)) or self.place in text or "-packages/" in text:
            return True
        return any(word.rsplit("/", 1)[-1] in self.files for word in _WORD.findall(text))

    def may_be_in(self, text: str) -> bool:
        return self.are_in(text) or any(part in self.tops for word in _WORD.findall(text) for part in word.split("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Step that was replayed, with its result.

    :ivar text: whole text of the step, including expanded variables and scripts, to search for the package's
        name.
    :ivar installs_base: True if the step is the first that installs the package.
    """

    account: Account
    text: str
    outcome: CommandResult
    changed: PackageChanges
    before: TreeId
    installs_base: bool = False


def judge(step: Replayed, package: Package, names: PackageNames) -> list[Account]:
    """Return the outcomes of a step. Part of a step's changes may become a patch while another part is refused."""
    found = _of_changes(step)
    for effect in effects(step.outcome.calls, package, installs_base=step.installs_base):
        status = effect.status
        if effect.reason is Reason.NETWORK and names.are_in(step.text):
            status = StepStatus.REFUSED
        found.append(replace(step.account, status=status, reason=effect.reason, words=effect.words))
    ran = step.outcome.ran
    if ran.code:
        named = names.may_be_in(step.text) or step.changed.tree != step.before
        if not any(one.reason is Reason.NETWORK for one in found):
            if named:
                status = StepStatus.REFUSED
            else:
                status = StepStatus.NOT_UNDERSTOOD
            found.append(replace(step.account, status=status, reason=Reason.FAILED, code=ran.code, message=ran.message))
        return found
    missing = tuple(dict.fromkeys(_NOT_FOUND.findall(ran.message)))
    if missing:
        found.append(replace(step.account, status=StepStatus.NOT_UNDERSTOOD, reason=Reason.NO_PROGRAM, words=missing))
    if not found and names.may_be_in(step.text):
        if not is_edit(step.text):
            status = StepStatus.UNRELATED
        elif names.are_in(step.text):
            status = StepStatus.REFUSED
        else:
            status = StepStatus.NOT_UNDERSTOOD
        if status is not StepStatus.UNRELATED or _PYTHON_CODE.search(step.text):
            found.append(replace(step.account, status=status, reason=Reason.CHANGES_NOTHING, message=ran.message))
    return found or [replace(step.account, status=StepStatus.UNRELATED)]


def _of_changes(step: Replayed) -> list[Account]:
    """Return the outcome of a step's changes. The changes of a failed step are ignored."""
    found = []
    changed = step.changed
    if changed.tree != step.before and not step.outcome.ran.code:
        found.append(replace(step.account, status=StepStatus.TAKEN, trees=(step.before, changed.tree)))
        if unused := _without_effect(step):
            status = StepStatus.NOT_UNDERSTOOD
            found.append(replace(step.account, status=status, reason=Reason.PARTLY_NOTHING, words=unused))
    for paths, reason in ((changed.generated, Reason.NOT_OF_SOURCE), (changed.others, Reason.NEXT_TO_IT)):
        if paths:
            if reason is Reason.NOT_OF_SOURCE:
                status = StepStatus.REFUSED
            else:
                status = StepStatus.NOT_UNDERSTOOD
            found.append(replace(step.account, status=status, reason=reason, paths=paths))
    return found


def _without_effect(step: Replayed) -> tuple[str, ...]:
    """Return the files and expressions of ``sed -i`` that changed nothing and that occur in the step's text.

    A file that only a pattern such as ``*.py`` names is left out, because most such files aren't meant to change.
    """
    found = []
    for program, *words in step.outcome.calls:
        if program == NO_EFFECT:
            found += [word for word in words if word.rpartition("/")[2] in step.text]
    return tuple(dict.fromkeys(found))
