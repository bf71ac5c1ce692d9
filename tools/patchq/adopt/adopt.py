"""Command ``import``: collect patches, try each on top of the stack, and write those that apply in one change."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.adopt._branch import Again, import_again, range_start, refuse_conflicts
from patchq.adopt._headers import trailer_value
from patchq.adopt._releases import MOST_DOWNLOADED, search_releases
from patchq.adopt.fit import CARRIED, Fitter, Item, drop_commands, to_take
from patchq.adopt.found import FoundPatch, ItemOutcome, ReadOptions
from patchq.adopt.gather import AdoptRequest, gather
from patchq.editing.update import Revision, insert
from patchq.errors import Conflict, ConflictError, PatchqError, SourceError, UserError
from patchq.formats.header import Header, Ident, clean_message, with_trailer
from patchq.formats.lockedit import rules_for_adopted, rules_to_report, with_check
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, counted
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.replay.outcomes import NotTaken
from patchq.stacks.check import BrokenSource, broken_rules, find_broken_sources
from patchq.stacks.edit import Loaded, load, user_ident, with_trailers
from patchq.stacks.export import Exported, PatchNames, slug, write_stack
from patchq.stacks.reconcile import ReconciledEntry
from patchq.system import project_files
from patchq.system.paths import LOCK_NAME

#: Value of ``--author`` for the user's own git identity.
ME = "me"


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import.

    :ivar exported: change to the stack; empty for a dry run.
    :ivar items: outcome of each patch.
    :ivar tried: True after a dry run.
    :ivar without_author: after a dry run, locations of the patches that need ``--author``.
    """

    exported: Exported
    items: tuple[Item, ...]
    tried: bool = False
    without_author: tuple[str, ...] = ()

    @property
    def again(self) -> bool:
        """True if the stack already contains patches from an earlier import of the same branch or script."""
        return any(i.outcome in CARRIED for i in self.items)

    @property
    def adopted(self) -> int:
        """Number of patches that the import adds or updates (after a dry run: would add or update)."""
        return len(
            [item for item in self.items if item.is_taken or item.outcome in (ItemOutcome.NEW, ItemOutcome.CHANGED)]
        )

    @property
    def left(self) -> list[Item]:
        """Items that could not be adopted. Items that the import skips, such as cover letters, are not included."""
        return [item for item in self.items if item.is_refused]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Options of an import.

    :ivar author: author (``Name <email>`` or :data:`ME`) of patches that name no author.
    :ivar partial: adopt the patches that apply, and leave the others.
    :ivar dry: change nothing and return the outcomes. For each patch that doesn't apply, search for
        releases on which it does.
    :ivar offline: use only data that is available locally.
    :ivar most_download: limit, in bytes, on the downloads of the search for releases (see ``dry``).
    """

    topic: str = ""
    author: str = ""
    signoff: bool = False
    partial: bool = False
    dry: bool = False
    offline: bool = False
    most_download: int = MOST_DOWNLOADED


def import_patches(
    project: Project, upstream: str, request: AdoptRequest, wish: ImportRequest | None = None, *, set_name: str = ""
) -> Imported:
    """Import the patches that ``request`` names, and add them on top of a stack.

    :raises ConflictError: if a patch can't be adopted. With ``wish.partial``, only if no patch can be adopted. The
        stack then stays unchanged.
    :raises UserError: if a source holds no patch, or a patch has no author.
    """
    wish = wish or ImportRequest()
    set_name = project.choose_set(set_name)
    with project.locked("import"):
        stacks = project.stacks(set_name, [upstream])
        loaded = load(project, stacks[0], set_name, offline=wish.offline)
        try:
            done = _import(project, loaded, request, wish)
        except ConflictError as error:
            why, typed = _other_start(project, loaded, request, set_name)
            if not why:
                raise
            raise ConflictError(
                f"{error.message}\n{why}", error.conflicts, hint=f"`{typed}`; or: {error.hint}"
            ) from None
        if not any(item.outcome == ItemOutcome.CONFLICT for item in done.items):
            return done
        why, typed = _other_start(project, loaded, request, set_name)
        notes = (f"{why}: `{typed}`",) if why else ()
        items = []
        for item in done.items:
            items.append(replace(item, notes=(*item.notes, *notes)) if item.outcome == ItemOutcome.CONFLICT else item)
        return replace(done, items=tuple(items))


def _other_start(project: Project, loaded: Loaded, request: AdoptRequest, set_name: str) -> tuple[str, str]:
    """Return a message and the next command if a range doesn't start at the pinned release; else empty strings."""
    if not request.git_range:
        return "", ""
    pin = loaded.stack.pin
    start, typed = range_start(project, loaded, request, set_name)
    return start and f"the range starts {start}, but {pin.upstream} is pinned at {pin.ref}", typed


