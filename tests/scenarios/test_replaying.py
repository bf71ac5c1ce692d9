"""Dockerfiles and images of edited packages: each edit becomes a patch, or a message names it.

The long form runs every shape on every layout: `python tests/replaying/long_form.py`.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kit import Patchq, new_project
from patchq.environment.image import read_image
from patchq.replay._instructions import Unset, expand, parse, split
from patchq.replay._shell import steps_of
from patchq.replay._verdicts import PackageNames
from replaying.comparing import compare
from replaying.packages import SITE, Layout, installed, layouts, write, write_wheels
from replaying.shapes import SHAPES
from test_image import Made

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
SAMPLE = [
    ("cd where Python says", 1),
    ("patches in a loop", 1),
    ("COPY a folder over site-packages", 0),
    ("compiled files", 2),
    ("COPY the environment from a stage", 1),
]


@linux
@pytest.mark.parametrize(("name", "layout"), SAMPLE, ids=[name for name, _ in SAMPLE])
def test_a_shape(name: str, layout: int, tmp_path: Path) -> None:
    result = compare(SHAPES[name], layouts()[layout], tmp_path)
    assert not result.unseen
    assert result.taken


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("apt-get install -y --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*", False),
        ("apk add --no-cache patch && rm -rf /x", False),
        ("apk add --no-cache patch && patch -p1 < /x.patch", True),
        ("apk add --no-cache patch\npatch -p1 < /x.patch", True),
        ("apt-get install -y \\\n  patch \\\n  git", False),
        ("cd /x; git apply y.patch", True),
    ],
)
def test_a_system_package_called_patch_is_no_edit(text: str, named: bool) -> None:
    names = PackageNames(files=["core.py"], tops=["widget"], place="/usr/lib/site-packages")
    assert names.are_in(text) is named


def test_instructions() -> None:
    text = b"# escape=`\nFROM x\nRUN a `\n  # not this\n\n  b <<A && c <<-'B'\n$x `\nA\n\ty\n\tB\nCOPY <<a.py /x\n1\na.py\nRUN echo $((1<<n))\n"
    found = parse(text, "Dockerfile")
    assert [(one.word, one.line) for one in found] == [("FROM", 2), ("RUN", 3), ("COPY", 11), ("RUN", 14)]
    assert [(here.text, here.plain) for here in found[1].heredocs] == [("$x `\n", False), ("y\n", True)]
    assert found[2].heredocs[0].text == "1\n"
    assert found[3].heredocs == ()
    mounts = parse(b"RUN --mount=type=bind,target=/a --mount=target=/b x\n", "Dockerfile")[0]
    assert mounts.all_flags("mount") == ["type=bind,target=/a", "target=/b"]
    assert mounts.value == "x"


def test_variables() -> None:
    values = {"A": "1", "E": ""}
    assert expand("${A:+x}${E:-y}${E-z}${B:-$A}\\$A", values) == "xy1$A"
    assert split("'$A' \"$A b\" c\\ d", values) == ["$A", "1 b", "c d"]
    with pytest.raises(Unset, match="B"):
        expand("$B", values)


def test_commands_are_split_only_where_a_failure_ends_the_build() -> None:
    texts = [step.text for step in steps_of("test -f x && sed a; cd /y && sed b\ntest -f z && sed c", "it")]
    assert texts == ["test -f x && sed a", "sed b", "test -f z", "sed c"]
    last = steps_of("A=1; cd /y && make; test -e x && cd /z && sed d; sed e", "it")[-1]
    assert last.setup == ("A=1", "cd /y", "cd /z")


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patchq:
    """A project with the compiled package, pinned by its archive, with its wheel in an index."""
    layout = layouts()[2]
    write_wheels(layout, tmp_path / "index")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in {
            **layout.tree,
            "PKG-INFO": b"Metadata-Version: 2.1\nName: widget\nVersion: 1.0\n",
        }.items():
            info = tarfile.TarInfo(f"widget-1.0/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "index/widget-1.0.tar.gz").write_bytes(data.getvalue())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    patchq = new_project(tmp_path / "fork")
    patchq.ok("pin", "widget", "--archive", "widget==1.0", "--ref", "v1.0")
    return patchq


def edited(layout: Layout) -> dict[str, bytes]:
    files = {**installed(layout), "widget/settings.py": b"TIMEOUT = 60\n", "widget/new.py": b"NEW = 1\n"}
    files["widget/data.json"] = b'{"a": 2}\n'
    del files["widget/client.py"]
    return {f"{SITE[1:]}/{name}": data for name, data in files.items()}


@linux
def test_without_the_wheel_not_everything_is_seen(pinned: Patchq, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM x\nRUN sed -i 's/10/60/' {SITE}/widget/settings.py\n")
    dry = ("import", "widget", str(tmp_path / "Dockerfile"), "--dry-run")
    wheels = list((tmp_path / "index").glob("*.whl"))
    for wheel in wheels:
        wheel.rename(tmp_path / wheel.name)
    said = pinned.run(*dry).output
    assert "the release's wheel is not available" in said
    assert "--most-download" in said
    assert "all would be adopted" not in said
    for wheel in wheels:
        (tmp_path / wheel.name).rename(wheel)
    assert "all would be adopted" in pinned.ok(*dry)


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_an_image(pinned: Patchq, tmp_path: Path, kind: str) -> None:
    files = edited(layouts()[2])
    image = tmp_path / "image"
    if kind == "folder":
        write(image, files)
    else:
        Made(pinned, [{}, files], {}).saved(image)
    said = pinned.ok("import", "widget", "--image", str(image), "--author", "me")
    assert "2 changed, 1 added and 1 removed files" in said
    pinned.ok("apply")
    tree = pinned.tree("widget")
    assert (tree / "widget/settings.py").read_bytes() == b"TIMEOUT = 60\n"
    assert (tree / "widget/data.json").read_bytes() == b'{"a": 2}\n'
    assert (tree / "widget/new.py").exists()
    assert not (tree / "widget/client.py").exists()


def test_an_image_with_changes_that_the_source_cannot_have(pinned: Patchq, tmp_path: Path) -> None:
    files = edited(layouts()[2])
    files[f"{SITE[1:]}/widget/_version.py"] = b"version = '2'\n"
    write(tmp_path / "image", files)
    said = pinned.fails(1, "import", "widget", "--image", str(tmp_path / "image"), "--author", "me")
    assert "widget/_version.py" in said
    pinned.ok("import", "widget", "--image", str(tmp_path / "image"), "--author", "me", "--partial")


def test_images_that_cannot_be_compared(pinned: Patchq, tmp_path: Path) -> None:
    same = {f"{SITE[1:]}/{name}": data for name, data in installed(layouts()[2]).items()}
    other = {f"{SITE[1:]}/{name}": data for name, data in installed(layouts()[2], "1.1").items()}
    twice = {**same, **{name.replace("opt/venv", "usr"): data for name, data in same.items()}}
    for name, files, said in (
        ("same", same, "widget in same contains exactly the files of the release"),
        ("other", other, "the image has widget 1.1, and the pinned release is 1.0"),
        ("none", {"etc/passwd": b""}, "none has no widget"),
        ("twice", twice, "twice has widget in several places"),
    ):
        write(tmp_path / name, files)
        assert said in pinned.fails(1, "import", "widget", "--image", str(tmp_path / name), "--author", "me")


def test_the_reader_keeps_what_it_is_told_to(pinned: Patchq, tmp_path: Path) -> None:
    path = Made(pinned, [{}, {"opt/data.bin": b"x"}], {}).saved(tmp_path / "image")
    with pytest.raises(OSError, match="was not kept"):
        read_image(path).files.read("/opt/data.bin")
    assert read_image(path, keep=["/opt/data.bin"]).files.read("/opt/data.bin") == b"x"


@linux
def test_the_wheel_s_own_files_are_there(pinned: Patchq, tmp_path: Path) -> None:
    place = tmp_path / "image"
    place.mkdir()
    (place / "Dockerfile").write_text(f"FROM x\nRUN for f in {SITE}/widget/_*.py; do echo 'X = 1' >> $f; done\n")
    said = pinned.fails(3, "import", "widget", str(place / "Dockerfile"), "--dry-run")
    assert "it changes files of the wheel that are missing or different in the source: widget/_version.py" in said
    assert "all would" not in said
    wheel = next((tmp_path / "index").glob("widget-1.0-*.whl"))
    assert "widget/_version.py" in zipfile.ZipFile(wheel).namelist()
