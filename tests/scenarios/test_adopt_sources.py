"""Every kind of place that patches lie in: each gives the tree that its own tool gives."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from kit import Patchq, commit_files, edit, git, numbered, release
from patchq.cli import cli

ME = ("--author", "me")


@pytest.fixture
def branch(upstream: Path) -> Path:
    """Two commits on top of v1, on a branch of their own; the upstream's own stays at v1."""
    git(upstream, "checkout", "-q", "-b", "ours")
    commit_files(
        upstream, {"a.txt": numbered(40).replace(b"line 3\n", b"line three\n")}, "Spell three\n\nIt reads better."
    )
    commit_files(upstream, {"pkg/mod.py": b"def f():\n    return 2\n"}, "Return two\n\nOne is too few.")
    git(upstream, "checkout", "-q", "main")
    return upstream


def names(patchq: Patchq) -> list[str]:
    return [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]]


def same_tree(patchq: Patchq, branch: Path, count: int = 2) -> None:
    patchq.ok("apply")
    assert git(patchq.tree(), "rev-parse", "HEAD^{tree}") == git(branch, "rev-parse", "ours^{tree}")
    assert len(names(patchq)) == count
    assert "nothing changed" in patchq.ok("export", "up")


def mails(branch: Path, folder: Path) -> list[Path]:
    git(branch, "format-patch", "-q", "-o", str(folder), "v1..ours")
    return sorted(folder.iterdir())