def _import(project: Project, loaded: Loaded, request: AdoptRequest, wish: ImportRequest) -> Imported:
    """Import patches as :func:`import_patches` does. The caller must hold the project's lock."""
    upstream = loaded.stack.pin.upstream
    found = gather(project, loaded, request)
    if request.git_range and loaded.entries:
        again = import_again(project, loaded, found, request, lambda one: _commit_of(project, one, TreeId(""), wish))
        if again:
            return _update(project, loaded, again, wish)
    fitter = Fitter(project.store, upstream, project.lock.nested_in(upstream), loaded.state.tip, request.reading)
    tried = fitter.fit_all(found, lambda n: project.count(f"import into {upstream}", n, len(found), "patches"))
    items = _with_owners(fitter, loaded.state.tip, found, tried)
    items = _with_syntax(project.store, loaded.state.tip, items, tried)
    if wish.dry:
        return _tried(project, loaded, found, items, request.reading, wish)
    taken, trees = [], []
    for patch, (item, tree) in zip(found, tried, strict=True):
        if item.is_taken:
            taken.append(patch)
            trees.append(tree)
    carried = any(item.outcome in CARRIED for item in items)
    accounts = [patch.account for patch in found if patch.account]
    if not taken and not carried and len(accounts) == len(found):
        raise NotTaken(accounts)
    partial = wish.partial and (bool(taken) or carried)
    _refuse_left(upstream, items, fitter.errors, partial=partial, is_range=bool(request.git_range))
    _ask_for_authors(taken, wish.author)
    notes = _notes(items)
    if not taken:
        return Imported(replace(_unchanged(loaded), notes=notes), items)
    names = PatchNames(loaded.names)
    new = []
    for patch, tree in zip(taken, trees, strict=True):
        new.append(ReconciledEntry(names.take(patch.name), _commit_of(project, patch, tree, wish)))
    entries, moved = _placed(project, loaded, taken, new)
    change = Change(verb="import", summary=f"import {len(taken)} into {upstream}")
    rules = _rules_for(project, upstream, loaded.entries, new, change)
    result = write_stack(project, change, loaded.stack, loaded.state, entries, loaded.head, move=loaded.follows)
    project.journal.perform(change)
    exported = replace(result, notes=(*result.notes, *moved, *rules, *notes))
    return Imported(exported, _named(items, loaded.names))


def _placed(
    project: Project, loaded: Loaded, taken: Sequence[FoundPatch], new: Sequence[ReconciledEntry]
) -> tuple[list[ReconciledEntry], tuple[str, ...]]:
    """Return the stack with each new patch at its ``place``, and notes for the user.

    If that causes a conflict, put all new patches at the end of the stack.

    :param new: entries for the patches in ``taken``, committed on top of the stack.
    """
    at_end = [*loaded.entries, *new]
    if all(patch.place is None for patch in taken):
        return at_end, ()
    store, upstream = project.store, loaded.stack.pin.upstream
    base, on_top = store.tree_of([loaded.state.base, loaded.state.tip])
    revisions = []
    for patch, entry in zip(taken, new, strict=True):
        place = len(loaded.entries) if patch.place is None else patch.place
        before, after = patch.trees or (on_top, entry.commit.tree)
        revisions.append((place, Revision(name=entry.name, before=before, info=replace(entry.commit, tree=after))))
        on_top = entry.commit.tree
    try:
        return insert(store, upstream, base, loaded.entries, revisions), ()
    except ConflictError:
        named = ", ".join(entry.name for entry in new)
        return at_end, (f"{named}: at the end of the stack, because of a conflict at the place of the new patches",)


