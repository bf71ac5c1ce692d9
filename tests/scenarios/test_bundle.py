"""`bundle` and `apply --from-bundle`: reproducible, checked, and enough where there is no network at all."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import ROOT, Patchq, commit_files, edit, git


@pytest.fixture
def bundle(stack: Patchq, upstream: Path, tmp_path: Path) -> Path:
    """The bundle of three patches on a commit that has history; then the upstream goes away."""
    kernels = stack.root / "kernels"
    kernels.mkdir()
    (kernels / "up.toml").write_text("# what is compiled ahead\n")
    (kernels / "notes.txt").write_text("mine\n")
    commit_files(upstream, {"later.txt": b"later\n"}, "later")
    target = tmp_path / "fork.bundle"
    stack.ok("bundle", str(target))
    return target


def elsewhere(root: Path, *args: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """patchq in a network namespace of its own, in which nothing can be reached, with an empty cache."""
    env = {**os.environ, "PATCHQ_CACHE": str(cache), "PYTHONPATH": str(ROOT / "tools")}
    argv = ["unshare", "-rn", sys.executable, "-m", "patchq", "--project", str(root), *args]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def tip(patchq: Patchq) -> str:
    return git(patchq.tree(), "rev-parse", "HEAD^{tree}")


def test_it_works_where_there_is_no_network(stack: Patchq, bundle: Path, upstream: Path, tmp_path: Path) -> None:
    tree = tip(stack)
    upstream.rename(tmp_path / "gone")
    root, cache = tmp_path / "site", tmp_path / "site-cache"
    done = elsewhere(root, "apply", "--from-bundle", str(bundle), cache=cache)
    assert done.returncode == 0, done.stderr
    there = Patchq(root)
    assert tip(there) == tree
    assert "applied 3 patches" in done.stdout
    assert [path.name for path in (root / "kernels").iterdir()] == ["up.toml"]
    # Three-way merges have what they need: the stack is changed, carried and proven there.
    for args in (("move", "third", "--before", "first"), ("drop", "first"), ("check",), ("apply",)):
        done = elsewhere(root, *args, cache=cache)
        assert done.returncode in (0, 1 if args == ("check",) else 0), f"{args}: {done.stderr}"
    edit(there.tree() / "b.txt", 30)
    done = elsewhere(root, "new", "up", "mine", "-m", "Mine\n\nWhy.", cache=cache)
    assert done.returncode == 0, done.stderr
    again = elsewhere(root, "apply", "--from-bundle", str(bundle), cache=cache)
    assert again.returncode == 0, again.stderr
    assert "mine" in (root / "patches" / "up" / "v1" / "series").read_text(), "the project's own patches stay"


def test_the_same_bytes_from_any_store(stack: Patchq, bundle: Path, tmp_path: Path) -> None:
    first = bundle.read_bytes()
    shutil.rmtree(stack.layout.private)
    stack.ok("bundle", str(bundle))
    assert bundle.read_bytes() == first
    told = json.loads(stack.ok("bundle", str(tmp_path / "x"), "--json"))
    assert (told["set_name"], told["pins"]) == ("default", [["up", "v1", "git"]])


def test_an_archive_is_in_it_as_it_is(empty: Patchq, upstream: Path, tmp_path: Path) -> None:
    archive = empty.root / "up-1.tar.gz"
    git(upstream, "archive", "--prefix=up-1/", "-o", str(archive), "v1")
    empty.ok("pin", "up", "--ref", "v1", "--archive", "./up-1.tar.gz")
    empty.ok("apply")
    target = tmp_path / "b"
    empty.ok("bundle", str(target))
    with tarfile.open(target) as tar:
        assert "project/up-1.tar.gz" in tar.getnames()
    done = elsewhere(tmp_path / "site", "apply", "--from-bundle", str(target), cache=tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / ".patchq" / "trees" / "up" / "a.txt").is_file()


def test_another_lock_or_a_full_folder_is_refused(stack: Patchq, bundle: Path, tmp_path: Path) -> None:
    lock = stack.layout.lock
    lock.write_text(lock.read_text() + "\n# changed\n")
    assert "was made from another upstream.lock than the one in" in stack.fails(
        1, "apply", "--from-bundle", str(bundle)
    )
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine\n")
    told = Patchq(full).fails(1, "apply", "--from-bundle", str(bundle))
    assert "contains mine.txt and is not a project" in told
    assert [p.name for p in full.iterdir()] == ["mine.txt"]
    assert "No such file" in stack.fails(1, "apply", "--from-bundle", str(tmp_path / "none"))
    assert "always applies the bundle's whole set" in stack.fails(2, "apply", "first", "--from-bundle", str(bundle))


def rewritten(bundle: Path, change: Callable[[dict[str, bytes]], None], *, links: bool = False) -> None:
    """Write a bundle with other members; the manifest stays first."""
    with tarfile.open(bundle) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    change(members)
    with tarfile.open(bundle, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if links and name.endswith("first.patch"):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
            tar.addfile(info, io.BytesIO(data))


def extra(members: dict[str, bytes]) -> None:
    members["project/patches/up/v1/evil.patch"] = b"x"


def altered(members: dict[str, bytes]) -> None:
    members["project/patches/up/v1/first.patch"] = members["project/patches/up/v1/first.patch"].replace(
        b"changed", b"chanced"
    )


def lacking(members: dict[str, bytes]) -> None:
    del members["project/patches/up/v1/series"]


def outside(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["bundle.json"])
    manifest["files"]["project/../../evil"] = [1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"]
    members["bundle.json"] = json.dumps(manifest).encode()
    members["project/../../evil"] = b"x"


def named(*names: str) -> Callable[[dict[str, bytes]], None]:
    """Members that the manifest names as it should, and that are no part of a project, or contradict each other."""

    def put(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["bundle.json"])
        for name in names:
            manifest["files"][name] = [1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"]
            members[name] = b"x"
        members["bundle.json"] = json.dumps(manifest).encode()

    put.__name__ = " ".join(names)
    return put


def without_pack(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["bundle.json"])
    del manifest["files"]["packs/up.pack"], members["packs/up.pack"]
    members["bundle.json"] = json.dumps(manifest).encode()


def with_trees_as_pairs(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["bundle.json"])
    manifest["trees"] = [*manifest["trees"].items(), ["up", "0" * 40]]
    members["bundle.json"] = json.dumps(manifest).encode()


def newer(members: dict[str, bytes]) -> None:
    members["bundle.json"] = members["bundle.json"].replace(b'"version": 1', b'"version": 2')


def words(members: dict[str, bytes]) -> None:
    members["bundle.json"] = b"[]"


@pytest.mark.parametrize(
    "change",
    [
        extra,
        altered,
        lacking,
        outside,
        newer,
        words,
        None,
        "link",
        "cut",
        "text",
        without_pack,
        with_trees_as_pairs,
        named("project/patches/a", "project/patches/a/b"),
        named("project/patches/up/v1/first.patch/x"),
        named("project/patches/a", "project/patches//a"),
        *map(
            named,
            [
                "project/.patchq/store.git/config",
                "project/.patchq/journal/pending.json",
                "project/.github/workflows/x.yml",
                "project/patches/.patchq/x",
                "project/tests/stacks/.git/config",
                "project/tests/conftest.py",
            ],
        ),
    ],
    ids=lambda c: getattr(c, "__name__", str(c)),
)
def test_a_bundle_that_is_not_whole_is_refused_and_nothing_is_written(
    bundle: Path, change: Callable[[dict[str, bytes]], None] | str | None, tmp_path: Path
) -> None:
    if change == "link":
        rewritten(bundle, lambda _: None, links=True)
    elif change == "cut":
        bundle.write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])
    elif change == "text":
        bundle.write_text("nothing of the kind\n")
    elif change is None:
        bundle.write_bytes(b"")
    else:
        assert callable(change)
        rewritten(bundle, change)
    site = Patchq(tmp_path / "site" / "in")
    told = site.fails(1, "apply", "--from-bundle", str(bundle))
    assert "hint:" in told
    assert not site.root.exists() or not any(site.root.iterdir())
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["tests/stacks", "tests", "kernels", "keys.asc"])
def test_a_link_out_of_the_project_is_not_bundled(stack: Patchq, tmp_path: Path, name: str) -> None:
    """A bundle is handed on: what a clone of somebody else's project leads to doesn't come with it."""
    secrets = tmp_path / "secrets"
    (secrets / "stacks").mkdir(parents=True)
    for path in ("id.toml", "id", "stacks/id"):
        (secrets / path).write_text("secret\n")
    if name == "keys.asc":
        lock = stack.layout.lock.read_text()
        stack.layout.lock.write_text(lock.replace("[upstreams.up]\n", '[upstreams.up]\nkeyring = "keys.asc"\n'))
        (stack.root / name).symlink_to(secrets / "id")
    else:
        shutil.rmtree(stack.root / name, ignore_errors=True)
        (stack.root / name).parent.mkdir(exist_ok=True)
        (stack.root / name).symlink_to(secrets)
    target = tmp_path / "x.bundle"
    done = stack.run("bundle", str(target))
    assert done.exit_code == 1, done.output
    assert not target.exists()
    assert "is a symbolic link" in done.output


@pytest.mark.parametrize(
    ("key", "value"),
    [("upstream", "other"), ("ref", "v9"), ("tag", "--help"), ("tag", 7), ("upstream", "../../x"), ("commit", "main")],
)
def test_a_pin_that_the_lock_does_not_have(bundle: Path, tmp_path: Path, key: str, value: object) -> None:
    other = tmp_path / "other.bundle"
    with tarfile.open(bundle) as tar, tarfile.open(other, "w") as out:
        for member in tar:
            data = tar.extractfile(member)
            assert data
            content = data.read()
            if member.name == "bundle.json":
                manifest = json.loads(content)
                manifest["pins"][0][key] = value
                content = json.dumps(manifest).encode()
                member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    said = Patchq(tmp_path / "site").fails(1, "apply", "--from-bundle", str(other))
    assert "bundle" in said
