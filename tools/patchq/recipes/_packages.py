"""Patches in an Arch ``PKGBUILD`` and in a Gentoo ebuild."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.recipes._bash import UNKNOWN, Shell, ShellCommand, Word
from patchq.recipes.entries import Entry, EntryState, RecipeFile, is_usable_name, number_in

_COMMENTED = re.compile(r"#\s*(?:.*\bpatch\b.*?|.*\beapply\b.*?|[\"']?\S*?)([\w.+-]+\.(?:patch|diff))\b")
_EDITS = {"sed", "perl", "cp", "mv", "ln", "rm", "autoreconf", "eautoreconf", "install", "tee", "dos2unix"}
_VALUED = re.compile(r"-[iFpdzBr]")


@dataclass(slots=True)
class _Options:
    """Options of a ``patch`` or ``git apply`` command."""

    files: list[str]
    strip: int | None = None
    folder: str = ""
    reverse: bool = False
    remove_empty: bool = False
    unsupported: str = ""
    keep_returns: bool = False


def arch_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of a ``PKGBUILD``: the patches that ``prepare()`` and ``build()`` apply, in order."""
    shell = Shell(recipe.text)
    shell.words |= {"srcdir": [Word(".", 0)], "startdir": [Word(".", 0)]}
    list(shell.run_top())
    urls = {}
    for source in shell.values("source"):
        urls[_source_name(source)] = source.rpartition("::")[2]
    found = []
    for call in shell.run_function("prepare"):
        found += _of_call(recipe, shell, call)
    shell.folders.clear()
    for call in shell.run_function("build"):
        for entry in _of_call(recipe, shell, call):
            if entry.state is not EntryState.EDIT:
                found.append(entry)
    for number, entry in enumerate(found):
        url = urls.get(entry.text.rsplit("/", 1)[-1], "")
        if entry.state is EntryState.MISSING and "://" in url:
            found[number] = replace(entry, state=EntryState.REMOTE, text=url)
    yield from found
    yield from _rest(recipe, shell, found, shell.words.get("source", []))


