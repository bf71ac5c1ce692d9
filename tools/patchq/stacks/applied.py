"""Applied stacks of a set, and the stack id that all wheels of the set contain."""

from __future__ import annotations

from collections.abc import Sequence

from patchq.errors import UserError
from patchq.formats.lock import BuildConfig, Pin
from patchq.formats.manifest import stack_id
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.stack import Stack, State
from patchq.records import dataclass
from patchq.sources.pins import is_local_archive
from patchq.stacks.apply import current
from patchq.system import project_files

#: Version of a tree's wheels if the tree states no version.
NO_VERSION = "0.0.0"


@dataclass(frozen=True, slots=True)
class Applied:
    """Applied stack of one upstream.

    :ivar build: build settings; None if no wheel is built for the upstream.
    """

    stack: Stack
    state: State
    build: BuildConfig | None

    @property
    def release(self) -> str:
        """Version of the pinned release on the package index; empty if the pin's ref is not a release."""
        pin = self.stack.pin
        if pin.archive and not is_local_archive(pin.archive) and not pin.subdir:
            return release_version(pin)
        return ""


def read_applied(project: Project, set_name: str, *, edits_matter: bool = True) -> list[Applied]:
    """Return the applied state of each upstream of a set.

    :param edits_matter: refuse worktrees that contain edits.
    :raises UserError: if the state of an applied stack doesn't match its files.
    """
    found = []
    for stack in project.stacks(set_name):
        upstream = stack.pin.upstream
        _, state = current(project, upstream)
        if edits_matter:
            project.worktree(upstream).refuse_edits(state.tip)
        is_current = state.ref == stack.pin.ref and state.names == stack.names[: len(state.names)]
        for p in state.patches:
            path = stack.path(p.applied.name)
            if path.exists() and project_files.hash_file(stack.root, path) != p.sha256:
                is_current = False
        if not is_current:
            set_option = project.set_option(set_name)
            raise UserError(
                f"{upstream} is not applied, or its stack has changed since", hint=f"`patchq apply{set_option}` first"
            )
        found.append(Applied(stack, state, project.lock.upstreams[upstream].build))
    return found


def patched_upstreams(project: Project, applied: Sequence[Applied]) -> set[str]:
    """Return the upstreams whose trees the applied patches change.

    If a nested upstream is patched, also return the upstream that contains it.
    """
    found = set()
    for a in applied:
        if all(p.applied.empty for p in a.state.patches):
            continue
        upstream = project.lock.upstreams[a.stack.pin.upstream]
        found.add(upstream.name)
        if upstream.into:
            found.add(upstream.into[0])
    return found


def compute_stack_id(applied: Sequence[Applied]) -> str:
    """Return the stack id: a hash of a set's pins and applied patches.

    All wheels of a set have the same id, because each wheel requires exact versions of the others.
    """
    rows: list[list[object]] = []
    for a in applied:
        pin = a.stack.pin
        patches = [[p.applied.name, p.sha256] for p in a.state.patches]
        rows.append([pin.upstream, pin.ref, pin.commit, pin.sha256, pin.subdir, patches])
    return stack_id(rows)


def applied_stack_id(project: Project, set_name: str = "") -> str:
    """Return the stack id of the applied set; empty if a stack isn't applied or its state is outdated."""
    try:
        return compute_stack_id(read_applied(project, project.choose_set(set_name), edits_matter=False))
    except UserError:
        return ""


def release_version(pin: Pin) -> str:
    """Return the version in a pin's archive or ref; empty if the ref is a branch or commit."""
    from packaging.version import InvalidVersion, Version

    if pin.archive and not is_local_archive(pin.archive):
        text = pin.archive.partition("==")[2]
    else:
        text = pin.ref
    try:
        return Version(text.removeprefix("release/")).public
    except InvalidVersion:
        return ""


def version_at(project: Project, pin: Pin, base: CommitId) -> str:
    """Return the version for the wheels of a pin.

    For a branch or commit, return the version that the tree's files contain, or :data:`NO_VERSION` if they contain
    none. The stack id in the local version distinguishes wheels of the same version.
    """
    from patchq.sources.versions import version_of_tree

    return release_version(pin) or version_of_tree(project.store, base) or NO_VERSION
