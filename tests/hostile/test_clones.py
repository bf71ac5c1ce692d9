"""A project that somebody else made: its git configuration, hooks, links, special files and odd names."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Case, World
from kit import git

#: What anybody does first with a clone.
LOOK = ("status", "list", "show first --diff", "check --text", "diff HEAD")
WORK = ("apply", "export up", "drop third", "undo")
HAND_ON = ("report --html {out}/r.html", "bundle {out}/b")

#: Settings of git's that name a program, or a file by which one is named.
SETTINGS = {
    "core.fsmonitor": "{trap}", "core.hooksPath": "{programs}", "core.sshCommand": "{trap}", "core.askPass": "{trap}",
    "core.pager": "{trap}", "core.editor": "{trap}", "sequence.editor": "{trap}", "core.gitProxy": "{trap}",
    "core.alternateRefsCommand": "{trap}", "core.attributesFile": "{outside}/secret.txt",
    "core.excludesFile": "{outside}/secret.txt", "core.worktree": "{outside}", "commit.template": "{outside}/secret.txt",
    "diff.external": "{trap}", "diff.x.command": "{trap}", "diff.x.textconv": "{trap}", "merge.x.driver": "{trap} %A",
    "filter.x.clean": "{trap}", "filter.x.smudge": "{trap}", "filter.x.process": "{trap}", "interactive.diffFilter": "{trap}",
    "gpg.program": "{trap}", "gpg.ssh.program": "{trap}", "gpg.ssh.defaultKeyCommand": "{trap}", "credential.helper": "!{trap}",
    "remote.origin.uploadpack": "{trap}", "remote.origin.vcs": "ext", "remote.origin.url": "ext::{trap}",
    "uploadpack.packObjectsHook": "{trap}", "alias.status": "!{trap}", "include.path": "{inputs}/evil.config",
    "includeIf.gitdir:/.path": "{inputs}/evil.config", "url.ext::{trap}.insteadOf": "/", "init.templateDir": "{inputs}/template",
    "trailer.x.command": "{trap}", "pager.log": "{trap}", "pager.diff": "{trap}", "man.viewer": "{trap}",
    "submodule.x.update": "!{trap}", "log.showSignature": "true", "core.untrackedCache": "true",
}  # fmt: skip


def word(world: World, text: str) -> str:
    return text.replace("{trap}", str(world.trap)).format(**world.places)


def configure(where: str, settings: dict[str, str]) -> Callable[[World], None]:
    """Set git's settings in one of a project's repositories, and attributes by which they would count."""

    def make(world: World) -> None:
        repository = {"project": world.project / ".git", "store": world.store, "upstream": world.upstream / ".git"}[
            where
        ]
        world.write(world.inputs / "evil.config", f"[core]\n\tfsmonitor = {world.trap}\n\tpager = {world.trap}\n")
        world.write(world.inputs / "template" / "hooks" / "post-checkout", world.trap.read_text(), 0o755)
        for key, value in settings.items():
            git(world.root, "config", "--file", str(repository / "config"), word(world, key), word(world, value))
        if where == "upstream":
            world.write(repository / "info" / "attributes", "* diff=x filter=x merge=x\n")
        else:
            world.write(world.project / ".gitattributes", "* diff=x filter=x merge=x text=auto\n")

    return make


HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit",
    "pre-rebase", "post-checkout", "post-merge", "post-rewrite", "pre-auto-gc", "reference-transaction", "fsmonitor-watchman",
    "post-index-change", "sendemail-validate", "pre-merge-commit", "update", "pre-receive", "proc-receive",
)  # fmt: skip


def hooks(where: str) -> Callable[[World], None]:
    """Give a repository all hooks but those of a push, which are the person's own."""

    def make(world: World) -> None:
        repository = {"project": world.project / ".git", "store": world.store, "upstream": world.upstream / ".git"}[
            where
        ]
        for name in HOOKS:
            world.write(repository / "hooks" / name, world.trap.read_text(), 0o755)

    return make


