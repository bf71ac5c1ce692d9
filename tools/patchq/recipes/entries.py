"""Entries of a recipe: patches to apply, and lines that patchq only reports."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from patchq.errors import FormatError, PatchqError, UserError
from patchq.names import name_for, sh
from patchq.system import fsio

#: Limit in bytes of a recipe, a series or another list.
MOST_TEXT = 16 << 20
_RETURNED = re.compile(rb"^(?:---|\+\+\+) [^\n]*\r\n", re.MULTILINE)
#: Limit in bytes of a patch's name. File systems refuse more than 255 for each part of a path.
_MOST_NAME = 250
#: Limit in digits of a number.
_MOST_DIGITS = 9
#: Macro of a spec that the spec doesn't define.
_MACRO = re.compile(r"%[{(_]|\0")
_REQUEST = re.compile(r"(https?://\S+?/(?:-/)?(?:commit|pull|merge_requests)/[0-9a-f]+)(?:\.(?:patch|diff))?(?:\?.*)?")


class EntryState(Enum):
    """State of an entry: applied, left out, or refused (if patchq can't apply it like the packager's tool)."""

    TAKEN = "taken"
    COMMENTED = "commented out"
    CONDITIONAL = "conditional"
    UNUSED = "declared, and never applied"
    OTHER_SOURCE = "for another source"
    EDIT = "edit by a command"
    REMOTE = "downloaded"
    MISSING = "not next to the recipe"
    UNREADABLE = "name unknown"
    OPTION = "option not supported"


#: States of entries that are left out, with a note.
LEFT = {EntryState.COMMENTED, EntryState.CONDITIONAL, EntryState.UNUSED, EntryState.OTHER_SOURCE, EntryState.EDIT}
#: States of entries that the packager's tool never applies.
UNAPPLIED = {EntryState.COMMENTED, EntryState.UNUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Entry of a recipe: a patch, or a line that edits files.

    :ivar where: location, such as ``demo.spec:12``.
    :ivar text: name, URL or command as written in the recipe.
    :ivar data: path of the patch file, or its contents; None if the entry has no readable patch.
    :ivar strip: strip level; None if the packager's tool detects it.
    :ivar folder: folder of the tree in which the tool applies the patch.
    :ivar reverse: True if the tool applies the patch in reverse (``-R``).
    :ivar remove_empty: True if the tool removes files that the patch leaves empty (``-E``).
    :ivar detail: condition of a conditional patch, an unsupported option, or the folders that were searched for a
        missing patch.
    """

    where: str
    text: str
    data: Path | bytes | None = None
    strip: int | None = 1
    folder: str = ""
    reverse: bool = False
    remove_empty: bool = False
    state: EntryState = EntryState.TAKEN
    detail: str = ""

    def only_if(self, condition: str) -> Entry:
        """Return the entry with the state ``CONDITIONAL``; return it unchanged if the condition is empty."""
        if not condition or self.state in LEFT:
            return self
        return replace(self, state=EntryState.CONDITIONAL, detail=condition)

    def keeping_returns(self) -> Entry:
        """Return the entry for a tool that applies CR LF line ends unchanged.

        For such a tool, a patch with CR LF is not supported, because patchq converts the patch to LF, like ``patch``
        without ``--binary``.
        """
        if self.state is not EntryState.TAKEN or not isinstance(self.data, Path):
            return self
        if not _RETURNED.search(fsio.read_limited(self.data, MOST_TEXT) or b""):
            return self
        return replace(self, state=EntryState.OPTION, detail="its CR LF line ends kept")

    def words(self, upstream: str) -> str:
        """Return the reason why the entry is left out, with the command that imports it."""
        name = f" {self.text}" if self.text else ""
        if self.state is EntryState.CONDITIONAL:
            return f"{self.where}:{name} is applied only if {self.detail}: left out{self._command(upstream)}"
        if self.state is EntryState.EDIT:
            how = self._edit_command(upstream)
            what = f"left out, because it is an edit and not a patch: {_short(self.text)}"
            return f"{self.where}: {what}; to make the edit: {how}"
        return f"{self.where}:{name} is {self.state.value}{self.detail and f' ({self.detail})'}: left out"

    def _edit_command(self, upstream: str) -> str:
        """Return the command or steps that turn an edit into a patch.

        ``import --run`` can run a sed or perl command, unless the command contains a variable or macro of the recipe.
        """
        outside_quotes = re.sub(r"'[^']*'", "", self.text)
        has_variable = re.search(r"\$[\w{(]", outside_quotes) or _MACRO.search(self.text)
        if has_variable or not re.match(r"(?:sed|perl)\s", self.text):
            return _edit(upstream, self.text)
        command = self.text
        if self.folder:
            command = f"cd {sh(self.folder)} && {command}"
        return f"`patchq import {upstream} --run {sh(command)}`"

    def _command(self, upstream: str) -> str:
        """Return the command that imports a conditional patch; empty if the patch isn't available locally."""
        if isinstance(self.data, Path):
            return f"; `patchq import {upstream} {sh(self.data)}` imports it"
        if self.data is None:
            return ""
        recipe = sh(self.where.rpartition(":")[0])
        return f"; `sed '1,/^__END__/d' {recipe} | patchq import {upstream} -` imports it"

    def error(self, upstream: str) -> PatchqError | None:
        """Return the error for an entry that the packager's tool applies and patchq can't; None for other entries."""
        if self.state in (EntryState.TAKEN, *LEFT):
            return None
        if self.state is EntryState.REMOTE:
            found = _REQUEST.fullmatch(self.text)
            file = re.sub(r"[^\w.+-]", "-", self.text.partition("?")[0].rpartition("/")[2]) or "fix.patch"
            download = f"`curl -fLo {sh(file)} {sh(self.text)} && patchq import {upstream} {sh(file)}`"
            if not re.match(r"(?:https?|ftp)://", self.text):
                download = "download the file and import it instead of the recipe"
            request = f"`patchq import {upstream} {sh(found[1])}`, or {download}" if found else download
            return UserError(
                f"{self.where}: {self.text} is downloaded by the packager's tool",
                hint=f"{request}; --partial leaves the patch out",
            )
        if self.state is EntryState.MISSING:
            looked = f" (looked in {self.detail})" if self.detail else ""
            return UserError(
                f"{self.where}: {self.text} is not next to the recipe{looked}",
                hint="restore the file; --partial leaves the patch out",
            )
        if self.state is EntryState.OPTION:
            return UserError(
                f"{self.where}: {self.text} is applied with {self.detail}, which patchq doesn't support",
                hint=f"{_edit(upstream, self.text)}; --partial leaves the patch out",
            )
        return UserError(
            f"{self.where}: {self.text} has values that the recipe doesn't show",
            hint="import the patch files instead of the recipe, in order; --partial leaves this patch out",
        )