def gentoo_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of an ebuild: ``PATCHES``, and the ``eapply`` calls in ``src_prepare``."""
    shell = Shell(recipe.text)
    name = recipe.path.stem
    match = re.fullmatch(r"(.+?)-(\d[\w.]*)(-r\d+)?", name)
    if match:
        package, version = (match[1], match[2])
    else:
        package, version = (name, "")
    known = {"PN": package, "PV": version, "P": f"{package}-{version}", "PF": name, "FILESDIR": "files"}
    shell.words |= {key: [Word(value, 0)] for key, value in known.items()}
    shell.words |= {"S": [Word(".", 0)]}
    list(shell.run_top())
    own = "src_prepare" in shell.functions
    calls = list(shell.run_function("src_prepare"))
    found: list[Entry] = []
    applied = False
    for call in calls:
        # `default` and the src_prepare of every eclass apply PATCHES.
        if not applied and (call.words[0] == "default" or call.words[0].endswith("_src_prepare")):
            applied = True
            found += _declared(recipe, shell, call.condition)
        found += _of_call(recipe, shell, call)
    if not own:
        found = _declared(recipe, shell, "")
        applied = True
    elif not applied and not any("PATCHES" in call.text for call in calls):
        found += [replace(entry, state=EntryState.UNUSED) for entry in _declared(recipe, shell, "")]
    yield from found
    yield from _rest(recipe, shell, found, [])


def _source_name(source: str) -> str:
    """Return the file name of an item of ``source``, which is ``name::url``, a URL or a file."""
    return source.partition("::")[0].rsplit("/", 1)[-1]


def _declared(recipe: RecipeFile, shell: Shell, condition: str) -> list[Entry]:
    """Return the entries that ``PATCHES`` lists: files, or folders of patches."""
    found: list[Entry] = []
    for word in shell.words.get("PATCHES", []):
        for part in word.text.split() if len(shell.words["PATCHES"]) == 1 else [word.text]:
            needed = " and ".join(filter(None, [condition, word.condition]))
            for entry in _files(recipe, part, word.line or 1):
                found.append(entry.only_if(needed))
    return found


def _files(recipe: RecipeFile, name: str, line: int, strip: int | None = 1) -> list[Entry]:
    """Return the entries for one argument: a file, a pattern, or a folder of patches."""
    name = re.sub(r"^(?:\./|\.\./)+", "", name)
    folder = recipe.path.parent
    names = [name]
    try:
        if not is_usable_name(name):
            names = [name]  # also a name with UNKNOWN; the entry says why the patch is refused
        elif (folder / name).is_dir():
            names = []
            for path in sorted((folder / name).iterdir()):
                if path.suffix in (".patch", ".diff"):
                    names.append(f"{name.rstrip('/')}/{path.name}")
        elif "*" in name and ".." not in name.split("/") and not name.startswith("/"):
            # In these shells, ** means the same as *. In pathlib, it means folders of any depth, or is an error.
            pattern = re.sub(r"\*+", "*", name)
            names = [str(path.relative_to(folder)) for path in sorted(folder.glob(pattern))]
    except OSError:  # such as a folder without permission: the entry says that the patch is not there
        names = [name]
    return [recipe.entry(one, line, strip=strip) for one in names]


def _of_call(recipe: RecipeFile, shell: Shell, call: ShellCommand) -> list[Entry]:
    """Return the entries for one command: the patches that it applies, or the edit that it makes."""
    words = list(call.words)
    if words[0] in ("eapply", "epatch"):
        return _eapply(recipe, call, words[1:])
    is_git = words[0] == "git" and not {"apply", "am"}.isdisjoint(words[1:])
    if words[0] != "patch" and not is_git:
        if words[0] in _EDITS and not (words[0] == "sed" and not re.search(r"\s-\w*i|--in-place", call.text)):
            return [Entry(where=recipe.at(call.line), text=call.text, state=EntryState.EDIT)]
        return []
    options = _options(words[1:], 1 if is_git else None)
    options.keep_returns |= is_git
    if call.stdin and not options.files:
        files = [call.stdin]
    else:
        files = options.files
    found: list[Entry] = []
    for name in files:
        for entry in _files(recipe, name, call.line, options.strip):
            if options.unsupported and entry.state is EntryState.TAKEN:
                entry = replace(entry, state=EntryState.OPTION, detail=options.unsupported)
            if options.keep_returns:
                entry = entry.keeping_returns()
            folder = "/".join(filter(None, [_folder(call.folders), options.folder]))
            entry = replace(entry, folder=folder, reverse=options.reverse, remove_empty=options.remove_empty)
            found.append(entry.only_if(call.condition))
    if not files:
        found = [Entry(where=recipe.at(call.line), text=call.text, state=EntryState.UNREADABLE).only_if(call.condition)]
    return found


def _eapply(recipe: RecipeFile, call: ShellCommand, words: Sequence[str]) -> list[Entry]:
    options = _options([word for word in words if word != "--"], 1)
    found = []
    for name in options.files:
        found += _files(recipe, name, call.line, options.strip)
    folder = "/".join(filter(None, [_folder(call.folders), options.folder]))
    for number, entry in enumerate(found):
        found[number] = replace(entry, folder=folder, reverse=options.reverse).only_if(call.condition)
    return found


def _options(words: Sequence[str], strip: int | None) -> _Options:
    """Parse the options of ``patch``, ``git apply`` and ``eapply``."""
    found = _Options([], strip)
    todo = [word for word in words if word not in ("apply", "am")]
    while todo:
        word = todo.pop(0)
        if _VALUED.fullmatch(word) and todo:
            word += todo.pop(0)
        if match := re.fullmatch(r"-([NstufbREl]*)p(\d+)|--strip=(\d+)", word):
            found.strip = number_in(match[2] or match[3])
            letters = re.sub("[^REl]", "", match[1] or "")
            todo = [*(f"-{letter}" for letter in letters), *todo]
        elif match := re.fullmatch(r"-([Nstufb]*)i(.+)|--input=(.+)", word):
            found.files.append(match[2] or match[3])
        elif match := re.fullmatch(r"-d(.+)|--directory=(.+)", word):
            found.folder = _folder([match[1] or match[2]])
        elif word in ("-R", "--reverse"):
            found.reverse = True
        elif word in ("-E", "--remove-empty-files"):
            found.remove_empty = True
        elif word in ("-l", "--ignore-whitespace", "--ignore-space-change", "--merge", "--3way", "-3"):
            found.unsupported = word
        elif word == "--binary":
            found.keep_returns = True
        elif not word.startswith("-"):
            found.files.append(word)
    return found


def _folder(folders: Sequence[str]) -> str:
    """Return the current folder after all ``cd`` commands of a list, relative to the unpacked archive.

    The first ``cd`` enters the unpacked archive. If the code doesn't show the folder, return an empty string.
    """
    parts: list[str] = []
    for number, folder in enumerate(folders):
        words = [part for part in folder.split("/") if part not in ("", ".")]
        if number == 0 or folder.startswith(("./", UNKNOWN)):
            words = words[1:]
        parts += words
    path = "/".join(parts)
    if UNKNOWN in path or ".." in parts:
        return ""
    return path


def _rest(recipe: RecipeFile, shell: Shell, found: Sequence[Entry], sources: Sequence[Word]) -> Iterator[Entry]:
    """Yield entries for patches that are commented out, and for patches in ``source`` that no command applies."""
    named = {entry.text.rsplit("/", 1)[-1] for entry in found}
    for line, text in shell.comments:
        match = _COMMENTED.match(text)
        if match and match[1] not in named:
            named.add(match[1])
            yield Entry(where=recipe.at(line), text=match[1], state=EntryState.COMMENTED)
    for word in sources:
        name = _source_name(word.text)
        if re.search(r"\.(?:patch|diff)$", name) and name not in named:
            yield Entry(where=recipe.at(word.line), text=name, state=EntryState.UNUSED)
