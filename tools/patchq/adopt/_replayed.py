"""Import scripts and Dockerfiles: each edit becomes a patch. The import can be repeated."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchq.adopt._folders import origin_of
from patchq.adopt._headers import trailer_value
from patchq.adopt._wheels import package_of, release_wheel
from patchq.adopt.fit import Fitter
from patchq.adopt.found import FoundPatch, ItemOutcome, ReadOptions, ReplayOptions
from patchq.errors import ConflictError
from patchq.formats.header import Ident, parse_trailers, with_trailer
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, sh, show_path
from patchq.patterns.rules import Rule, with_rules
from patchq.patterns.sed import sed_rules
from patchq.patterns.trees import StoredTree, is_made_by
from patchq.project.project import Project
from patchq.replay.dockerfile import Build, replay_dockerfile
from patchq.replay.limits import MOST_SCRIPT
from patchq.replay.outcomes import Account, NotTaken, Reason, StepStatus
from patchq.replay.scripts import CODEMOD, is_dockerfile, replay_commands, replay_script
from patchq.stacks.edit import Loaded, user_ident
from patchq.stacks.export import slug
from patchq.stacks.reconcile import ReconciledEntry
from patchq.system import fsio

#: Line of a patch's message above the command of the script's step.
_COMMAND = "Was done by a command:"


def from_replay(
    project: Project,
    loaded: Loaded,
    paths: Sequence[Path],
    commands: Sequence[str],
    request: ReplayOptions,
) -> list[FoundPatch]:
    """Run scripts and commands on top of the stack, and return a patch for each edit.

    Each script sees the changes of earlier ones.
    """
    tip = loaded.state.tip
    found: list[FoundPatch] = []
    for path in paths:
        earlier = _imported_from(loaded.entries, path)
        if earlier:
            again = _replay_again(project, loaded, path, earlier, request)
            if again:
                found += again
                continue
        accounts = _replay(project, loaded, tip, path, request)
        found += convert(project, accounts)
        tip = _after(project, accounts, tip)
    if commands:
        found += convert(project, replay_commands(project.store, tip, commands, project.say))
    return found


def _replay(project: Project, loaded: Loaded, tip: CommitId, path: Path, request: ReplayOptions) -> list[Account]:
    data = fsio.read_limited(path, MOST_SCRIPT) or b""
    if is_dockerfile(path):
        return _replay_dockerfile(project, loaded, tip, data, path, request)
    return replay_script(project.store, tip, data, path, project.say)


def _replay_dockerfile(
    project: Project,
    loaded: Loaded,
    tip: CommitId,
    data: bytes,
    path: Path,
    request: ReplayOptions,
) -> list[Account]:
    context = (request.context or path.parent).resolve()
    build = Build(data=data, where=str(path), context=context, arguments=request.arguments)
    for name in request.arguments:
        if name.encode() not in data:
            project.say(f"{path}: no instruction uses --build-arg {name}")
    wheel = release_wheel(project, loaded.stack.pin, offline=request.offline, most=request.most_download)
    package = package_of(project, loaded, wheel)
    base = project.store.tree_of([loaded.state.base])[0]
    accounts = replay_dockerfile(project.store, tip, base, build, package, project.say)
    wheels = loaded.stack.pin.wheels
    if wheels and wheel is None:
        unseen = Account(
            where=str(path), text=sorted(wheels)[0], status=StepStatus.NOT_UNDERSTOOD, reason=Reason.NO_WHEEL
        )
        accounts = [unseen, *accounts]
    return accounts


def _imported_from(entries: Sequence[ReconciledEntry], path: Path) -> list[ReconciledEntry]:
    """Return the patches of a stack whose ``Origin:`` names a script.

    If no ``Origin:`` has the script's exact path, accept a path that differs only in its leading folders, because the
    script may have been imported from another folder.
    """
    name = origin_of(path)
    exact, similar = [], []
    for entry in entries:
        file = _script_of(entry)
        if file == name:
            exact.append(entry)
        elif file and (file.endswith(f"/{name}") or name.endswith(f"/{file}")):
            similar.append(entry)
    return exact or similar


def _script_of(entry: ReconciledEntry) -> str:
    """Return the script or Dockerfile that a patch's ``Origin:`` names; empty if the patch came from another source."""
    for key, value in parse_trailers(entry.commit.message):
        file, _, line = value.rpartition(":")
        if key.lower() == "origin" and line.isdigit():
            return file
    return ""


