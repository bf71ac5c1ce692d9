"""Real patches, of Debian's source packages: the tree is that of `quilt push`, and what each says survives.

The packages come from the archive that this machine's apt is set up for, by name and version, into a folder of the
test's own; the machine's own lists and packages stay as they are. All are of Debian's main section: free to be used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit import Patchq, git, new_repository
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail

pytestmark = pytest.mark.index

#: Name, version, and how many patches its series has.
PACKAGES = [
    ("unzip", "6.0-28", 28), ("cron", "3.0pl1-162", 76), ("procmail", "3.22-27", 32), ("cpio", "2.13+dfsg-7.1", 18),
    ("busybox", "1:1.35.0-4+deb12u1", 15), ("dash", "0.5.12-2", 13), ("bc", "1.07.1-3", 7),
    ("patch", "2.7.6-7", 15), ("screen", "4.9.0-4", 14), ("ncompress", "4.2.4.6-6", 3),
]  # fmt: skip
SUITE = "bookworm"


def tool(*argv: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """`apt-get` for source packages, with lists of its own."""
    if not all(map(shutil.which, ("apt-get", "dpkg-source", "quilt"))):
        pytest.skip("needs apt-get, dpkg-source and quilt")
    folder = tmp_path_factory.mktemp("apt")
    texts = [p.read_text() for p in Path("/etc/apt/sources.list.d").glob("*.sources")]
    found = [
        p
        for text in texts
        for p in re.split(r"\n\s*\n", text)
        if re.search(rf"^Suites:.*\b{SUITE}\b(?!-)", p, re.MULTILINE)
    ]
    if not found:
        pytest.skip(f"apt has no source of Debian {SUITE} here")
    kept = [line for line in found[0].splitlines() if re.match(r"(URIs|Signed-By):", line)]
    (folder / "own.sources").write_text(
        "\n".join(["Types: deb-src", f"Suites: {SUITE}", "Components: main", *kept, ""])
    )
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::State::lists": folder / "lists", "Dir::Etc::SourceList": folder / "own.sources", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root", "Acquire::Retries": 3,
    }  # fmt: skip
    argv = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    tool(*argv, "update", cwd=folder)
    return argv


def quilted(dsc: Path, folder: Path) -> tuple[Path, Path]:
    """The tree of a source package without its patches, and after `quilt push -a`; neither has `debian/`."""
    bare, after = folder / "upstream", folder / "after"
    tool("dpkg-source", "-q", "--no-check", "--skip-patches", "-x", str(dsc), str(after), cwd=folder)
    shutil.copytree(after, bare, symlinks=True)
    tool("quilt", "push", "-a", "-q", "--fuzz=0", cwd=after, QUILT_PATCHES="debian/patches", QUILT_PC=".pc")
    for path in (bare / "debian", after / "debian", after / ".pc"):
        shutil.rmtree(path, ignore_errors=True)
    return bare, after


def tree_of(folder: Path) -> str:
    git(folder, "init", "-q")
    git(folder, "add", "-fA")
    return git(folder, "write-tree")


def patches_of(patchq: Patchq) -> list[tuple[str, Header, bytes]]:
    folder = patchq.layout.stack("up", "v1")
    names = (folder / "series").read_text().split()
    return [(name, parse_mail((folder / name).read_bytes(), name)[0], (folder / name).read_bytes()) for name in names]


def said_in(text: str) -> tuple[str, list[str]]:
    """Of a Debian patch: whose it is, if it says so, and each word-like value of its fields."""
    head = re.split(r"^(?:--- |diff |Index: |===)", text, maxsplit=1, flags=re.MULTILINE)[0]
    who = re.search(r"^(?:From|Author): *([^<\n]*[^<\n ])? *<([^>\n]+@[^>\n]+)>", head, re.MULTILINE)
    fields = re.findall(r"^(?:Origin|Bug[\w-]*|Forwarded|Applied-Upstream|Reviewed-by): *(\S+)", head, re.MULTILINE)
    return (who[2] if who else ""), fields


@pytest.mark.parametrize(("name", "version", "count"), PACKAGES, ids=[name for name, _, _ in PACKAGES])
def test_a_source_package(
    apt: Sequence[str], empty: Patchq, tmp_path: Path, name: str, version: str, count: int
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    tool(*apt, "source", "--download-only", f"{name}={version}", cwd=folder)
    (dsc,) = folder.glob("*.dsc")
    upstream, after = quilted(dsc, tmp_path)
    new_repository(upstream)
    wanted = tree_of(after)
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    empty.ok("import", "up", str(dsc), "--author", "Nobody <nobody@example.org>")
    empty.ok("apply")
    assert git(empty.tree(), "rev-parse", "HEAD^{tree}") == wanted, "another tree than quilt's"
    adopted = patches_of(empty)
    assert len(adopted) == count

    (folder / "debian").mkdir()
    (tar,) = folder.glob("*.debian.tar.*")
    tool("tar", "xf", str(tar), cwd=folder)
    series = (folder / "debian" / "patches" / "series").read_text()
    files = [words[0] for line in series.splitlines() if (words := line.split("#")[0].split())]
    for file, (patch, header, _) in zip(files, adopted, strict=True):
        who, fields = said_in((folder / "debian" / "patches" / file).read_text("utf-8", "replace"))
        assert who in ("", header.author.email), (file, header.author)
        lost = [word for word in fields if word not in header.message]
        assert not lost, f"{patch} ({file}) lost {lost}:\n{header.message}"
        assert header.message.split("\n")[0].strip()

    # Out, and in again: byte for byte.
    again = Patchq(tmp_path / "again")
    again.run("init", str(again.root))
    again.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    again.ok("import", "up", str(empty.layout.stack("up", "v1")))
    assert [(n, data) for n, _, data in patches_of(again)] == [(n, data) for n, _, data in adopted]


def test_they_are_many() -> None:
    assert sum(count for _, _, count in PACKAGES) >= 200
