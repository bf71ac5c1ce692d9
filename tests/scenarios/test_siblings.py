"""The pins of a set fit together, by what each upstream's own metadata requires, or the lock says why they needn't."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git
from patchq.sources.index import pip_settings

PROJECT = '[project]\nname = "%s"\nversion = "%s"\ndependencies = [%s]\n'
BUILDS = """
[upstreams.lib.build]
distribution = "My_Lib"
[upstreams.app.build]
distribution = "app"
"""
MEANT = '\n[mismatches.default]\nMy-Lib = "app\'s patches make it fit"\n'


def release(folder: Path, version: str, dependencies: str = "", metadata: str = "") -> None:
    """A tag of an upstream, whose requirements its project file has, or metadata as an archive has them."""
    if not folder.is_dir():
        folder.mkdir()
        git(folder, "init", "-q")
    files = {"pyproject.toml": (PROJECT % (folder.name, version, dependencies)).encode(), "a.txt": b"1\n2\n3\n"}
    commit_files(folder, {**files, **({"PKG-INFO": metadata.encode()} if metadata else {})})
    git(folder, "tag", f"v{version}")


@pytest.fixture
def pair(empty: Patchq, tmp_path: Path) -> Patchq:
    """``app`` 1.0, which asks for lib before 3, on ``lib`` 2.0; ``app`` 2.0 asks for 3.0 alone. A patch on each."""
    release(tmp_path / "lib", "2.0", '"common==5"')
    release(tmp_path / "lib", "3.0")
    release(tmp_path / "app", "1.0", '"my-lib<3", "other; extra == \'x\'", "my.lib==9; sys_platform == \'win32\'"')
    metadata = "Metadata-Version: 2.1\nName: app\nVersion: 2.0\nRequires-Dist: my.lib==3.0\nRequires-Dist: common>=6\n"
    release(tmp_path / "app", "2.0", '"my-lib==2.0"', metadata)
    for name, ref in (("lib", "v2.0"), ("app", "v1.0")):
        empty.ok("pin", name, "--url", str(tmp_path / name), "--ref", ref)
    lock = empty.root / "upstream.lock"
    lock.write_text(lock.read_text() + BUILDS)
    empty.ok("apply")
    for name in ("lib", "app"):
        edit(empty.tree(name) / "a.txt", 2)
        empty.ok("new", name, "change", "-m", "Change a line\n\nFor a test.\n\nUpstream-Status: Pending", "-s")
    return empty


def bump(patchq: Patchq, tmp_path: Path, ref: str = "v2.0") -> None:
    patchq.ok("pin", "app", "--url", str(tmp_path / "app"), "--ref", ref)
    series = patchq.root / "patches/app/v1.0"
    series.rename(patchq.root / f"patches/app/{ref}")
    patchq.ok("apply")


def findings(patchq: Patchq) -> list[str]:
    answer = json.loads(patchq.run("check", "--json").stdout)
    return [f["message"] for f in answer["findings"] if f["rule"] == "siblings"]


def test_pins_that_fit(pair: Patchq) -> None:
    assert findings(pair) == []


def test_pins_that_dont(pair: Patchq, tmp_path: Path) -> None:
    bump(pair, tmp_path)
    message = [
        "app v2.0 requires my.lib==3.0, and set default has 2.0 (lib v2.0)",
        "app v2.0 requires common>=6, and set default has 5 (what lib requires)",
    ]
    assert sorted(findings(pair)) == sorted(message)
    refused = pair.fails(1, "build")
    assert all(line in refused for line in message)
    assert '[mismatches."default"] my-lib = "…"' in refused


def test_what_is_meant_is_said_in_the_lock(pair: Patchq, tmp_path: Path) -> None:
    bump(pair, tmp_path)
    lock = pair.root / "upstream.lock"
    lock.write_text(lock.read_text() + MEANT)
    assert findings(pair) == ["app v2.0 requires common>=6, and set default has 5 (what lib requires)"]
    lock.write_text(lock.read_text() + 'common = "both work with it"\n')
    assert findings(pair) == []
    assert "siblings" not in pair.run("build").output


def test_what_no_longer_differs_goes(pair: Patchq) -> None:
    lock = pair.root / "upstream.lock"
    lock.write_text(lock.read_text() + MEANT)
    assert findings(pair) == ["[mismatches.default] My-Lib: no pin of the set requires another version"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[mismatches.nobody]\nlib = "x"\n', "is not a set"),
        ('[mismatches.default]\nlib = " "\n', "gives no reason"),
        ("[mismatches]\ndefault = 1\n", "is not a table"),
    ],
)
def test_a_wrong_lock(pair: Patchq, text: str, message: str) -> None:
    lock = pair.root / "upstream.lock"
    lock.write_text(lock.read_text() + text)
    assert message in pair.fails(1, "check")


def test_a_forecast_says_what_a_release_asks_for(pair: Patchq, tmp_path: Path) -> None:
    message = "v2.0: app v2.0 requires my.lib==3.0, and set default has 2.0 (lib v2.0)"
    assert message in pair.ok("forecast", "app", "--onto", "v2.0")
    answer = json.loads(pair.ok("forecast", "app", "--onto", "v1.0", "--onto", "v2.0", "--json"))
    assert [(d["ref"], d["distribution"]) for d in answer["siblings"]] == [("v2.0", "my-lib")]
    lock = pair.root / "upstream.lock"
    lock.write_text(lock.read_text() + MEANT)
    assert message in pair.ok("forecast", "app", "--onto", "v2.0"), "what is meant of one ref isn't of another"


def test_the_environment_counts(pair: Patchq, tmp_path: Path) -> None:
    lock = pair.root / "upstream.lock"
    lock.write_text(lock.read_text() + '\n[environments.default]\nimage = "debian"\nrequires = ["common==4", "x"]\n')
    assert findings(pair) == ["lib v2.0 requires common==5, and set default has 4 (its environment)"]


def offer(folder: Path, name: str, version: str, *requirements: str) -> None:
    """A wheel that holds nothing, in a folder that pip is told to look into."""
    folder.mkdir(exist_ok=True)
    stem = f"{name}-{version}"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requirements),
    ]
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only place where pip looks."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "uv"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "uv"))
    pip_settings.cache_clear()
    yield tmp_path / "index"
    pip_settings.cache_clear()


def installs(patchq: Patchq, code: int = 0) -> list[tuple[str, str]]:
    done = patchq.run("check", "--installs", "--platform", "x86_64", "--json")
    assert done.exit_code == code, done.output
    return [(f["level"], f["message"]) for f in json.loads(done.stdout)["findings"]]


def test_a_set_that_installs(pair: Patchq, index: Path) -> None:
    offer(index, "common", "5")
    assert installs(pair) == []
    message = pair.ok("check", "--installs")
    assert "set default on aarch64: 3 packages can be installed together" in message
    assert "set default on x86_64: 3 packages can be installed together" in message


def test_requirements_are_resolved_for_the_running_python(pair: Patchq, index: Path) -> None:
    """`patchq build` chooses release wheels for this Python, too."""
    running = ".".join(map(str, sys.version_info[:2]))
    offer(index, "common", "5", f"absent ; python_version != '{running}'", f"here ; python_version == '{running}'")
    offer(index, "here", "1")
    assert installs(pair) == []
    assert "set default on x86_64: 4 packages" in pair.ok("check", "--installs")


def test_the_siblings_are_the_sets_own(pair: Patchq, index: Path) -> None:
    """A release of one on the index is not what its sibling gets."""
    offer(index, "common", "5")
    offer(index, "my_lib", "2.9", "nowhere")
    assert installs(pair) == []


def test_what_the_index_lacks_is_no_contradiction(pair: Patchq, index: Path) -> None:
    offer(index, "common", "4")
    message = "set default on x86_64: the package index has nothing for common==5; its newest version is 4"
    assert installs(pair) == [("warning", message)]
    assert "2 packages can be installed together without 1 that the index lacks" in pair.ok(
        "check", "--installs", "--set", "default"
    )


def test_nor_is_what_it_lacks_further_down(pair: Patchq, index: Path) -> None:
    offer(index, "common", "5", "deep>=9", "absent")
    offer(index, "deep", "8")
    assert [m.partition(": ")[2] for _, m in installs(pair)] == [
        "the package index has nothing for deep>=9; its newest version is 8",
        "the package index has nothing for absent; it has no version of this package",
    ]


def test_a_contradiction_is_an_error_in_the_resolvers_words(pair: Patchq, index: Path, tmp_path: Path) -> None:
    bump(pair, tmp_path)
    for version in ("5", "6"):
        offer(index, "common", version)
    ((level, message),) = installs(pair, 1)
    assert level == "problem"
    assert "don't install together" in message
    assert "common==5" in message
    assert "common>=6" in message


def test_a_contradiction_beside_what_is_lacked(pair: Patchq, index: Path, tmp_path: Path) -> None:
    """It is an error whichever the resolver meets first."""
    release(tmp_path / "lib", "2.0.1", '"common==5", "rare>=2"')
    pair.ok("pin", "lib", "--url", str(tmp_path / "lib"), "--ref", "v2.0.1")
    (pair.root / "patches/lib/v2.0").rename(pair.root / "patches/lib/v2.0.1")
    pair.ok("apply")
    bump(pair, tmp_path)
    for version in ("5", "6"):
        offer(index, "common", version)
    level, message = installs(pair, 1)[-1]
    assert level == "problem"
    assert "common==5" in message


@pytest.mark.parametrize("words", [["--installs", "lib"], ["--installs", "--fix"]])
def test_it_is_a_look_of_its_own(pair: Patchq, words: list[str]) -> None:
    assert "--installs" in pair.fails(2, "check", *words)