def _replay_again(
    project: Project, loaded: Loaded, path: Path, earlier: Sequence[ReconciledEntry], request: ReplayOptions
) -> list[FoundPatch]:
    """Repeat the import of a script, on the tree before its first import.

    A step that made a patch of the stack gets no second patch: it is reported as ``equal``, or as ``conflict`` if its
    change now differs from the patch. A new step becomes a patch above the patch of the preceding step. If no step made
    a patch of the stack, return an empty list.

    :param earlier: patches that the first import made.
    """
    parents = earlier[0].commit.parents
    start = parents[0] if parents else loaded.state.base
    upstream, base = loaded.stack.pin.upstream, project.store.tree_of([loaded.state.base])[0]
    accounts = _replay(project, loaded, start, path, request)
    made = _patches_made_by(project.store, accounts, loaded.entries, earlier)
    if not made:
        return []
    patches = convert(project, accounts)
    made |= _replaced(project, loaded, patches, made, earlier)
    order = [entry.name for entry in loaded.entries]
    place = order.index(made[min(made)].name)
    found = []
    for index, patch in enumerate(patches):
        entry = made.get(index)
        if entry and patch.trees:
            if is_same_change(project.store, patch.trees, entry, base):
                carried, note = ItemOutcome.EQUAL, f"{patch.where}: the stack already has this edit"
            else:
                carried, note = ItemOutcome.CONFLICT, f"the step makes another change than {upstream}/{entry.name}"
            patch = replace(patch, name=entry.name, carried=carried, trees=None, notes=(note,))
            place = order.index(entry.name) + 1
        found.append(replace(patch, place=place))
    kept = {entry.name for entry in made.values()}
    for entry in earlier:
        if entry.name not in kept and not _is_unresolved(accounts, entry):
            note = _gone(path, entry, f"`patchq drop {upstream}/{sh(entry.name)}` removes it")
            at_place = _unresolved_at_place(accounts, entry)
            if at_place:
                note = f"unless the step {at_place}, which has no result, makes this edit: {note}"
            notes = (note,)
            where = f"{upstream}/{entry.name}"
            found.append(
                FoundPatch(name=entry.name, where=where, author=None, message="", carried=ItemOutcome.GONE, notes=notes)
            )
    return found


def _gone(path: Path, entry: ReconciledEntry, typed: str) -> str:
    """Return the note for a patch that a script no longer makes.

    If ``Origin:`` could mean another file of the same name, the note asks the user to compare the files.
    """
    file = _script_of(entry)
    if "/" in file and file == origin_of(path):
        return f"{path} no longer makes this edit: {typed}"
    return f"{path} doesn't make this edit, which came from {file}: if that is the same file, {typed}"


def _replaced(
    project: Project,
    loaded: Loaded,
    patches: Sequence[FoundPatch],
    made: Mapping[int, ReconciledEntry],
    earlier: Sequence[ReconciledEntry],
) -> dict[int, ReconciledEntry]:
    """Return the patches that changed steps probably replace, keyed by the index of the step.

    A step counts as changed if its edit conflicts with the applied stack. It replaces a patch of the earlier import if
    no step makes this patch any more, and if both change the same file. Of several such patches, prefer the patch with
    the step's name, then the patch with the step's ``Origin:``, then the first patch.

    :param made: patches that steps still make, keyed by the index of the step.
    :param earlier: patches of the earlier import.
    """
    store, tip = project.store, project.store.tree_of([loaded.state.tip])[0]
    base = store.tree_of([loaded.state.base])[0]
    left = [entry for entry in earlier if entry not in made.values()]
    found: dict[int, ReconciledEntry] = {}
    for index, patch in enumerate(patches):
        if not left or not patch.trees or index in made:
            continue
        try:
            pick(store, "", patch.name, *patch.trees, tip)
        except ConflictError:
            paths = {change.path for change in store.changes(*patch.trees)}
            same_file = []
            for entry in left:
                before = store.tree_of(entry.commit.parents[:1])[0] if entry.commit.parents else base
                if not paths.isdisjoint(change.path for change in store.changes(before, entry.commit.tree)):
                    same_file.append(entry)
            origin = ("origin", patch.origin)
            same_file.sort(key=lambda entry: (entry.name != patch.name, origin not in _trailers(entry)))
            if same_file:
                found[index] = same_file[0]
                left.remove(same_file[0])
    return found