def _edit(upstream: str, text: str) -> str:
    """Return the steps for turning an edit into a patch by hand: edit the worktree, then run ``patchq new``."""
    return f"`patchq apply {upstream}`, edit `.patchq/trees/{upstream}`, `patchq new {upstream} {name_for(text)}`"


def _short(text: str) -> str:
    first, *rest = text.strip().split("\n")
    return f"`{first}`" + (f" (and {len(rest)} more lines)" if rest else "")


@dataclass(slots=True)
class RecipeFile:
    """Recipe file on disk.

    :ivar root: folder in which patches are allowed: the recipe's repository, or the recipe's folder.
    """

    path: Path
    text: str = field(init=False)
    root: Path = field(init=False)

    def __post_init__(self) -> None:
        self.text = read_list(self.path)
        folder = self.path.resolve().parent
        self.root = folder
        for above in (folder, *folder.parents):
            if (above / ".git").exists():
                self.root = above
                break

    def at(self, line: int) -> str:
        """Return the location of a line, for messages."""
        return f"{self.path}:{line}"

    def entry(self, name: str, line: int, *folders: str, strip: int | None = 1) -> Entry:
        """Return the entry for a patch in one of ``folders``, which are relative to the recipe's folder.

        By default, the patch is in the folder of the recipe itself.
        """
        found = Entry(where=self.at(line), text=name, strip=strip)
        if re.match(r"(?:https?|ftp)://", name):
            return replace(found, state=EntryState.REMOTE)
        if "$" in name or "\0" in name or "%{" in name or not name.strip():
            return replace(found, state=EntryState.UNREADABLE, text=name.replace("\0", "…"))
        if not is_usable_name(name):
            return replace(found, state=EntryState.UNREADABLE, text=name[:80])
        for folder in folders or ("",):
            path = self.path.parent / folder / name
            if is_file_below(self.root, path):
                return replace(found, data=path)
        return replace(found, state=EntryState.MISSING)


def is_usable_name(name: str) -> bool:
    """Return True if a file can have a name: the name is encodable, on one line, and not too long.

    >>> is_usable_name("a.patch"), is_usable_name("\N{GREEK SMALL LETTER ALPHA}" * 200), is_usable_name("a" * 300)
    (True, False, False)
    """
    try:
        return len(os.fsencode(name)) <= _MOST_NAME and not {"\n", "\0"} & set(name)
    except UnicodeEncodeError:
        return False


def is_file_below(root: Path, path: Path) -> bool:
    """Return True if a path is a file below a folder. A path that can't be examined is not."""
    try:
        return path.is_file() and root in path.resolve().parents
    except (OSError, RuntimeError):  # no permission, or symbolic links that form a loop
        return False


def number_in(text: str) -> int:
    """Return the value of digits in a recipe.

    :raises FormatError: if there are too many digits. Python itself refuses to convert thousands of them.
    """
    if len(text) > _MOST_DIGITS:
        raise FormatError(
            f"the recipe has a number of {len(text)} digits: {text[:20]}…; the limit is {_MOST_DIGITS}",
            hint="import the patch files instead of the recipe, in order",
        )
    return int(text)


def strip_level(words: Sequence[str], option: str = "-p") -> int:
    """Return the strip level in the first word of the form ``-pN``; 1 if there is no such word.

    >>> strip_level(["-E", "-p0"]), strip_level(["-pab"])
    (0, 1)
    """
    for word in words:
        if re.fullmatch(rf"{option}\d+", word):
            return number_in(word.removeprefix(option))
    return 1


def read_list(path: Path) -> str:
    """Return the text of a file that lists patches. Invalid UTF-8 is replaced.

    :raises FormatError: if the file is too large, or not a regular file.
    """
    return (fsio.read_limited(path, MOST_TEXT) or b"").decode("utf-8", "replace")