def test_what_format_patch_wrote(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    git(branch, "format-patch", "-q", "--cover-letter", "-o", str(tmp_path / "out"), "v1..ours")
    assert "is a cover letter" in patchq.ok("import", "up", str(tmp_path / "out"))
    same_tree(patchq, branch)


def test_electron(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    files = mails(branch, tmp_path / "patches")
    for file, name in zip(files, ("zz.patch", "aa.patch"), strict=True):
        file.rename(file.with_name(name))
    (tmp_path / "patches/.patches").write_text("zz.patch\naa.patch\n")
    patchq.ok("import", "up", str(tmp_path / "patches"))
    assert names(patchq) == ["zz", "aa"]
    same_tree(patchq, branch)


def test_patch_package(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    """Its patches name the files below ``node_modules``, which an npm package's repository doesn't have."""
    (tmp_path / "patches").mkdir()
    for number, commit in enumerate(("ours~1", "ours"), 1):
        diff = git(branch, "diff", "--src-prefix=a/node_modules/up/", "--dst-prefix=b/node_modules/up/",
                   f"{commit}~1", commit)  # fmt: skip
        (tmp_path / "patches" / f"up+1.3.0+00{number}+change.patch").write_text(diff + "\n")
    patchq.ok("import", "up", *map(str, sorted((tmp_path / "patches").iterdir())), *ME)
    same_tree(patchq, branch)


@pytest.mark.parametrize("where", ["debian/patches", "patches"])
def test_a_tree_that_quilt_works_in(patchq: Patchq, branch: Path, tmp_path: Path, where: str) -> None:
    files = mails(branch, tmp_path / "tree" / where)
    (tmp_path / "tree" / where / "series").write_text("".join(f"{f.name} # note\n" for f in files))
    patchq.ok("import", "up", str(tmp_path / "tree"))
    same_tree(patchq, branch)


def test_openwrt(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    mails(branch, tmp_path / "package/patches")
    (tmp_path / "package/Makefile").write_text("PKG_NAME:=up\n")
    patchq.ok("import", "up", str(tmp_path / "package"))
    same_tree(patchq, branch)


def test_a_debian_package(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    files = mails(branch, tmp_path / "out")
    with tarfile.open(tmp_path / "up_1-1.debian.tar.xz", "w:xz") as tar:
        series = "".join(f"{f.name}\n" for f in files).encode()
        for name, data in [("series", series), *((f.name, f.read_bytes()) for f in files)]:
            info = tarfile.TarInfo(f"debian/patches/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (tmp_path / "up_1-1.dsc").write_text(f"Format: 3.0 (quilt)\nFiles:\n {'0' * 32} 1 up_1-1.debian.tar.xz\n")
    patchq.ok("import", "up", str(tmp_path / "up_1-1.dsc"))
    same_tree(patchq, branch)
    assert (
        b"Origin: up_1-1.debian.tar.xz: debian/patches/0001-Spell-three.patch"
        in patchq.patch_file("spell-three").read_bytes()
    )


def test_a_yocto_recipe(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "up_1.0.bb"
    files = mails(branch, tmp_path / "up")
    inner = git(branch, "diff", "--relative=pkg", "--no-prefix", "ours~1", "ours") + "\n"
    (tmp_path / "up/two.patch").write_text(inner)
    recipe.write_text(
        'SRC_URI = "https://example.org/${BP}.tar.gz \\\n    file://'
        + files[0].name
        + ' \\\n    file://conf.txt \\\n"\n'
        'SRC_URI:append = " file://two.patch;striplevel=0;patchdir=pkg"\n'
        'SRC_URI:append:mips = " file://not.patch"\nSRC_URI += "file://off.patch;apply=no"\n'
    )
    patchq.ok("import", "up", str(recipe), *ME)
    assert names(patchq) == ["spell-three", "two"]
    same_tree(patchq, branch)


def test_standard_input(patchq: Patchq, branch: Path) -> None:
    box = git(branch, "format-patch", "--stdout", "v1..ours") + "\n"
    done = CliRunner().invoke(cli, ["--project", str(patchq.root), "import", "up", "-"], input=box)
    assert done.exit_code == 0, done.output
    same_tree(patchq, branch)


def test_stgit(patchq: Patchq, branch: Path) -> None:
    git(branch, "checkout", "-q", "ours")
    ids = git(branch, "rev-list", "--reverse", "v1..ours").split()
    stack = {
        "version": 5,
        "head": ids[-1],
        "applied": ["spell", "two"],
        "patches": {"spell": {"oid": ids[0]}, "two": {"oid": ids[1]}},
    }
    blob = git(branch, "hash-object", "-w", "--stdin", data=json.dumps(stack).encode())
    tree = git(branch, "mktree", data=f"100644 blob {blob}\tstack.json\n".encode())
    git(branch, "update-ref", "refs/stacks/ours", git(branch, "commit-tree", tree, "-m", "stack"))
    patchq.ok("import", "up", str(branch))
    assert names(patchq) == ["spell", "two"]
    same_tree(patchq, branch)


def test_a_repository_asks_for_the_range(patchq: Patchq, branch: Path) -> None:
    assert f"`patchq import up {branch} --range v1..HEAD`" in patchq.fails(1, "import", "up", str(branch))


def test_a_pull_request(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    git(branch, "update-ref", "refs/pull/7/head", "ours")
    commit_files(branch, {"b.txt": b"moved on\n"}, "Meanwhile")
    patchq.ok("import", "up", "--pr", "7")
    assert names(patchq) == ["spell-three", "return-two"]
    same_tree(patchq, branch)
    assert b"Origin: " in patchq.patch_file("spell-three").read_bytes()
    patchq.ok("undo")
    patchq.ok("undo")
    patchq.ok("import", "up", f"{branch.as_uri()}/pull/7/files")
    same_tree(patchq, branch)
    assert f"Origin: {branch.as_uri()}#7@".encode() in patchq.patch_file("spell-three").read_bytes()
    assert "has no pull request 8" in patchq.fails(1, "import", "up", "--pr", "8")


def test_a_pull_request_with_a_merge_is_one_patch(patchq: Patchq, branch: Path) -> None:
    commit_files(branch, {"b.txt": b"moved on\n"}, "Meanwhile")
    git(branch, "checkout", "-q", "ours")
    git(branch, "merge", "-q", "--no-ff", "-m", "Merge main", "main")
    commit_files(branch, {"b.txt": b"moved on\nand on\n"}, "Go on")
    git(branch, "update-ref", "refs/merge-requests/3/head", "ours")
    git(branch, "checkout", "-q", "main")
    git(branch, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    assert "commits include merges, so they become one patch" in patchq.ok("import", "up", "--pr", "3")
    same_tree(patchq, branch, 1)


def test_a_commit_of_a_host(patchq: Patchq, branch: Path) -> None:
    git(branch, "config", "uploadpack.allowAnySHA1InWant", "true")
    for commit in git(branch, "rev-list", "--reverse", "v1..ours").split():
        patchq.ok("import", "up", f"{branch.as_uri()}/commit/{commit}")
    same_tree(patchq, branch)


def test_a_host_that_gives_mails_alone(patchq: Patchq, branch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = (git(branch, "format-patch", "--stdout", "v1..ours") + "\n").encode()

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/o/r/pull/3.patch"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(box if known else b"")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}/o/r/pull/3"
    try:
        assert f"downloading {url}.patch" in patchq.ok("import", "up", url)
        assert "could not be downloaded" in patchq.fails(1, "import", "up", url.replace("/3", "/4"))
    finally:
        server.shutdown()
        server.server_close()
    same_tree(patchq, branch)
    assert f"Origin: {url}.patch" in patchq.patch_file("spell-three").read_text()


def test_files_of_a_container(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    place = tmp_path / "overlay/usr/lib/python3/dist-packages/pkg"
    place.mkdir(parents=True)
    (place / "mod.py").write_bytes(b"def f():\n    return 2\n")
    (place / "new.py").write_bytes(b"new = 1\n")
    patchq.ok("import", "up", "--overlay", str(tmp_path / "overlay"), *ME)
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/new.py").read_bytes() == b"new = 1\n"
    assert (
        git(patchq.tree(), "show", "--stat=80", "--format=", "HEAD").split("\n")[-1].strip()
        == "2 files changed, 2 insertions(+), 1 deletion(-)"
    )
    assert "changes nothing" in patchq.fails(1, "import", "up", "--overlay", str(branch / "pkg"), *ME)


def test_an_installed_package_that_was_edited(patchq: Patchq, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "pkg").mkdir(parents=True)
    (site / "pkg/mod.py").write_bytes(b"def f():\n    return 3\n")
    (site / "up-1.0.dist-info").mkdir()
    (site / "up-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: up\nVersion: 1.0\n")
    (site / "up-1.0.dist-info/RECORD").write_text("pkg/mod.py,sha256=AAAA,9\nup-1.0.dist-info/RECORD,,\n")
    said = patchq.ok("import", "up", "--from-site-packages", str(site), *ME)
    assert "edited files of up 1.0: pkg/mod.py" in said
    assert names(patchq) == ["up-as-edited"]
    assert "has no other" in patchq.fails(1, "import", "up", "--from-site-packages", str(tmp_path)).replace(
        "no up", "no other"
    )


@pytest.mark.parametrize("how", ["a folder in it", "its folder"])
def test_an_environment_that_leads_elsewhere(patchq: Patchq, tmp_path: Path, how: str) -> None:
    """A RECORD names whatever it likes: what lies outside of the environment is in no patch."""
    site, secrets = tmp_path / "site-packages", tmp_path / "secrets"
    for folder in (secrets, site / "up-1.0.dist-info"):
        folder.mkdir(parents=True)
    (secrets / "key.py").write_text("secret = 1\n")
    (site / "up-1.0.dist-info/METADATA").write_text("Name: up\nVersion: 1.0\n")
    link = site / "pkg" / "sub" if how == "a folder in it" else site / "pkg"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secrets)
    name = (link / "key.py").relative_to(site).as_posix()
    (site / "up-1.0.dist-info/RECORD").write_text(f"{name},sha256=AAAA,9\nup-1.0.dist-info/RECORD,,\n")
    assert "is in a folder that is a link to a place outside of" in patchq.fails(
        1, "import", "up", "--from-site-packages", str(site), *ME
    )


@pytest.mark.parametrize("text", ["x" * 200_000 + ",,\n", "a\0b,,\n", "pkg/mod.py,sha256=\u00e9\u00e9,1\n"])
def test_an_environment_whose_record_is_none(patchq: Patchq, tmp_path: Path, text: str) -> None:
    site = tmp_path / "site-packages"
    (site / "up-1.0.dist-info").mkdir(parents=True)
    (site / "pkg").mkdir()
    (site / "pkg/mod.py").write_text("x = 1\n")
    (site / "up-1.0.dist-info/METADATA").write_text("Name: up\nVersion: 1.0\n")
    (site / "up-1.0.dist-info/RECORD").write_text(text)
    assert patchq.run("import", "up", "--from-site-packages", str(site), *ME).exit_code in (0, 1)


def test_names_of_scratch_folders_and_depths(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    plain = git(branch, "diff", "--no-prefix", "v1", "ours") + "\n"
    for at, prefix in enumerate(("", "/root/work/", "vllm-0.1/")):
        text = "\n".join(
            f"{line[:4]}{prefix}{line[4:]}\t2026-01-02 03:04:05" if line.startswith(("--- ", "+++ ")) else line
            for line in plain.split("\n") if not line.startswith(("diff ", "index "))
        )  # fmt: skip
        (tmp_path / f"x{at}.diff").write_text(text)
        said = patchq.ok("import", "up", str(tmp_path / f"x{at}.diff"), *ME)
        assert ("is read with -p" in said) == (at != 2)
        same_tree(patchq, branch, 1)
        patchq.ok("undo")
        patchq.ok("undo")


def test_names_below_a_folder_of_the_tree(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text(git(branch, "diff", "--relative=pkg", "ours~1", "ours") + "\n")
    assert "is read with --directory pkg" in patchq.ok("import", "up", str(tmp_path / "x.diff"), *ME)
    patchq.ok("undo")
    patchq.ok("import", "up", str(tmp_path / "x.diff"), "--directory", "pkg", *ME)
    assert "doesn't exist" in patchq.fails(
        3, "import", "up", str(tmp_path / "x.diff"), "-p", "1", "--directory", "a", *ME
    )


def test_a_batch_is_tried_whole(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    """The stack changes line 5 of a.txt, which these lie around."""
    edit(branch / "b.txt", 30)
    commit_files(branch, {}, "Change b")
    git(branch, "format-patch", "-q", "-o", str(tmp_path / "in"), "main~1..main")
    mails(branch, tmp_path / "in")
    (tmp_path / "in/0003-there.patch").write_text((stack.root / "patches/up/v1/third.patch").read_text())
    (tmp_path / "in/0004-returns.patch").write_bytes(
        b"--- a/b.txt\n+++ b/b.txt\n@@ -1,3 +1,3 @@\n-line 1\r\n+line one\r\n line 2\r\n line 3\r\n"
    )
    (tmp_path / "in/0005-nothing.patch").write_text("hello\n")
    before = stack.snapshot()
    done = json.loads(stack.fails(3, "import", "up", str(tmp_path / "in"), "--dry-run", "--json"))
    told = {Path(i["where"].split(" (")[0]).name: i for i in done["items"]}
    assert {name: i["outcome"] for name, i in told.items()} == {
        "0001-Change-b.patch": "applies", "0001-Spell-three.patch": "conflict", "0002-Return-two.patch": "applies",
        "0003-there.patch": "there", "0004-returns.patch": "conflict", "0005-nothing.patch": "unreadable",
    }  # fmt: skip
    picture = told["0001-Spell-three.patch"]["conflicts"][0]
    assert "line 5" in picture["expected"]
    assert "changed" in picture["found"]
    assert "CR LF" in told["0004-returns.patch"]["detail"]
    said = stack.fails(3, "import", "up", str(tmp_path / "in"), "--dry-run")
    assert "  the file has, at line" in said
    assert "2 of 6 would be adopted" in said
    said = stack.fails(3, "import", "up", str(tmp_path / "in"), *ME)
    for name in ("0001-Spell-three", "0003-there", "0004-returns", "0005-nothing"):
        assert f"{name}.patch" in said
    assert stack.snapshot() == before
    said = stack.ok("import", "up", str(tmp_path / "in"), "--partial", *ME)
    assert names(stack)[3:] == ["change-b", "return-two"]
    said = said.replace(f"{tmp_path}/in/", "")
    assert "0003-there.patch was left out: the tree already has its change" in said
    left = ", ".join(f"{name}.patch" for name in ("0001-Spell-three", "0003-there", "0004-returns", "0005-nothing"))
    assert f"adopted 2 of 6; left out: {left}\n" in said


def test_a_syntax_error_is_named(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text(
        "--- a/pkg/mod.py\n+++ b/pkg/mod.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return return\n"
    )
    names_it = f"{tmp_path}/x.diff leaves a syntax error: pkg/mod.py:2: invalid syntax"
    assert names_it in patchq.ok("import", "up", str(tmp_path / "x.diff"), "--dry-run")
    assert names_it in patchq.ok("import", "up", str(tmp_path / "x.diff"), *ME)
    said = patchq.fails(1, "check", "up")
    assert "up/v1/x: it leaves a syntax error: pkg/mod.py:2: invalid syntax [syntax]" in said
    cache = patchq.root / ".patchq" / "check" / "syntax.json"
    before, written = cache.read_bytes(), cache.stat()
    assert patchq.fails(1, "check", "up") == said
    assert cache.stat().st_ino == written.st_ino, "the files are parsed once"
    for damage in (before.replace(b"invalid syntax", b"valid syntax"), before[:-30], b"[]"):
        cache.write_bytes(damage)
        assert patchq.fails(1, "check", "up") == said
        assert cache.read_bytes() == before
    lock = patchq.layout.lock
    lock.write_text(lock.read_text().replace("off = [", 'off = ["syntax", '))
    assert "[syntax]" not in patchq.ok("check", "up")
    # A later patch of the same file isn't blamed for it.
    (tmp_path / "y.diff").write_text(
        "--- a/pkg/mod.py\n+++ b/pkg/mod.py\n@@ -1,2 +1,2 @@\n-def f():\n+def g():\n     return return\n"
    )
    assert "syntax error" not in patchq.ok("import", "up", str(tmp_path / "y.diff"), *ME)


def test_fuzz_is_named_and_never_used(stack: Patchq, tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text(
        "--- a/a.txt\n+++ b/a.txt\n@@ -5,7 +5,7 @@\n line 5\n line 6\n line 7\n-line 8\n+line eight\n line 9\n line 10\n line 11\n"
    )
    assert "applies only with fuzz" in stack.fails(3, "import", "up", str(tmp_path / "x.diff"), "--dry-run")


def test_three_ways(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    files = mails(branch, tmp_path / "in")
    assert "--3way can merge the patch" in stack.fails(3, "import", "up", str(files[0]), "--dry-run")
    stack.ok("import", "up", str(files[0]), "--3way")
    stack.ok("apply")
    text = (stack.tree() / "a.txt").read_bytes()
    assert b"line three\n" in text
    assert b"changed\n" in text


def test_monkey_patches(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import pkg.mod as mod\nfrom pkg import mod as again\n\n_old = mod.f\n\n\ndef better():\n    # Two is more.\n    return 2\n\n\n"
        "def wrapped():\n    return _old() + 1\n\n\nmod.f = better\nagain.f = wrapped\nsetattr(mod, 'f', lambda: 4)\nmod.g = 1\n"
    )
    (tmp_path / "ran.py").write_text("open('/tmp/ran', 'w')\n")
    told = json.loads(patchq.fails(3, "import", "up", str(tmp_path / "sitecustomize.py"), "--dry-run", "--json"))[
        "items"
    ]
    assert [i["outcome"] for i in told] == ["applies", "unreadable", "unreadable", "unreadable"]
    assert (
        "replaces pkg/mod.py: f (line 1) by wrapped, which uses names that the upstream file lacks: _old"
        in told[1]["detail"]
    )
    # Python 3.10 puts a space before the colon.
    assert "by lambda: 4, which is not one of its functions" in told[2]["detail"].replace("lambda :", "lambda:")
    assert "replaces pkg/mod.py: g, which is not a function" in told[3]["detail"]
    patchq.ok("import", "up", str(tmp_path / "sitecustomize.py"), "--partial", *ME)
    assert names(patchq) == ["replace-f"]
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/mod.py").read_text() == "def f():\n    # Two is more.\n    return 2\n"


CLASS = b"""class C:
    @staticmethod
    def fixed(x):
        return x

    @staticmethod
    def free(x):
        return x

    @classmethod
    def made(cls, x):
        return x

    @property
    def size(self):
        return 1
"""


def test_a_monkey_patch_of_a_static_method(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    release(upstream, "v2", {"pkg/mod.py": CLASS})
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v2")
    (tmp_path / "start.py").write_text(
        "from pkg.mod import C\n\n\ndef fixed(x):\n    return x + 1\n\n\ndef free(self, x):\n    return x + 2\n\n\n"
        "def made(cls, x):\n    return x + 3\n\n\ndef size(self):\n    return 4\n\n\n"
        "C.fixed = fixed\nC.free = free\nC.made = classmethod(made)\nC.size = size\n"
    )
    said = patchq.ok("import", "up", str(tmp_path / "start.py"), *ME)
    assert "start.py:21: C.free loses @staticmethod, as when Python ran this file" in said
    assert "start.py:23: C.size loses @property" in said
    assert "fixed loses" not in said
    assert "made loses" not in said
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/mod.py").read_text() == (
        "class C:\n    @staticmethod\n    def fixed(x):\n        return x + 1\n\n"
        "    def free(self, x):\n        return x + 2\n\n"
        "    @classmethod\n    def made(cls, x):\n        return x + 3\n\n"
        "    def size(self):\n        return 4\n"
    )