def _trailers(entry: ReconciledEntry) -> list[tuple[str, str]]:
    return [(key.lower(), value) for key, value in parse_trailers(entry.commit.message)]


def _patches_made_by(
    store: Git, accounts: Sequence[Account], entries: Sequence[ReconciledEntry], earlier: Sequence[ReconciledEntry]
) -> dict[int, ReconciledEntry]:
    """Return the patches of the stack that steps made, keyed by the index of the step.

    A step made a patch if both have the same diff, or if the patch's message quotes the step's command.
    """
    ids = store.patch_ids_of([entry.commit.commit for entry in entries])
    by_diff = dict(zip(ids, entries, strict=True))
    left = list(earlier)
    made: dict[int, ReconciledEntry] = {}
    for same_diff in (True, False):
        for index, account in enumerate(accounts):
            if not account.trees or index in made:
                continue
            if same_diff:
                entry = by_diff.get(_patch_id(store, account.trees))
            else:
                entry = next((one for one in left if _command_of(account) in one.commit.message), None)
            if entry and entry not in made.values():
                made[index] = entry
                if entry in left:
                    left.remove(entry)
    return dict(sorted(made.items()))


def is_same_change(store: Git, trees: tuple[TreeId, TreeId], entry: ReconciledEntry, base: TreeId) -> bool:
    """Return True if a step and a patch of the stack make the same change.

    Merge the step's change into the tree before the patch, and compare the result with the patch's tree. Patch ids
    don't show this: git ignores white space in them, but white space matters in Python.
    """
    parents = entry.commit.parents
    onto = store.tree_of([parents[0]])[0] if parents else base
    try:
        return pick(store, "", entry.name, *trees, onto) == entry.commit.tree
    except ConflictError:
        return False


def _is_unresolved(accounts: Sequence[Account], entry: ReconciledEntry) -> bool:
    """Return True if the command that made a patch is still in the script, but is refused or not understood."""
    _, _, quoted = entry.commit.message.partition(f"{_COMMAND}\n\n")
    command = "\n".join(line[4:] for line in itertools.takewhile(lambda line: line[:4] == "    ", quoted.split("\n")))
    return bool(command) and any(command in account.text for account in _without_result(accounts))


def _unresolved_at_place(accounts: Sequence[Account], entry: ReconciledEntry) -> str:
    """Return a patch's ``Origin:`` location if a refused or unknown step is at this location; else an empty string."""
    trailers = _trailers(entry)
    places = (one.where for one in _without_result(accounts) if ("origin", _origin(one.where)) in trailers)
    return next(places, "")


def _without_result(accounts: Sequence[Account]) -> list[Account]:
    return [one for one in accounts if one.status in (StepStatus.REFUSED, StepStatus.NOT_UNDERSTOOD)]


def _patch_id(store: Git, trees: tuple[TreeId, TreeId]) -> str:
    author = Ident("patchq", "patchq@localhost", 946684800, "+0000")
    before = store.commit_tree(trees[0], (), author, "before")
    return store.patch_ids_of([store.commit_tree(trees[1], [before], author, "after")])[0]


def _after(project: Project, accounts: Sequence[Account], tip: CommitId) -> CommitId:
    """Return a commit with the tree after the last step; ``tip`` if no step changed the tree."""
    taken = [one.trees for one in accounts if one.trees]
    if not taken:
        return tip
    return project.store.commit_tree(taken[-1][1], (), user_ident(project), "tree")