def put(place: str, what: Callable[[World, Path], None]) -> Callable[[World], None]:
    """Put something else in the place of a file or folder."""

    def make(world: World) -> None:
        path = Path(place.format(**world.places, private=world.private, stack=world.stack))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        what(world, path)

    return make


def link_to_secret(world: World, path: Path) -> None:
    path.symlink_to(world.secret)


def link_to_folder(world: World, path: Path) -> None:
    path.symlink_to(world.outside / "folder")


def pipe(_: World, path: Path) -> None:
    os.mkfifo(path)


def endless(_: World, path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(_: World, path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.fchdir(here)
    os.close(here)


def loop(_: World, path: Path) -> None:
    path.symlink_to(path.name)


#: Files that patchq reads or writes, and the verbs that do it.
FILES = {
    "{project}/upstream.lock": ("status", "check --text", "pin up --ref v2"),
    "{stack}/series": ("status", "list", "drop third", "bundle {out}/b"),
    "{stack}/first.patch": ("list", "show first --diff", "check --text", "bundle {out}/b", "reword first --trailer 'Topic: x'"),
    "{project}/patches/up/ledger.jsonl": ("ledger", "report --html {out}/r.html", "bundle {out}/b", "drop third --why x"),
    "{project}/patches/up/reports/first.toml": ("issue first --no-run --onto v1", "bundle {out}/b"),
    "{project}/patches/up/upstream-tests/test_x.py": ("pr first --no-proof --no-gates --onto v1", "bundle {out}/b"),
    "{project}/patches/up/contribute/CONTRIBUTING.md": ("pr first --no-proof --no-gates --onto v1", "bundle {out}/b"),
    "{project}/patches/up/rr-cache/0123456789012345678901234567890123456789/preimage": (
        "rebase up --onto v2", "conflict up", "rebase --abort", "bundle {out}/b",
    ),
    "{project}/kernels/up.toml": ("build up --kernels sm_121f --offline", "bundle {out}/b"),
    "{project}/measurements/ledger.jsonl": ("bench show", "report --html {out}/r.html", "bundle {out}/b"),
    "{project}/measurements/targets.toml": ("bench show", "report --html {out}/r.html"),
    "{project}/tests/stacks/test_first.py": ("reword first --trailer 'Proof: tests/stacks/test_first.py'", "bundle {out}/b", "check --text"),
    "{project}/tests/stacks/conftest.py": ("reword first --trailer 'Proof: tests/stacks/conftest.py'", "bundle {out}/b"),
    "{project}/.gitattributes": ("check --fix --text", "drop third", "diff HEAD"),
    "{project}/.gitignore": ("check --fix --text", "drop third"),
    "{project}/deploy/Dockerfile": ("compose",),
    "{project}/deploy/dev.sh": ("compose",),
    "{private}/state/up.json": ("status", "apply", "export up"),
    "{private}/journal/pending.json": ("apply", "undo --pending"),
    "{private}/rebase/up.json": ("status", "rebase --abort"),
    "{private}/lock": ("apply", "drop third"),
    "{private}/lock.owner": ("apply", "drop third"),
    "{private}/results/last.json": ("report", "report --html {out}/r.html"),
    "{private}/store.git/config": ("status", "apply"),
    "{private}/store.git/HEAD": ("status", "apply"),
    "{private}/store.git/packed-refs": ("status", "fetch"),
    "{private}/trees/up/.git": ("status", "apply", "export up"),
    "{private}/trees/up/b.txt": ("status", "apply", "new up evil -m 'A link\n\nWhy.'"),
    "{project}/.git/config": ("status", "diff HEAD", "list"),
    "{project}/.git/HEAD": ("diff HEAD", "list"),
}  # fmt: skip
FOLDERS = {
    "{project}/patches": ("status", "apply", "bundle {out}/b"),
    "{project}/patches/up": ("status", "drop third"),
    "{stack}": ("status", "apply", "drop third"),
    "{project}/patches/up/v2": ("rebase up --onto v2", "rebase up --skip"),
    "{project}/patches/up/rr-cache": ("rebase up --onto v2", "bundle {out}/b"),
    "{project}/kernels": ("bundle {out}/b",),
    "{project}/measurements": ("bench show", "bundle {out}/b"),
    "{project}/tests": ("reword first --trailer 'Proof: tests/stacks/test_x.py'", "bundle {out}/b"),
    "{project}/tests/stacks": ("bundle {out}/b", "check --text"),
    "{project}/deploy": ("compose",),
    "{project}/dist": ("compose", "verify-installed"),
    "{private}": ("status", "apply"),
    "{private}/store.git": ("status", "apply"),
    "{private}/store.git/objects": ("status", "apply"),
    "{private}/trees": ("status", "apply"),
    "{private}/trees/up": ("status", "apply", "export up"),
    "{private}/trees/up/pkg": ("status", "apply", "new up evil -m 'A link\n\nWhy.'"),
    "{private}/state": ("status", "apply"),
    "{private}/journal": ("apply", "drop third", "undo"),
    "{private}/journal/objects": ("drop third", "undo"),
    "{private}/rebase": ("rebase up --onto v2", "rebase --abort"),
    "{private}/pr": ("pr first --no-proof --no-gates --onto v1",),
    "{private}/issue": ("issue first --no-run --onto v1",),
    "{private}/wheels": ("status", "build --offline"),
    "{private}/check": ("check",),
    "{private}/history": ("forecast up --onto v2", "fetch --history"),
    "{project}/.git": ("status", "diff HEAD"),
}  # fmt: skip


def tracked_private(world: World) -> None:
    git(world.project, "add", "-f", ".patchq/state")
    git(world.project, "commit", "-qm", "All of it")


def submodule(world: World) -> None:
    world.write(
        world.project / ".gitmodules",
        f'[submodule "x"]\n\tpath = x\n\turl = ext::{world.trap}\n\tupdate = !{world.trap}\n[submodule "../../evil"]\n\tpath = -x\n\turl = --upload-pack={world.trap}\n',
    )
    commit = git(world.project, "rev-parse", "HEAD")
    git(world.project, "update-index", "--add", "--cacheinfo", f"160000,{commit},x")
    git(world.project, "commit", "-qm", "A submodule")


def nested_repository(world: World) -> None:
    inner = world.tree / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "--template=")
    git(inner, "config", "core.fsmonitor", str(world.trap))
    world.write(inner / ".gitattributes", "* filter=x\n")
    git(inner, "config", "filter.x.clean", str(world.trap))
    world.write(inner / "x", "x\n")


def attributes_in_tree(world: World) -> None:
    world.write(world.tree / ".gitattributes", "* filter=x diff=x merge=x ident working-tree-encoding=UTF-16\n")
    for key in ("filter.x.clean", "filter.x.smudge", "diff.x.textconv", "diff.x.command", "merge.x.driver"):
        git(world.root, "config", "--file", str(world.home / ".gitconfig"), key, str(world.trap))


def alternates(of: str, file: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        git(world.outside, "init", "-q", "--template=", "repository")
        git(world.outside / "repository", "config", "core.fsmonitor", str(world.trap))
        objects = {"project": world.project / ".git" / "objects", "store": world.store / "objects"}[of]
        lines = {"alternates": f"{world.outside}/repository/.git/objects\n", "http-alternates": "http://127.0.0.1:9/\n"}
        world.write(objects / "info" / file, lines[file])

    return make


def huge(place: str, size: int) -> Callable[[World], None]:
    """A file of a size that only its table has: it takes no disk."""

    def what(_: World, path: Path) -> None:
        with open(path, "wb") as file:
            file.truncate(size)

    return put(place, what)


def full_of(place: str, line: bytes, times: int) -> Callable[[World], None]:
    return put(place, lambda _, path: path.write_bytes(line * times) and None)


def named(*names: bytes) -> Callable[[World], None]:
    """Files with odd names in each folder that is listed."""

    def make(world: World) -> None:
        folders = (world.stack, world.project / "patches", world.project / "patches" / "up", world.tree, world.project)
        for folder in (*folders, world.private / "state", world.private / "journal"):
            for name in names:
                (folder / os.fsdecode(name)).write_text("evil\n")

    return make


def folders_named(*names: bytes) -> Callable[[World], None]:
    def make(world: World) -> None:
        for folder in (world.project / "patches", world.project / "patches" / "up", world.private / "trees"):
            for name in names:
                shutil.copytree(world.stack, folder / os.fsdecode(name))

    return make


def case_twins(world: World) -> None:
    for name in ("FIRST.patch", "First.patch"):
        shutil.copy(world.stack / "first.patch", world.stack / name)
    world.append("FIRST.patch\nFirst.patch\n", world.stack / "series")


def accent_twins(world: World) -> None:
    for name in ("caf\u00e9", "cafe\u0301"):
        shutil.copy(world.stack / "first.patch", world.stack / f"{name}.patch")
        world.append(f"{name}.patch\n", world.stack / "series")


def deep_folder(world: World) -> None:
    place = world.project / "tests" / "stacks"
    place.mkdir(parents=True, exist_ok=True)
    here = os.open(".", os.O_RDONLY)
    os.chdir(place)
    for _ in range(300):
        Path("d" * 20).mkdir()
        os.chdir("d" * 20)
    os.fchdir(here)
    os.close(here)


def gitdir_elsewhere(world: World) -> None:
    """The project's `.git` is a file that leads to a repository which names programs."""
    shutil.move(world.project / ".git", world.inputs / "repository")
    git(world.root, "config", "--file", str(world.inputs / "repository" / "config"), "core.fsmonitor", str(world.trap))
    (world.project / ".git").write_text(f"gitdir: {world.inputs / 'repository'}\n")


def worktree_settings(world: World) -> None:
    git(world.root, "config", "--file", str(world.store / "config"), "extensions.worktreeConfig", "true")
    world.write(world.store / "worktrees" / "up" / "config.worktree", f"[core]\n\tfsmonitor = {world.trap}\n")


def project_worktree_settings(world: World) -> None:
    git(world.root, "config", "--file", str(world.project / ".git" / "config"), "extensions.worktreeConfig", "true")
    world.write(world.project / ".git" / "config.worktree", f"[core]\n\tfsmonitor = {world.trap}\n")


def bare_inside(world: World) -> None:
    """A bare repository among the tracked files: whoever runs git in that folder takes its settings."""
    for folder in (world.project / "patches", world.project / "patches" / "up", world.stack):
        git(world.root, "init", "-q", "--bare", "--template=", str(folder))
        git(world.root, "config", "--file", str(folder / "config"), "core.fsmonitor", str(world.trap))


def replaced_objects(world: World) -> None:
    tip = git(world.store, "rev-parse", "refs/heads/up")
    base = git(world.store, "rev-list", "--max-parents=0", "refs/heads/up")
    git(world.store, "update-ref", f"refs/replace/{tip}", base)
    world.write(world.store / "info" / "grafts", f"{tip}\n")


def python_beside(world: World) -> None:
    """Modules with the names of what patchq and its children import, in every folder a command may start in."""
    for folder in (world.project, world.stack, world.tree, world.private, world.project / "tests" / "stacks"):
        for name in (
            "json",
            "tarfile",
            "sitecustomize",
            "usercustomize",
            "click",
            "patchq",
            "pip",
            "zipfile",
            "tomllib",
        ):
            world.write(folder / f"{name}.py", world.mark_code(name))
        world.write(folder / "conftest.py", world.mark_code("conftest"))
        world.write(folder / "setup.py", world.mark_code("setup"))


def programs_beside(world: World) -> None:
    """Programs with the names of what patchq runs, in every folder a command may start in."""
    for folder in (world.project, world.stack, world.tree, world.private):
        for name in ("git", "python", "python3", "pip", "sh", "tar", "gpg", "ssh", "nvcc", "uv"):
            world.write(folder / name, world.trap.read_text(), 0o755)


CASES = [
    *(Case(name=f"project sets {key}", make=configure("project", {key: value}), verbs=("status", "check --text", "diff HEAD"))
      for key, value in SETTINGS.items()),
    Case(name="project sets all", make=configure("project", {k: v for k, v in SETTINGS.items() if k != "core.worktree"}),
         verbs=("doctor", *LOOK, *WORK, *HAND_ON, "compose", "forecast up --onto v2")),
    *(Case(name=f"store sets {key}", make=configure("store", {key: value}), verbs=("apply",))
      for key, value in [*SETTINGS.items()][::3]),
    *(Case(name=f"upstream sets {key}", make=configure("upstream", {key: value}),
           verbs=("pin up --ref v2",))
      for key, value in [*SETTINGS.items()][::2]),
    *(Case(name=f"hooks of {where}", make=hooks(where), verbs=(*LOOK, *WORK, "fetch", "rebase up --onto v2", "rebase --abort"))
      for where in ("project", "store", "upstream")),
    *(Case(name=f"link at {place}", make=put(place, link_to_secret), verbs=verbs,
           opens=frozenset({"secret.txt"}) if "/.git/" in place else frozenset()) for place, verbs in FILES.items()),
    *(Case(name=f"pipe at {place}", make=put(place, pipe), verbs=verbs) for place, verbs in FILES.items()),
    *(Case(name=f"link at {place}", make=put(place, link_to_folder), verbs=verbs) for place, verbs in FOLDERS.items()),
    *(Case(name=f"{what.__name__} at {place}", make=put(place, what), verbs=FILES[place])
      for what in (endless, listening, loop)
      for place in ("{project}/upstream.lock", "{stack}/series", "{stack}/first.patch", "{project}/patches/up/ledger.jsonl")),
    Case(name="tracked .patchq", make=tracked_private, verbs=(*LOOK, *WORK)),
    Case(name="submodules", make=submodule, verbs=(*LOOK, *WORK, "bundle {out}/b")),
    Case(name="repository in the tree", make=nested_repository, verbs=("status", "new up evil -m x", "apply", "export up")),
    Case(name="attributes in the tree", make=attributes_in_tree,
         verbs=("status", "new up evil -m 'Attributes\n\nWhy.'", "apply --to first", "apply", "export up", "diff HEAD")),
    Case(name="alternates of the project", make=alternates("project", "alternates"), verbs=LOOK),
    Case(name="alternates of the store", make=alternates("store", "alternates"), verbs=("status", "apply")),
    Case(name="remote alternates of the store", make=alternates("store", "http-alternates"), verbs=("status", "fetch")),
    Case(name="settings of the worktree", make=worktree_settings, verbs=("status", "apply", "export up")),
    Case(name="settings of the project's worktree", make=project_worktree_settings, verbs=LOOK),
    Case(name="repository elsewhere", make=gitdir_elsewhere, verbs=LOOK),
    Case(name="bare repositories among files", make=bare_inside, verbs=(*LOOK, *WORK)),
    Case(name="replaced objects", make=replaced_objects, verbs=("status", "apply", "export up")),
    Case(name="huge lock", make=huge("{project}/upstream.lock", 1 << 40), verbs=("status", "list")),
    Case(name="huge series", make=huge("{stack}/series", 1 << 40), verbs=("status", "list")),
    Case(name="huge patch", make=huge("{stack}/first.patch", 1 << 40), verbs=("list", "apply", "bundle {out}/b")),
    Case(name="huge ledger", make=huge("{project}/patches/up/ledger.jsonl", 1 << 40), verbs=("ledger", "report --html {out}/r.html", "bundle {out}/b")),
    Case(name="huge state", make=huge("{private}/state/up.json", 1 << 40), verbs=("status", "apply")),
    Case(name="huge measurements", make=huge("{project}/measurements/ledger.jsonl", 1 << 40), verbs=("bench show", "bundle {out}/b")),
    Case(name="huge kernels", make=huge("{project}/kernels/up.toml", 1 << 40), verbs=("bundle {out}/b",)),
    Case(name="huge attributes", make=huge("{project}/.gitattributes", 1 << 40), verbs=("check --fix --text", "drop third")),
    Case(name="huge report", make=huge("{project}/patches/up/reports/first.toml", 1 << 40), verbs=("issue first --no-run --onto v1",)),
    Case(name="huge results", make=huge("{private}/results/last.json", 1 << 40), verbs=("report",)),
    Case(name="series of a million lines", make=full_of("{stack}/series", b"first.patch\n", 1_000_000), verbs=("status", "list")),
    Case(name="series of a million notes", make=full_of("{stack}/series", b"# x\n", 1_000_000), verbs=("status", "list")),
    Case(name="ledger of broken lines", make=full_of("{project}/patches/up/ledger.jsonl", b"{\n", 50_000), verbs=("ledger", "check --text")),
    Case(name="ledger of brackets", make=full_of("{project}/patches/up/ledger.jsonl", b"[", 300_000), verbs=("ledger",)),
    Case(name="state of brackets", make=full_of("{private}/state/up.json", b"[", 300_000), verbs=("status", "apply")),
    Case(name="control characters in names", make=named(b"\x1b[31mevil", b"a\nb", b"\r", b"\x07.patch"), verbs=(*LOOK, *WORK)),
    Case(name="names that are no text", make=named(b"\xff\xfe", b"\xff.patch", b"\xc3("), verbs=(*LOOK, *WORK, "bundle {out}/b")),
    Case(name="names that are options", make=named(b"--help", b"-rf", b"--output=x", b"-.patch"), verbs=(*LOOK, *WORK, "bundle {out}/b")),
    Case(name="names that are patterns", make=named(b"*", b"[a-z]", b"?", b":(exclude)a.txt", b"~", b"$(trap)"), verbs=(*LOOK, *WORK)),
    Case(name="names that turn around", make=named("\u202egpj.patch".encode(), "\u2066x".encode()), verbs=(*LOOK, *WORK)),
    Case(name="folders that are no text", make=folders_named(b"\xff", b"v\xff"), verbs=(*LOOK, "check", "bundle {out}/b")),
    Case(name="folders that are options", make=folders_named(b"--all", b"-x"), verbs=(*LOOK, "check", "bundle {out}/b")),
    Case(name="folders of controls", make=folders_named(b"\x1b]0;x\x07", b"a\nb"), verbs=(*LOOK, "check", "bundle {out}/b")),
    Case(name="folders that leave", make=folders_named(b"..%2F..%2Fevil", b"%2Ftmp"), verbs=(*LOOK, "check", "bundle {out}/b")),
    Case(name="names by case alone", make=case_twins, verbs=(*LOOK, "apply", "bundle {out}/b")),
    Case(name="names by accents alone", make=accent_twins, verbs=(*LOOK, "apply")),
    Case(name="deep folders", make=deep_folder, verbs=("status", "bundle {out}/b", "check --text")),
    Case(name="modules beside", make=python_beside, verbs=(*LOOK, *WORK, *HAND_ON)),
    Case(name="programs beside", make=programs_beside, verbs=(*LOOK, *WORK, *HAND_ON)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_clone(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 220
