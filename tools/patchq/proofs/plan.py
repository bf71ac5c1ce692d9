"""Cells to run. A cell is one run of a proof on one variant of the stacks. Its key is a hash of all inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from patchq.environment.machine import Machine
from patchq.errors import UserError
from patchq.formats.header import NEEDS
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.objects import CommitInfo
from patchq.git.replay import leave_out
from patchq.names import CommitId, TreeId
from patchq.project.project import Project
from patchq.project.stack import Stack, find_patch
from patchq.stacks.apply import carried_stacks
from patchq.system import project_files

#: Format version of stored results and their keys.
RESULT_VERSION = 1
WITH, WITHOUT, MUTANT = "with", "without", "mutant"


@dataclass(frozen=True, slots=True)
class Proof:
    """Tests that prove one patch.

    :ivar required: False if the rules for ``patchq check`` don't require proofs.
    :ivar on: requirement in the ``Proof-On:`` trailer of an additional proof; empty for the patch's first
        proof.
    """

    upstream: str
    ref: str
    patch: str
    files: tuple[str, ...]
    needs: tuple[str, ...]
    on: str = ""
    required: bool = True

    @property
    def name(self) -> str:
        return f"{self.upstream}/{self.patch}"

    @property
    def title(self) -> str:
        """Name of the proof for display. Each proof of a patch has a different name."""
        if self.on:
            return f"{self.name} on {self.on}"
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Trees for one run of a proof.

    :ivar tips: commit whose tree is used, by upstream.
    :ivar left_out: patches that are not in the trees.
    :ivar change: upstream, path and new content of the file that a mutant changes; None for other variants.
    """

    kind: str
    tips: Mapping[str, CommitId]
    trees: Mapping[str, TreeId]
    left_out: tuple[str, ...] = ()
    change: tuple[str, str, bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCell:
    """Run of a proof on a variant of the stacks.

    :ivar timeout: time limit in seconds; None for no limit.
    """

    proof: Proof
    variant: Variant
    key: str
    set_name: str
    timeout: float | None = None


@dataclass(slots=True)
class _CarriedSet:
    """Stacks of a set as commits. Patches are named ``upstream/name``.

    :ivar bases: base commits by upstream.
    :ivar commits: each patch with its commit, oldest first, by upstream.
    :ivar requires: patches that are named in a patch's ``Requires:`` trailers, by patch.
    """

    bases: dict[str, CommitId] = field(default_factory=dict)
    commits: dict[str, list[tuple[str, CommitInfo]]] = field(default_factory=dict)
    requires: dict[str, set[str]] = field(default_factory=dict)


class WholeSet:
    """Stacks of a set as they are in the project's files. Variants are derived in memory.

    The constructor reads the stacks. The patches are applied when a variant is first requested.
    """

    def __init__(self, project: Project, set_name: str) -> None:
        self.project, self.set_name, self.store = project, set_name, project.store
        self.stacks = project.stacks(set_name)

    @cached_property
    def _carried(self) -> _CarriedSet:
        found = _CarriedSet()
        for carried in carried_stacks(self.project, self.stacks, self.set_name):
            upstream = carried.stack.pin.upstream
            found.commits[upstream] = [(f"{upstream}/{name}", info) for name, info in carried.commits]
            found.bases[upstream] = carried.base
            for name, header in carried.stack.headers():
                found.requires[f"{upstream}/{name}"] = set(header.values("Requires"))
        return found

    @cached_property
    def variant(self) -> Variant:
        """Variant with all patches."""
        bases = self._carried.bases
        tips = {}
        for u, c in self._carried.commits.items():
            tips[u] = c[-1][1].commit if c else bases[u]
        return self._with_tips(WITH, tips)

    def _with_tips(self, kind: str, tips: Mapping[str, CommitId], left_out: tuple[str, ...] = ()) -> Variant:
        names = sorted(tips)
        trees = self.store.tree_of([tips[n] for n in names])
        return Variant(kind=kind, tips=dict(tips), trees=dict(zip(names, trees, strict=True)), left_out=left_out)

    def at(self, kind: str, upstream: str, tip: CommitId, left_out: tuple[str, ...] = ()) -> Variant:
        """Return the variant in which one upstream is at the commit ``tip``, which need not belong to a stack."""
        return self._with_tips(kind, {**self.variant.tips, upstream: tip}, left_out)

    def patch(self, name: str) -> tuple[CommitId, list[bytes]]:
        """Return the commit of a patch (``upstream/name``) and the paths that it changes."""
        upstream = name.partition("/")[0]
        info = dict(self._carried.commits[upstream])[name]
        [changes] = self.store.changes_of([info.commit])
        return info.commit, [c.path for c in changes]

    def base(self, upstream: str) -> CommitId:
        """Return the base commit of an upstream's stack."""
        return self._carried.bases[upstream]

    def mutants(self, upstream: str, changes: Sequence[tuple[str, bytes]]) -> list[Variant]:
        """Return one variant for each change.

        :param changes: path of the upstream's file that is replaced, and its new content.
        """
        if not changes:
            return []
        tip, ref = self.variant.tips[upstream], b"refs/patchq/scratch/mutants"
        [info] = self.store.log("--no-walk", tip)
        paths = sorted({os.fsencode(path) for path, _ in changes})
        entries = self.store.list_tree(tip, paths)
        with import_commits(self.store, ref) as (out, ids):
            for number, (name, content) in enumerate(changes, 1):
                path = os.fsencode(name)
                out.write(commit_start(ref, number, info.author, "A mutant\n", tip.encode()))
                out.write(b"M %s inline %s\ndata %d\n" % (entries[path].mode, quote_path(path), len(content)))
                out.write(content + b"\n")
        tips = [ids[number] for number in range(1, len(changes) + 1)]
        here = self.variant
        found = []
        for tip, tree, change in zip(tips, self.store.tree_of(tips), changes, strict=True):
            found.append(
                Variant(
                    kind=MUTANT,
                    tips={**here.tips, upstream: tip},
                    trees={**here.trees, upstream: tree},
                    left_out=(),
                    change=(upstream, *change),
                )
            )
        return found

    def bare(self) -> Variant:
        """Return the variant without any patches."""
        every: list[str] = []
        for commits in self._carried.commits.values():
            every += dict(commits)
        return self._with_tips("bare", self._carried.bases, tuple(every))

    def bare_at(self, upstream: str, tip: CommitId) -> Variant:
        """Return the variant without any patches, in which ``tip`` replaces the base of one upstream."""
        return self._with_tips("bare", {**self._carried.bases, upstream: tip})

    def without(self, name: str) -> Variant:
        """Return the variant without a patch and without the patches that depend on it.

        Patch B depends on patch A if B requires A, directly or indirectly, or if B doesn't apply without A.
        """
        bases = self._carried.bases
        gone = {name}
        while more := {n for n, needed in self._carried.requires.items() if needed & gone} - gone:
            gone |= more
        tips = dict(self.variant.tips)
        for upstream, commits in self._carried.commits.items():
            if not any(n in gone for n, _ in commits):
                continue
            kept = leave_out(self.store, upstream, bases[upstream], commits, gone, lambda other, _: gone.add(other))
            if kept:
                tips[upstream] = kept[-1].commit
            else:
                tips[upstream] = bases[upstream]
        return self._with_tips(WITHOUT, tips, tuple(sorted(gone)))


@contextmanager
def planning(project: Project, set_name: str) -> Iterator[WholeSet]:
    """Yield a set while the project is locked, so that the project's files don't change."""
    with project.locked("test"):
        yield WholeSet(project, set_name)


def plan_cells(
    project: Project, patches: Sequence[str], set_name: str, prove: bool, machine: Machine
) -> tuple[list[Proof], list[ProofCell]]:
    """Return the proofs of a set's patches, and the cells to run.

    :param patches: names of patches; all if empty.
    :param prove: True to add a cell without the patch for each proof.
    :raises UserError: for a patch that isn't in the set.
    """
    with planning(project, set_name) as whole:
        here = whole.variant
        proofs = []
        for proof in proofs_of(whole.stacks, patches):
            rules = project.lock.upstreams[proof.upstream].check
            proofs.append(replace(proof, required="proof" not in {*rules.off, *rules.warn}))
        cells: list[ProofCell] = []
        for proof in proofs:
            variants = [here] + ([whole.without(proof.name)] if prove and proof.files else [])
            for v in variants:
                cells.append(
                    ProofCell(proof=proof, variant=v, key=result_key(project, proof, v, machine), set_name=set_name)
                )
        return proofs, cells


def proofs_of(stacks: list[Stack], patches: Sequence[str] = ()) -> list[Proof]:
    """Return the proofs of patches in the order of the stacks.

    The first proof of a patch precedes its additional proofs.

    :param patches: names of patches; all if empty.
    :raises UserError: for a patch that isn't in the stacks, or an invalid ``Proof-On:``.
    """
    chosen = set()
    for patch in patches:
        stack, name = find_patch(stacks, patch)
        chosen.add((stack.pin.upstream, name))
    found = []
    for stack in stacks:
        for name, header in stack.headers():
            if patches and (stack.pin.upstream, name) not in chosen:
                continue
            of = (stack.pin.upstream, stack.pin.ref, name)
            found.append(Proof(*of, header.values("Proof"), header.needs))
            # One proof per requirement, so that a machine that lacks one requirement still runs the other proofs.
            by_need: dict[str, list[str]] = {}
            for need, path in header.proofs_on:
                if need not in NEEDS or PurePosixPath(path).parts[:2] != ("tests", "stacks") or ".." in path.split("/"):
                    message = f"{stack.pin.upstream}/{name}: Proof-On: {need} {path}".rstrip()
                    raise UserError(f"{message} names no proof", hint="patchq check")
                by_need.setdefault(need, []).append(path)
            for need, paths in by_need.items():
                found.append(Proof(*of, tuple(paths), (*header.needs, need), need))
    return found


def variant_of(project: Project, cell: ProofCell) -> Variant:
    """Create a cell's variant in this project's store.

    This is needed on another machine, where the store doesn't contain the commits of ``cell.variant``.
    """
    with planning(project, cell.set_name) as whole:
        if cell.variant.change:
            upstream, path, content = cell.variant.change
            return whole.mutants(upstream, [(path, content)])[0]
        if cell.variant.kind == WITH:
            return whole.variant
        return whole.without(cell.proof.name)


def result_key(project: Project, proof: Proof, variant: Variant, machine: Machine) -> str:
    """Return the key of a result: a hash of the trees, the proof's inputs and the machine."""
    root = project.layout.root
    files = sorted({f.split("::")[0] for f in proof.files})
    digest = hashlib.sha256()
    for path in proof_inputs(project, files):
        data = project_files.read(root, path) or b""
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + data + b"\0")
    body = [RESULT_VERSION, dict(sorted(variant.trees.items())), proof.files, digest.hexdigest(), machine.facts()]
    body += [proof.needs] if proof.on else []  # the first proof may have the same files
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def proof_inputs(project: Project, files: Sequence[str]) -> list[Path]:
    """Return the files on which a proof's result can depend.

    These are the proof's own files, and the other files in their folder and its parent folders, up to the
    upstream's folder. Files of other tests (``test_*``) are left out. ``conftest.py`` is included from all parent
    folders, up to the project's root.
    """
    root = project.layout.root
    found: set[Path] = set()
    for file in files:
        path = root / file
        for folder in path.parents:
            if folder == path.parent or (root / "tests" / "stacks") in folder.parents:
                for p in folder.glob("*"):
                    if p == path or not p.name.startswith("test_"):
                        found.add(p)
            if root in (folder, *folder.parents):
                found.add(folder / "conftest.py")
    # Links and pipes are included, so that they are refused when they are read.
    inputs: list[Path] = []
    for p in found:
        if os.path.lexists(p) and not p.is_dir():
            inputs.append(p)
    return sorted(inputs)