def _tried(
    project: Project,
    loaded: Loaded,
    found: Sequence[FoundPatch],
    items: Sequence[Item],
    reading: ReadOptions,
    wish: ImportRequest,
) -> Imported:
    """Return the result of a dry run of the import."""
    items = _with_releases(project, loaded, found, items, reading, wish)
    named = _named(items, loaded.names)
    lacking: tuple[str, ...] = ()
    if not wish.author:
        lacking = _without_author(found, items)
    return Imported(_unchanged(loaded), named, True, without_author=lacking)


def _notes(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the notes of all patches, followed by one line for each patch that is not adopted."""
    notes: list[str] = []
    left = []
    for item in items:
        notes += item.notes
        named_by_account = item.account and item.outcome == ItemOutcome.UNREADABLE
        if item.is_refused and not named_by_account:
            left.append(f"{item.where} was left out: {item.detail}")
    return (*notes, *left)


def _unchanged(loaded: Loaded) -> Exported:
    """Return the result of an import that doesn't change the stack."""
    upstream = loaded.stack.pin.upstream
    return Exported(upstream=upstream, written=(), added=(), removed=(), unchanged=len(loaded.entries))


def _update(project: Project, loaded: Loaded, again: Again, wish: ImportRequest) -> Imported:
    """Write a stack in which new versions replace some patches."""
    upstream = loaded.stack.pin.upstream
    if wish.dry:
        return Imported(_unchanged(loaded), (*again.items, *again.lost), True)
    refuse_conflicts(upstream, again, partial=wish.partial)
    change = Change(verb="import", summary=f"import again into {upstream}")
    new = [entry for entry in again.entries if entry.name not in loaded.names]
    rules = _rules_for(project, upstream, loaded.entries, new, change)
    head, follows = loaded.head, loaded.follows
    result = write_stack(project, change, loaded.stack, loaded.state, again.entries, head, move=follows)
    project.journal.perform(change)
    trees = project.store.tree_of([loaded.state.base])
    trees += [entry.commit.tree for entry in again.entries]
    broken = find_broken_sources(project.store, list(itertools.pairwise(trees)))
    notes = [*_notes(again.items)]
    for entry, sources in zip(again.entries, broken, strict=True):
        notes += _syntax_notes(entry.name, sources)
    return Imported(replace(result, notes=(*result.notes, *rules, *notes)), again.items)


def _rules_for(
    project: Project,
    upstream: str,
    before: Sequence[ReconciledEntry],
    adopted: Sequence[ReconciledEntry],
    change: Change,
) -> tuple[str, ...]:
    """Switch off the rules of ``check`` that the adopted patches break, and return notes about the change.

    Keep rules that the project has set itself, and rules that were switched on again. If the stack already has patches,
    change only rules that an earlier import wrote.
    """
    known = project.lock.upstreams[upstream].check
    if before and not known.reason:
        return ()
    broken: set[str] = set()
    for entry in adopted:
        broken |= broken_rules(project, upstream, entry.name, Header(entry.commit.author, entry.commit.message))
    where = f"[upstreams.{upstream}.check] in upstream.lock"
    notes = []
    rules = rules_for_adopted(known, broken)
    if rules:
        data = project_files.read(project.layout.root, project.layout.lock) or b""
        change.files[LOCK_NAME] = with_check(data, upstream, rules)
        now = " now also" if known.reason else ""
        new = [rule for rule in rules.off if rule not in known.off]
        if rules.sign_off != known.sign_off:
            new.append("dco")
        notes.append(f"`patchq check`{now} leaves out {', '.join(new)}: see {where}")
    kept = rules_to_report(rules or known, broken) if known.reason else []
    if kept:
        notes.append(f"the new patches break {', '.join(kept)}, which {where} requires: `patchq check` lists them")
    return tuple(notes)


def _with_releases(
    project: Project,
    loaded: Loaded,
    found: Sequence[FoundPatch],
    items: Sequence[Item],
    reading: ReadOptions,
    wish: ImportRequest,
) -> tuple[Item, ...]:
    """Return all items. If a patch doesn't apply, add the result of the release search to its item."""
    pin, nested = loaded.stack.pin, project.lock.nested_in(loaded.stack.pin.upstream)
    left = []
    for n, (patch, item) in enumerate(zip(found, items, strict=True)):
        if _may_apply_elsewhere(patch, item):
            left.append(n)
    on_pin = set()
    if left and loaded.entries:
        bare = Fitter(project.store, pin.upstream, nested, loaded.state.base, reading)
        for n, (item, _) in enumerate(bare.fit_all(found)):
            if item.is_taken:
                on_pin.add(n)
    result = list(items)
    searched = []
    for n in left:
        if n in on_pin:
            detail = f"{result[n].detail}; it applies on {pin.ref} without the stack's patches"
            result[n] = replace(result[n], detail=detail)
        else:
            searched.append(n)
    patches = [found[n] for n in searched]
    try:
        elsewhere = search_releases(
            project, pin, found, patches, reading, offline=wish.offline, most=wish.most_download
        )
    except SourceError as error:
        project.say(f"no other release was tried: {error.message}")
        return tuple(result)
    for at, where in elsewhere.items():
        result[searched[at]] = replace(result[searched[at]], elsewhere=where)
    return tuple(result)


def _may_apply_elsewhere(patch: FoundPatch, item: Item) -> bool:
    if patch.trees or patch.carried:
        return False
    return item.outcome == ItemOutcome.CONFLICT and not any(c.owner for c in item.conflicts)


def _with_owners(
    fitter: Fitter, start: CommitId, found: Sequence[FoundPatch], tried: Sequence[tuple[Item, TreeId]]
) -> tuple[Item, ...]:
    """Return all items. If an item conflicts with an earlier patch of the import, add that patch's name."""
    items = []
    for index, (patch, (item, _)) in enumerate(zip(found, tried, strict=True)):
        owner = fitter.conflicts_with(patch, start, tried[:index]) if item.outcome == ItemOutcome.CONFLICT else ""
        if owner:
            detail = f"it applies without the patch {owner} of this import, which changes the same lines"
            conflicts = [replace(conflict, owner=owner) for conflict in item.conflicts]
            item = replace(item, detail=detail, conflicts=tuple(conflicts))
        items.append(item)
    return tuple(items)


def _with_syntax(
    store: Git, start: CommitId, items: Sequence[Item], tried: Sequence[tuple[Item, TreeId]]
) -> tuple[Item, ...]:
    """Return all items. If a patch causes a syntax error in a Python file, add a note to its item.

    :param start: commit before the import.
    :param tried: tree after each patch.
    """
    taken = []
    trees = store.tree_of([start])
    for n, (item, tree) in enumerate(tried):
        if item.is_taken:
            taken.append(n)
            trees.append(tree)
    broken = find_broken_sources(store, list(itertools.pairwise(trees)))
    found = list(items)
    for n, sources in zip(taken, broken, strict=True):
        found[n] = replace(items[n], notes=(*items[n].notes, *_syntax_notes(items[n].where, sources)))
    return tuple(found)


def _syntax_notes(where: str, sources: Sequence[BrokenSource]) -> list[str]:
    return [f"{where} leaves a syntax error: {source}" for source in sources]


def _named(items: Sequence[Item], taken: Sequence[str]) -> tuple[Item, ...]:
    """Return the items with the names that the patches receive in the stack."""
    names = PatchNames(taken)
    found: list[Item] = []
    for item in items:
        if item.is_taken:
            found.append(replace(item, name=names.take(item.name)))
        else:
            found.append(item)
    return tuple(found)


def _refuse_left(
    upstream: str, items: Sequence[Item], errors: Sequence[PatchqError], *, partial: bool, is_range: bool
) -> None:
    """Check that each patch is adopted.

    :param partial: accept patches that are not adopted.
    :param is_range: True if the patches are commits of a range.
    :raises PatchqError: if a patch is not adopted.
    """
    left = [item for item in items if item.is_refused]
    if not left or partial:
        return
    taken = len([item for item in items if item.is_taken])
    accounts, lines = [], []
    conflicts: list[Conflict] = []
    for item in left:
        if item.account and item.outcome == ItemOutcome.UNREADABLE:
            accounts.append(item.account)
        if item.is_changed_step:
            lines.append(f"{item.where}: {item.detail}")
        else:
            lines.append(f"{item.where} {_verdict(item, upstream)}: {item.detail}")
        conflicts += item.conflicts
    if len(accounts) == len(left):
        raise NotTaken(accounts, taken)
    if len(left) == 1 == len(errors) and not isinstance(errors[0], ConflictError):
        raise errors[0]
    more = ""
    if taken:
        more = f"; {counted(taken, 'other patch')} would apply"
    changed = [item.name for item in items if item.is_changed_step]
    gone = []
    for item in items:
        if item.outcome == ItemOutcome.GONE:
            gone.append(item.name)
            lines.append(f"{item.where} is gone: {item.detail}")
    hint = _hint(upstream, items, changed, gone, taken=taken, is_range=is_range)
    raise ConflictError("\n".join(lines) + f"\nnothing was adopted{more}", conflicts, hint=hint)


def _hint(
    upstream: str, items: Sequence[Item], changed: Sequence[str], gone: Sequence[str], *, taken: int, is_range: bool
) -> str:
    """Return the hint for an import that adopts nothing.

    :param changed: patches whose script step or patch file now makes another change.
    :param gone: patches that the import no longer makes.
    :param taken: number of patches that would be adopted.
    """
    hint = "--partial adopts the patches that apply; " if taken else ""
    if changed:
        hint = to_take(upstream, changed, gone)
        if taken or any(item.outcome in CARRIED for item in items):
            hint += "; --partial keeps the patch as it is and adopts the others"
    elif gone:
        hint += f"the new steps may replace {', '.join(gone)}: `{drop_commands(upstream, gone)}`, then import again"
    elif is_range:
        hint += "--dry-run shows the result for each commit"
    else:
        hint += (
            "--dry-run shows the result for each patch; patchq never applies with fuzz: make the patch again on the "
            "pinned release, or merge the branch that it comes from with "
            f"`patchq import {upstream} REPOSITORY --range A..B`"
        )
    return hint


def _verdict(item: Item, upstream: str) -> str:
    return {ItemOutcome.THERE: f"is in {upstream} already", ItemOutcome.UNREADABLE: "can't be imported"}.get(
        item.outcome, f"doesn't apply exactly to {upstream}"
    )


def _without_author(found: Sequence[FoundPatch], items: Sequence[Item]) -> tuple[str, ...]:
    """Return the locations of patches that would be adopted but name no author."""
    lacking = []
    for patch, item in zip(found, items, strict=True):
        if item.is_taken and patch.author is None:
            lacking.append(patch.where)
    return tuple(lacking)


def _ask_for_authors(taken: Sequence[FoundPatch], author: str) -> None:
    """Check that each patch has an author.

    :raises UserError: if a patch has no author and ``author`` is empty.
    """
    lacking = [patch for patch in taken if patch.author is None]
    if not lacking or author:
        return
    first, *others = lacking
    more = f" (and {len(others)} more)" if others else ""
    hint = "--author 'NAME <EMAIL>' sets the author of such patches; --author me names you"
    signed = trailer_value(first.message, "Signed-off-by")
    if signed:
        hint += f"; the patch is signed off by {signed}"
    raise UserError(f"{first.where} names no author{more}; nothing was adopted", hint=hint)


def _commit_of(project: Project, patch: FoundPatch, tree: TreeId, wish: ImportRequest) -> CommitInfo:
    author = patch.author or _author(project, patch, wish.author)
    signer = None
    if wish.signoff:
        signer = user_ident(project, "" if wish.author == ME else wish.author)
    text = _describe(patch)
    if patch.origin and not trailer_value(text, "Origin"):
        text = with_trailer(text, "Origin", patch.origin)
    topic = wish.topic or (slug(patch.topic) if patch.topic else "")
    text = with_trailers(text, topic, "", signer)
    return CommitInfo(commit=CommitId(""), tree=tree, parents=(), author=author, message=text)


def _author(project: Project, patch: FoundPatch, author: str) -> Ident:
    found = user_ident(project, "" if author == ME else author)
    if patch.date:
        when, _, zone = patch.date.removeprefix("@").partition(" ")
        return replace(found, when=int(when), zone=zone)
    return found


def _describe(patch: FoundPatch) -> str:
    return clean_message(patch.message) or patch.name.replace("-", " ").capitalize()
