"""Comparison of an import with the judge: which differences does no message name?"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from patchq.git.repository import Git
from patchq.names import CommitId, TreeId
from patchq.replay.dockerfile import Build, replay_dockerfile
from patchq.replay.outcomes import Account, StepStatus
from patchq.replay.package import Package, Wheel, find_package
from replaying import judge
from replaying.packages import Layout, write, write_repository
from replaying.shapes import Shape


@dataclass
class Compared:
    """Result for one shape and layout.

    :ivar unseen: paths that differ, and that no outcome names.
    :ivar blamed: outcomes that name a line that changes nothing.
    """

    taken: int
    named: int
    unseen: dict[str, str] = field(default_factory=dict)
    blamed: list[Account] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)


def compare(shape: Shape, layout: Layout, folder: Path) -> Compared:
    """Import a shape, run it for real, and compare the package of both."""
    context = folder / "context"
    context.mkdir(parents=True)
    write(context, {name: data if isinstance(data, bytes) else data.encode() for name, data in shape.files.items()})
    (context / "Dockerfile").write_text(shape.dockerfile)
    real = judge.run(shape.dockerfile, context, layout, folder / "root", shape.lines_by_hand())
    commit = CommitId(write_repository(layout, folder / "upstream"))
    store = Git(folder / "upstream" / ".git")
    package = find_package(
        store.list_tree(commit), name="widget", distribution="widget", version="1.0", wheel=Wheel(files=layout.wheel)
    )
    build = Build(data=shape.dockerfile.encode(), where="Dockerfile", context=context)
    base = store.tree_of([commit])[0]
    accounts = replay_dockerfile(store, commit, base, build, package, lambda text: None)
    return _compare(accounts, real, _imported(store, base, accounts, package, layout))


def _imported(store: Git, base: TreeId, accounts: list[Account], package: Package, layout: Layout) -> dict[str, str]:
    """Return the package that the patches give, as the judge lists it."""
    trees = [account.trees for account in accounts if account.status is StepStatus.TAKEN and account.trees]
    # Each patch starts from the tree of the one before it.
    assert all(before[1] == after[0] for before, after in pairwise(trees))
    tree = store.list_tree(trees[-1][1] if trees else base)
    start = store.list_tree(base)
    files = {name: ("100644", data) for name, data in layout.wheel.items()}
    for name in layout.wheel:
        if os.fsencode(package.tree_path(name)) in start and os.fsencode(package.tree_path(name)) not in tree:
            del files[name]
    for path, entry in tree.items():
        name = os.fsdecode(path).removeprefix(f"{package.prefix}/" if package.prefix else "")
        if name.startswith("widget/") and start.get(path) != entry:
            files[name] = entry.mode.decode(), store.read_blobs([entry.blob])[entry.blob]
    return judge.listing_of(files)


def _compare(accounts: list[Account], real: judge.Listing, ours: dict[str, str]) -> Compared:
    named = [account for account in accounts if account.status in (StepStatus.REFUSED, StepStatus.NOT_UNDERSTOOD)]
    lines = {_line(account) for account in named}
    result = Compared(
        taken=len([one for one in accounts if one.status is StepStatus.TAKEN]), named=len(named), accounts=accounts
    )
    for path in sorted(ours.keys() | real.last.keys()):
        if ours.get(path) != real.last.get(path) and not lines & real.lines_that_changed(path):
            result.unseen[path] = f"{ours.get(path)} instead of {real.last.get(path)}"
    changing = {line for path in ours.keys() | real.last.keys() for line in real.lines_that_changed(path)}
    result.blamed = [account for account in named if _line(account) not in changing]
    return result


def _line(account: Account) -> int:
    return int(account.where.rpartition(":")[2])
