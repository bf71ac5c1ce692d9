"""Patches in an RPM spec: the ``Patch`` tags, and the lines of ``%prep`` that apply the patches."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from patchq.recipes.entries import Entry, EntryState, RecipeFile, number_in

_TAG = re.compile(r"(\w+)\s*:\s*(.*)")
_PATCH_TAG = re.compile(r"patch(\d*)", re.IGNORECASE)
_SECTION = re.compile(
    r"%(package|description|prep|generate_buildrequires|conf|build|install|check|clean|files|changelog|pre|post|preun|"
    r"postun|pretrans|posttrans|trigger\w*|filetrigger\w*|verifyscript|patchlist|sourcelist)\b"
)
_DEFINE = re.compile(r"%(?:global|define)\s+(\w+)(?:\([^)]*\))?\s+(.*)")
_BCOND = re.compile(r"%bcond(_with|_without|)\s+(\w+)(?:\s+(\d))?")
_IF = re.compile(r"%(if|ifarch|ifnarch|ifos|ifnos|elif|elifarch|else|endif)\b\s*(.*)")
#: `%patch3`, `%patch 3`, `%patch -P 3`, also as `%{patch3}` and inside `%{?with_x:…}`.
_PATCH = re.compile(r"(?P<if>%\{(?P<not>!?)\?(?P<name>\w+):)?%\{?patch(?P<number>\d*)\b(?P<rest>[^}]*)\}?")
_NAMED = re.compile(r"%\{?(?:PATCH|P:)(\d+)\}?|%\{?PATCH\b\}?(?!\d)")
_MACRO = re.compile(r"%\{(!?\??)([\w]+)(?::([^{}]*))?\}|%(\w+)")
_EDIT = re.compile(r"(?:sed|perl)\b.*\s-\w*i|cp\b|mv\b|ln\b|tee\b|autoreconf\b|(?:echo|cat)\b.*>\s*\S")
#: Folders of a spec's patches: the spec's folder, and folders of an rpmbuild tree.
_FOLDERS = ("", "SOURCES", "../SOURCES")
#: Limits in characters: of all expanded texts together, and of one expanded text.
_MOST_EXPANDED, _MOST_VALUE = 4 << 20, 2 << 10


@dataclass(slots=True)
class _Condition:
    """``%if`` block around the current line.

    :ivar text: condition of the current branch.
    :ivar value: value of the condition; None if the spec alone doesn't determine it.
    """

    text: str
    value: bool | None


@dataclass(slots=True)
class _Spec:
    recipe: RecipeFile
    macros: dict[str, str] = field(default_factory=dict)
    bconds: dict[str, bool] = field(default_factory=dict)
    open: list[_Condition] = field(default_factory=list)
    patches: dict[int, Entry] = field(default_factory=dict)
    applied: set[int] = field(default_factory=set)
    section: str = "preamble"
    folder: str = ""
    found: list[Entry] = field(default_factory=list)
    expanded: int = 0

    def expand(self, text: str) -> str:
        """Expand the macros that the spec defines. Other macros are left unchanged."""
        text = text[:_MOST_VALUE]
        for _ in range(16):
            if self.expanded > _MOST_EXPANDED:
                break
            after = _MACRO.sub(self._value, text)[:_MOST_VALUE]
            self.expanded += len(after)
            if after == text:
                break
            text = after
        return text

    def _value(self, match: re.Match[str]) -> str:
        flags, name, text = match[1] or "", match[2] or match[4], match[3]
        value = self.macros.get(name.lower() if name.lower() in ("name", "version", "release") else name)
        if name.startswith("with_") and name[5:] in self.bconds:
            value = None
            if self.bconds[name[5:]]:
                value = "1"
            if value is None:
                if "!" in flags:
                    return text or ""
                if "?" in flags:
                    return ""
                return match[0]
        if value is None or (text is not None and "?" not in flags):
            return match[0]
        if text is None:
            if "!" in flags:
                return ""
            return value
        if "!" in flags:
            return ""
        return text

    def truth(self, expression: str) -> bool | None:
        """Return the value of a condition; None if the spec alone doesn't determine it."""
        text = re.sub(r"%\{with (\w+)\}|%\{without (\w+)\}", self._with, expression)
        text = self.expand(text).strip()
        negated = False
        while text.startswith("!"):
            negated = not negated
            text = text[1:].lstrip()
        if not re.fullmatch(r"\d+", text):
            return None
        return any(int(digit) for digit in text) != negated

    def _with(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in self.bconds:
            return match[0]
        return str(int(self.bconds[name] == bool(match[1])))

    @property
    def skipped(self) -> bool:
        """True if a condition around the current line is false."""
        return any(part.value is False for part in self.open)

    @property
    def condition(self) -> str:
        """Condition under which the current line is used, without parts that are always true."""
        return " and ".join(part.text for part in self.open if part.value is not True)


def rpm_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Return the entries of a spec: the patches in the order of ``%prep``, then the patches that aren't applied."""
    folder = recipe.path.resolve().parent
    if folder.name == "SPECS" and recipe.root == folder:
        recipe.root = folder.parent
    spec = _Spec(recipe)
    for line, text in _lines(recipe.text):
        if _condition(spec, text):
            continue
        if section := _SECTION.match(text):
            spec.section = section[1]
        elif _DEFINE.match(text) or _BCOND.match(text):
            _define(spec, text)
        elif spec.section == "patchlist":
            if text and not text.startswith("#"):
                _declare(spec, line, "", text)
        elif spec.section == "prep":
            _prepare(spec, line, text)
        else:
            _tag(spec, line, text)
    for number, entry in spec.patches.items():
        if number not in spec.applied:
            if entry.state is EntryState.CONDITIONAL:
                spec.found.append(entry)
            else:
                spec.found.append(replace(entry, state=EntryState.UNUSED, detail=""))
    yield from spec.found


def _define(spec: _Spec, text: str) -> None:
    if spec.skipped:
        return
    if defined := _DEFINE.match(text):
        spec.macros[defined[1]] = spec.expand(defined[2].strip())
    elif option := _BCOND.match(text):
        if option[3]:
            spec.bconds[option[2]] = option[3] == "1"
        else:
            spec.bconds[option[2]] = option[1] == "_without"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number. Lines that end in a backslash are joined."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield first, (joined + line).strip()
        joined, first = "", 0
    if joined:
        yield first, joined.strip()


def _condition(spec: _Spec, text: str) -> bool:
    """Update the open ``%if`` blocks if a line is ``%if``, ``%endif`` or similar. Return True for such a line."""
    match = _IF.match(text)
    if not match:
        return False
    word, rest = match[1], match[2].strip()
    if word.startswith("if"):
        if word == "if":
            shown = rest
        else:
            shown = f"{word} {rest}"
        spec.open.append(_Condition(shown, spec.truth(rest) if word == "if" else None))
    elif spec.open and word == "endif":
        spec.open.pop()
    elif spec.open:
        last = spec.open[-1]
        if word == "else":
            last.text = f"not {last.text}"
        else:
            last.text = rest
        before = last.value
        if before is None or (word != "else" and not before):
            last.value = None
        else:
            last.value = not before
    return True


def _tag(spec: _Spec, line: int, text: str) -> None:
    bare = text.lstrip("#% ")
    match = _TAG.match(bare)
    patch = None
    if match:
        patch = _PATCH_TAG.fullmatch(match[1])
    if not match:
        return
    if text.startswith("#"):
        if patch and re.search(r"\.(?:patch|diff)\b", match[2]):
            spec.found.append(Entry(where=spec.recipe.at(line), text=match[2].strip(), state=EntryState.COMMENTED))
    elif patch:
        _declare(spec, line, patch[1], match[2])
    elif match[1].lower() in ("name", "version", "release"):
        spec.macros[match[1].lower()] = spec.expand(match[2].strip())


def _declare(spec: _Spec, line: int, number: str, value: str) -> None:
    name = spec.expand(value.strip().split(" #")[0].strip())
    entry = spec.recipe.entry(_base(name), line, *_FOLDERS)
    if entry.state is EntryState.MISSING and "://" in name:
        entry = replace(entry, state=EntryState.REMOTE, text=name)
    elif entry.state is EntryState.MISSING:
        looked = [os.path.normpath(spec.recipe.path.parent / folder) for folder in _FOLDERS]
        entry = replace(entry, detail=", ".join(looked))
    if number:
        key = number_in(number)
    else:
        key = max(spec.patches, default=-1) + 1
    spec.patches[key] = entry.only_if(spec.condition)


def _base(name: str) -> str:
    """Return the file name of a patch. As in rpm, this is the last component of the patch's URL."""
    return name.rsplit("#/", 1)[-1].rsplit("/", 1)[-1]


def _automatic_setup(spec: _Spec, line: int, options: Sequence[str]) -> None:
    if not spec.skipped:
        _setup(spec, options)
    if "-N" not in options:
        _automatic(spec, line, options, sorted(spec.patches))


def _commented(spec: _Spec, line: int, text: str) -> None:
    """Record the patches that a commented-out line would apply."""
    for comment in _PATCH.finditer(text):
        number = number_in(comment["number"] or _number(comment["rest"]))
        if number in spec.patches:
            spec.applied.add(number)
            name = spec.patches[number].text
            spec.found.append(Entry(where=spec.recipe.at(line), text=name, state=EntryState.COMMENTED))


def _prepare(spec: _Spec, line: int, text: str) -> None:
    if text.startswith("#"):
        _commented(spec, line, text)
        return
    word = ""
    if text:
        word = text.split()[0]
    if word in ("%setup", "cd", "pushd", "popd") and spec.skipped:
        return
    if word == "%setup":
        _setup(spec, _options(spec, text))
    elif word == "%autosetup":
        _automatic_setup(spec, line, _options(spec, text))
    elif word == "%autopatch":
        _automatic(spec, line, _options(spec, text), _range(spec, _options(spec, text)))
    else:
        _prepare_command(spec, line, word, text)


def _prepare_command(spec: _Spec, line: int, word: str, text: str) -> None:
    """Record the patches that a line without a setup macro applies, and the edits that it makes."""
    if match := _PATCH.search(text):
        _patch(spec, line, match)
    elif re.search(r"\bgit (?:am|apply)\b.*%\{patches\}|%\{?apply_patches\b", text):
        _automatic(spec, line, ["-p1"], sorted(spec.patches))
    elif re.search(r"\b(?:patch|git\s+(?:am|apply))\b", text) and _NAMED.search(text):
        _by_name(spec, line, text)
    elif word in ("cd", "pushd", "popd"):
        _change(spec, text)
    elif re.match(r"patch\s", text):
        if not spec.condition:
            state = EntryState.UNREADABLE
        else:
            state = EntryState.CONDITIONAL
        spec.found.append(Entry(where=spec.recipe.at(line), text=text, state=state, detail=spec.condition))
    elif _EDIT.match(text):
        command = spec.expand(text).replace("%%", "%")
        where = spec.recipe.at(line)
        spec.found.append(Entry(where=where, text=command, folder=spec.folder, state=EntryState.EDIT))


def _options(spec: _Spec, text: str) -> list[str]:
    """Return the options of a line. An option and its value are joined: ``-n x`` becomes ``-nx``."""
    try:
        words = shlex.split(spec.expand(text).replace("\\", ""), comments=True)[1:]
    except ValueError:
        words = text.split()[1:]
    found: list[str] = []
    for word in words:
        word = re.sub(r"^-[qv]([a-zA-Z])$", r"-\1", word)
        if found and re.fullmatch(r"-[nabpPbzFdimMSo]", found[-1]) and not word.startswith("-"):
            found[-1] += word
        else:
            found.append(word)
    return found


def _value_of(options: Sequence[str], letter: str) -> str | None:
    return next((word[2:] for word in options if word.startswith(f"-{letter}")), None)


def _setup(spec: _Spec, options: Sequence[str]) -> None:
    """Set the folder to which ``%setup`` changes, below the top folder of the archive."""
    name = (_value_of(options, "n") or "").strip("'\"")
    if "-c" in options:
        spec.folder = ""
    else:
        spec.folder = name.partition("/")[2].strip("/")


def _change(spec: _Spec, text: str) -> None:
    """Record the folder to which ``cd`` changes, if the spec shows the folder."""
    words = spec.expand(text).split()
    target = ""
    if len(words) > 1:
        target = words[1].strip("'\"")
    if words[0] == "popd" or not re.fullmatch(r"[\w.+-]+(?:/[\w.+-]+)*", target) or ".." in target.split("/"):
        spec.folder = ""
    else:
        spec.folder = "/".join(filter(None, (spec.folder, target)))


def _range(spec: _Spec, options: Sequence[str]) -> list[int]:
    """Return the numbers of the patches that ``%autopatch`` applies.

    These are the listed numbers or, if none is listed, the numbers from ``-m`` to ``-M``.
    """
    listed = []
    for word in options:
        if word.isdecimal():
            listed.append(number_in(word))
    low, high = _value_of(options, "m"), _value_of(options, "M")
    if listed:
        return [number for number in listed if number in spec.patches]
    first = 0
    if low and low.isdecimal():
        first = number_in(low)
    if high and high.isdecimal():
        last = number_in(high)
    else:
        last = max(spec.patches, default=0)
    return [number for number in sorted(spec.patches) if first <= number <= last]


def _automatic(spec: _Spec, line: int, options: Sequence[str], numbers: Sequence[int]) -> None:
    level = _value_of(options, "p")
    strip = None
    if level and level.isdecimal():
        strip = number_in(level)
    if strip is None and (_value_of(options, "S") or "").startswith("git"):
        strip = 1
    for number in numbers:
        _apply(spec, number, Entry(where=spec.recipe.at(line), text="", strip=strip, folder=spec.folder))


def _number(rest: str) -> str:
    match = re.search(r"-P\s*(\d+)|^\s+(\d+)\b", rest)
    if match:
        return match[1] or match[2]
    return "0"


def _patch(spec: _Spec, line: int, match: re.Match[str]) -> None:
    """Record the patch that a ``%patch`` line applies. Without ``-p``, rpm applies it with ``-p0``."""
    options = _options(spec, "%patch " + match["rest"])
    number = match["number"] or _number(match["rest"])
    entry = _with_options(Entry(where=spec.recipe.at(line), text="", strip=0, folder=spec.folder), options)
    condition = spec.condition
    if match["if"]:
        truth = spec.truth("%{?" + match["name"] + ":1}")
        condition = " and ".join(filter(None, [condition, "" if truth else match["not"] + match["name"]]))
    _apply(spec, number_in(number), entry, condition)


def _by_name(spec: _Spec, line: int, text: str) -> None:
    """Record the patches that a line such as ``patch -p1 < %{PATCH1}`` or ``git apply %{PATCH1}`` applies."""
    options = _options(spec, text)
    start = Entry(where=spec.recipe.at(line), text="", strip=1 if "git" in text.split("%")[0] else None)
    entry = _with_options(replace(start, folder=spec.folder), options)
    for match in _NAMED.finditer(text):
        _apply(spec, number_in(match[1] or "0"), entry, spec.condition)


def _with_options(entry: Entry, options: Sequence[str]) -> Entry:
    """Return the entry after applying the options of ``patch`` that change the result, such as ``-p1`` or ``-R``."""
    for word in options:
        if re.fullmatch(r"-[Nstu]*p\d+", word):
            entry = replace(entry, strip=number_in(word.partition("p")[2]))
        elif word in ("-R", "--reverse"):
            entry = replace(entry, reverse=True)
        elif word in ("-E", "--remove-empty-files"):
            entry = replace(entry, remove_empty=True)
        elif re.match(r"-d.|--directory=", word):
            if word[1] == "d":
                inner = word[2:]
            else:
                inner = word.partition("=")[2]
            entry = replace(entry, folder="/".join(filter(None, (entry.folder, inner.strip("/")))))
        elif word in ("-l", "--ignore-whitespace"):
            entry = replace(entry, state=EntryState.OPTION, detail=word)
    return entry


def _apply(spec: _Spec, number: int, how: Entry, condition: str = "") -> None:
    condition = condition or spec.condition
    declared = spec.patches.get(number)
    spec.applied.add(number)
    if declared is None:
        found = replace(how, text=f"patch {number}", state=EntryState.UNREADABLE)
    else:
        state = declared.state
        if state is EntryState.TAKEN:
            state = how.state
        detail = declared.detail or how.detail
        found = replace(how, text=declared.text, data=declared.data, state=state, detail=detail)
    spec.found.append(found.only_if(condition))