def convert(project: Project, accounts: Sequence[Account]) -> list[FoundPatch]:
    """Return a patch for each step: with ``problem`` if the step was refused, or ``left_out`` if it changed nothing."""
    # The author of a command's changes is the user who runs the command.
    author = user_ident(project)
    found = []
    for account in accounts:
        patch = FoundPatch(
            name=slug(account.comment or account.where),
            where=account.where,
            author=author,
            message="",
            origin=_origin(account.where),
            account=account,
        )
        if account.status is StepStatus.REFUSED:
            patch = replace(patch, problem=NotTaken([account]))
        elif account.trees:
            patch = _described(project, patch, account)
        else:
            patch = replace(patch, left_out=True)
        found.append(patch)
    return found


def _described(project: Project, patch: FoundPatch, account: Account) -> FoundPatch:
    """Return a patch with the name and message that describe the step."""
    assert account.trees
    names = [show_path(change.path) for change in project.store.changes(*account.trees)]
    more = ""
    if len(names) > 1:
        more = f" and {len(names) - 1} more"
    subject = account.comment.strip().rstrip(".") or f"Edit {names[0]}{more}"
    if account.comment:
        name = slug(account.comment)
    else:
        name = f"edit-{slug(Path(names[0]).stem)}"
    rules = _rules(project.store, account)
    message = with_rules(f"{subject}\n\n{_command_of(account)}", rules)
    if not rules and account.alone and "\n" not in account.text.strip():
        message = with_trailer(message, CODEMOD, account.text.strip())
    return replace(patch, name=name, message=message, trees=account.trees)


def _command_of(account: Account) -> str:
    """Return the paragraphs of a commit message that quote the command from which the patch was made."""
    lines = [_COMMAND, ""]
    for line in account.text.strip().split("\n")[:40]:
        lines.append(f"    {line}")
    return "\n".join(lines) + "\n"


def _rules(store: Git, account: Account) -> list[Rule]:
    """Return rules that make the same changes as a step's plain ``sed`` command; an empty list for other commands."""
    assert account.trees
    before, after = account.trees
    changes = store.changes(before, after)
    command = account.text.strip().removeprefix("RUN ")
    rules = sed_rules(command, [change.path for change in changes], StoredTree(store, before))
    if rules and is_made_by(rules, store, before, after):
        return rules
    return []


def _origin(where: str) -> str:
    path, _, line = where.rpartition(":")
    if not path.startswith("--run"):
        return f"{origin_of(Path(path))}:{line}"
    return ""


def with_carried(
    project: Project, loaded: Loaded, found: Sequence[FoundPatch], reading: ReadOptions, *, whole: bool
) -> list[FoundPatch]:
    """Compare found patches with the stack, and set the outcome and place of each found patch.

    A found patch is ``equal`` if a patch of the stack with the same name or origin makes the same change. It is a
    ``conflict`` if that patch makes another change to the same file. Any other found patch is new. A new patch goes
    above the nearest preceding found patch that the stack contains. If the stack contains none of the preceding
    patches, the new patch goes below the first found patch that it contains.

    :param whole: True if ``found`` contains all patches of the recipes and folders. Then add a ``gone`` entry for each
        patch of the stack that came from these folders but is not in ``found``.
    """
    names = {patch.name for patch in found if not patch.left_out}
    origins = {patch.origin for patch in found if not patch.left_out and patch.origin}
    earlier = []
    for entry in loaded.entries:
        if entry.name in names or trailer_value(entry.commit.message, "Origin") in origins:
            earlier.append(entry)
    lost = _lost(loaded, found, names) if whole else []
    if not earlier:
        return [*found, *lost]
    upstream, order = loaded.stack.pin.upstream, [entry.name for entry in loaded.entries]
    made = _equal(project, loaded, found, reading, earlier)
    changed = _changed(project, loaded, found, reading, earlier, made)
    either = made | changed
    place = order.index(either[min(either)].name) if either else None
    result = []
    for index, patch in enumerate(found):
        if index in either:
            name = either[index].name
            carried, note = ItemOutcome.EQUAL, f"{patch.where}: the stack already has this patch"
            if index in changed:
                carried, note = ItemOutcome.CONFLICT, f"the patch makes another change than {upstream}/{name}"
            patch = replace(patch, name=name, carried=carried, diff=b"", notes=(note,))
            place = order.index(name) + 1
        result.append(replace(patch, place=place))
    kept = {entry.name for entry in either.values()}
    return [*result, *(patch for patch in lost if patch.name not in kept)]


def _lost(loaded: Loaded, found: Sequence[FoundPatch], names: Collection[str]) -> list[FoundPatch]:
    """Return a ``gone`` entry for each patch of the stack that came from the same folders but was not found this time.

    :param names: names of the found patches.
    """
    upstream = loaded.stack.pin.upstream
    listed = {patch.origin for patch in found}
    folders = {origin.rpartition("/")[0] for origin in listed} - {""}
    lost = []
    for entry in loaded.entries:
        origin = trailer_value(entry.commit.message, "Origin")
        if origin in listed or entry.name in names or origin.rpartition("/")[0] not in folders:
            continue
        where = f"{upstream}/{entry.name}"
        note = f"the import no longer applies {origin}: `patchq drop {upstream}/{sh(entry.name)}` removes the patch"
        lost.append(
            FoundPatch(name=entry.name, where=where, author=None, message="", carried=ItemOutcome.GONE, notes=(note,))
        )
    return lost


def _fitter(project: Project, loaded: Loaded, reading: ReadOptions, before: ReconciledEntry | None) -> Fitter:
    """Return a :class:`Fitter` for the tree below the patch ``before``.

    If ``before`` is None, use the whole stack's tree.
    """
    start = loaded.state.tip
    if before:
        start = before.commit.parents[0] if before.commit.parents else loaded.state.base
    upstream = loaded.stack.pin.upstream
    return Fitter(project.store, upstream, project.lock.nested_in(upstream), start, reading)


def _equal(
    project: Project,
    loaded: Loaded,
    found: Sequence[FoundPatch],
    reading: ReadOptions,
    earlier: Sequence[ReconciledEntry],
) -> dict[int, ReconciledEntry]:
    """Return the stack's patches that make the same change as a found patch, keyed by the index of the found patch.

    The found patches are tried in order, on the tree before the earlier import.
    """
    store = project.store
    base, left = store.tree_of([loaded.state.base])[0], list(earlier)
    fitter = _fitter(project, loaded, reading, earlier[0])
    before = fitter.tree
    made: dict[int, ReconciledEntry] = {}
    for index, (item, after) in enumerate(fitter.fit_all(found)):
        if not item.is_taken:
            continue
        same = next((one for one in left if is_same_change(store, (before, after), one, base)), None)
        if same:
            left.remove(same)
            made[index] = same
        before = after
    return made


def _changed(
    project: Project,
    loaded: Loaded,
    found: Sequence[FoundPatch],
    reading: ReadOptions,
    earlier: Sequence[ReconciledEntry],
    made: dict[int, ReconciledEntry],
) -> dict[int, ReconciledEntry]:
    """Return the stack's patches that have another version in ``found``, keyed by the index of that version.

    Both versions have the same origin or name, and change the same file. A found patch with the same name but another
    origin counts as new if it applies on top of the stack.

    :param made: patches of the stack that equal a found patch (see :func:`_equal`). If the stack's tree stays the same
        with a found patch in the place of the stack's version, that version is added here.
    """
    changed: dict[int, ReconciledEntry] = {}
    for index, patch in enumerate(found):
        if patch.left_out or patch.problem or index in made:
            continue
        for entry in earlier:
            origin = trailer_value(entry.commit.message, "Origin")
            is_same_origin = bool(origin) and origin == patch.origin
            is_taken = entry in made.values() or entry in changed.values()
            if is_taken or not (is_same_origin or entry.name == patch.name):
                continue
            trial = _fitter(project, loaded, reading, entry)
            before, (item, after) = trial.tree, trial.fit(patch)
            if after == entry.commit.tree:
                made[index] = entry
                break
            if not is_same_origin and _fitter(project, loaded, reading, None).fit(patch)[0].is_taken:
                continue
            paths = {conflict.path for conflict in item.conflicts}
            paths |= {show_path(change.path) for change in project.store.changes(before, after)}
            own = project.store.changes(before, entry.commit.tree)
            if not paths.isdisjoint(show_path(change.path) for change in own):
                changed[index] = entry
                break
    return changed
