"""Hostile input: any bytes for any parser give a result or words; what only a bomb needs is refused early."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz
import parsers
import repetitive
from extent import LONG, record
from kit import Patchq, git
from patchq.errors import FormatError
from patchq.formats import series
from patchq.recipes.recipe import recipe_entries
from patchq.sources import archive

#: Those that start git for each input.
SLOW = {"import", "resolutions"}
#: What parsers stumble over: nesting, numbers that are none, marks that turn text around, line ends of all kinds.
PIECES = [
    b"[" * 3000, b"{\"a\":" * 3000, b"a=[" * 3000, b"9" * 5000, b"1e999", b"-1e999", b"NaN", b"Infinity", b"\0", b"\xff\xfe",
    "\u202e\u2066\u200b".encode(), b"\x1b]0;x\x07", b"\r", b"\r\n", "\u2028\x85".encode(), b"\n\n", b" " * 9000, b"\t",
    b"../", b"/" * 500, b"a/" * 2500, b"\"", b"\\", b"'''", b"=?utf-8?q?", b"=?x?b?!?=", b"From ", b"@@ -1,1 +1,1 @@",
    b"@@ -99999999999999999999,9 +1 @@", b"@@ -0,0 +0,0 @@", b"--- a/", b"+++ b/", b"diff --git a/x b/x", b"rename from ",
    b"old mode 160000", b"GIT binary patch", b"<<<<<<< ", b">>>>>>> ", b"=======", b"version = 2", b"true", b"[]", b"{}", b"null",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A seed with pieces cut out, doubled, replaced and put in; or bytes out of nothing."""
    whole = parsers.seeds(name)
    data = draw(st.sampled_from(whole)) if whole and draw(st.booleans()) else draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 4))):
        at, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=8), st.just(data[at:end])))
        end = at if draw(st.booleans()) else end
        data = data[:at] + piece + data[end:]
    return data


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    count = (2000 if LONG else 60) // (10 if name in SLOW else 1)

    @settings(max_examples=max(count, 10), derandomize=not LONG, database=None, suppress_health_check=list(HealthCheck))
    @given(damaged(name))
    def check(data: bytes) -> None:
        parsers.holds(name, data)

    check()
    record("property", parser=name, inputs=count)


FIXTURES = [(name, path) for name in parsers.PARSERS for path in parsers.fixtures(name)]


@pytest.mark.parametrize(("name", "path"), FIXTURES, ids=lambda v: v if isinstance(v, str) else v.name)
def test_what_was_found_before(name: str, path: Path) -> None:
    parsers.holds(name, path.read_bytes())


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_seeds_reach_the_parser(name: str) -> None:
    """A seed that is refused at its first byte would make all of the above say nothing."""
    read = 0
    for data in parsers.seeds(name):
        try:
            parsers.PARSERS[name](data)
            read += 1
        except FormatError:
            continue
    assert read or name == "resolutions"


@pytest.fixture(scope="module")
def fuzzed_together() -> dict[str, dict[str, Any]]:
    """Some inputs for each parser; what instruments them is most of it, and is started once."""
    return {} if LONG else fuzz.fuzz_each(list(parsers.PARSERS), 120, runs=200)


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_fuzzed_for_a_moment(name: str, fuzzed_together: dict[str, dict[str, Any]]) -> None:
    """The long form gives each parser minutes."""
    found = fuzz.fuzz(name, 30) if LONG else fuzzed_together[name]
    assert found["findings"] == 0, f"{found['input']!r}\n{found['message']}"
    assert found["inputs"] > 20, found
    record("fuzz", **found)


def test_the_fuzzer_finds_what_is_there(tmp_path: Path) -> None:
    """A parser with a hole in it: the fuzzer must see it, and make it short."""
    code = f"""
import sys
sys.argv = ["fuzz.py", "--one", "series", "-max_total_time=60", "-artifact_prefix={tmp_path}/"]
sys.path[:0] = {[str(fuzz.HERE), str(fuzz.HERE.parent), str(fuzz.HERE.parent.parent / "tools")]!r}
import atheris, fuzz
with atheris.instrument_imports(include=["patchq"]):
    import parsers
def hole(data):
    if data[:1] == b"h" and data[1:2] == b"o":
        raise KeyError("hole")
parsers.PARSERS["series"] = hole
fuzz.one("series", sys.argv[3:])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    (crash,) = tmp_path.glob("crash-*")
    assert crash.read_bytes().startswith(b"ho")


def test_a_finding_is_shown_if_it_cannot_be_minimised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(argv, options["timeout"])

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "message").write_text("ValueError: hole")
    (tmp_path / "crash-0").write_bytes(b"ho")
    found = fuzz._figures("recipes", 1, tmp_path, 77)
    assert found["findings"] == 1
    assert (found["input"], found["message"]) == ("ho", "ValueError: hole")


#: Digits that Python refuses to convert to a number.
DIGITS = "9" * 5000
#: Recipes that once ended in a traceback, or took time or memory without end.
RECIPES = {
    "pattern with two stars": "PATCHES=( a**b.patch )\n",
    "absolute pattern": "PATCHES=( /x*/a.patch )\n",
    "pattern of many folders": f"PATCHES=( {'*/' * 1000}a.patch )\n",
    "pattern in a long name": f"PATCHES=( {'a' * 260}/*.patch )\n",
    "long name": f"PATCHES=( {'a' * 400} )\n",
    "long name in bytes": f"PATCHES=( {'ä' * 200} )\nPatch0: {'ä' * 200}\n%prep\n%autosetup -p1\n",
    "folder without permission": "PATCHES=( /root /proc/1/root/x )\n",
    "pattern of Yocto": 'SRC_URI = "file://a**.patch"\n',
    "long name of Yocto": f'SRC_URI = "file://{"a" * 400}.patch"\n',
    "long include of Yocto": f'require {"a" * 400}.inc\nSRC_URI = "file://a.patch"\n',
    "number of a tag": f"Patch{DIGITS}: a.patch\n%prep\n%autosetup\n",
    "number of %patch": f"Patch0: a.patch\n%prep\n%patch{DIGITS} -p1\n",
    "number after -P": f"Patch0: a.patch\n%prep\n%patch -P {DIGITS} -p1\n",
    "number of %{PATCH}": f"Patch0: a.patch\n%prep\npatch -p1 < %{{PATCH{DIGITS}}}\n",
    "number in a comment": f"Patch0: a.patch\n%prep\n#%patch{DIGITS}\n",
    "superscript": "Patch0: a.patch\n%prep\n%autopatch -p² ² -m² -M²\n",
    "strip level of patch": f"prepare() {{\n patch -p{DIGITS} -i a.patch\n}}\n",
    "strip level of Nix": f'{{ patches = [ ./a.patch ]; patchFlags = [ "-p{DIGITS}" ]; }}',
    "strip level of Homebrew": f"class A < Formula\n patch :p{DIGITS}, :DATA\nend\n__END__\n--- a\n",
    "negations": f"%if {'!' * 1900}1\nPatch0: a.patch\n%endif\n%prep\n%autosetup\n",
    "braces": f"PATCHES=( {'{,}' * 1000} )\n",
    "braces that double": f"PATCHES=( {'{,}' * 30} )\n",
    "value that doubles": "A=aaaaaaaaaa\n" + "A=$A$A\n" * 40 + "PATCHES=( $A )\n",
    "value that grows": "A=aaaaaaaaaa\n" + "A=${A//a/aaaaaaaaaa}\n" * 40 + "PATCHES=( $A )\n",
    "array that doubles": "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 30 + 'PATCHES=( "${A[@]}" )\n',
    "lists of Nix": "let "
    + " ".join(f"x{n} = [" + f" x{n + 1}" * 6 + " ];" for n in range(14))
    + " x14 = ./a.patch; in { patches = x0; }",
    "strings of Nix": "let "
    + " ".join(f'x{n} = "' + f"${{x{n + 1}}}" * 8 + '";' for n in range(14))
    + ' x14 = "a"; in { patches = [ "${x0}" ]; }',
    "list without a name": "list(APPEND)\n",
    "list that doubles": "set(A a.patch)\n" + "list(APPEND A ${A} ${A})\n" * 40,
    "text that doubles": "set(A aaaaaaaa)\n" + "set(A ${A}${A})\n" * 40 + "vcpkg_from_github(PATCHES ${A})\n",
    "node inside itself": "a: &a\n  - b\n  - *a\n",
    "patches inside themselves": "source:\n  patches: &b [*b]\n",
    "source inside itself": "source: &a\n  - *a\n",
    "nodes that multiply": "a: &a0 [x,x]\n"
    + "".join(f"b{n}: &a{n + 1} [{','.join([f'*a{n}'] * 9)}]\n" for n in range(9))
    + "source:\n  patches: *a9\n",
    "list as a key": "source:\n  ? [a]\n  : b\n  patches:\n  - ? [x]\n    : y\n",
    "list as a condition": "source:\n  - if: [a]\n    then: {patches: [x]}\n",
    "character that is none": 'source: "\\UFFFFFFFF"\n',
    "version of YAML": f"%YAML {DIGITS}.1\n---\na: b\n",
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_read_or_refused(name: str) -> None:
    """Each takes less than ten seconds of CPU time, however busy the machine is."""

    def too_slow(*_: object) -> None:
        pytest.fail("took ten seconds of CPU time")

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, 10)
    try:
        parsers.holds("recipes", RECIPES[name].encode())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("text", ["A=aaaaaaaaaa\n" + "A=$A$A\n" * 40, ":\n" * 60_000, ": && " * 80 + ":\n"])
def test_a_recipe_that_is_too_long_is_refused(tmp_path: Path, text: str) -> None:
    """The patches after the limit must not be left out silently."""
    recipe = tmp_path / "PKGBUILD"
    recipe.write_text(f"{text}prepare() {{\n patch -p1 -i a.patch\n}}\n")
    with pytest.raises(FormatError, match="too long to read"):
        recipe_entries(recipe, "up")


def test_two_stars_mean_one_star(tmp_path: Path) -> None:
    """The shells of ebuilds and of makepkg don't search folders of any depth for ``**``."""
    for name in ("files/a-b.patch", "files/deep/c-b.patch"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    recipe = tmp_path / "up-1.ebuild"
    for pattern in ("files/**b.patch", "**/*b.patch"):
        recipe.write_text(f"PATCHES=( {pattern} )\n")
        assert [entry.text for entry in recipe_entries(recipe, "up")] == ["files/a-b.patch"]


#: Each takes minutes of processor time: the long form measures them.
SLOW = ("words", "python", "cmake", "cuda", "jinja", "import", "header", "scripts", "recipes")


@pytest.mark.parametrize("name", [n for n in repetitive.PARSERS if repetitive.LONG or n not in SLOW])
def test_cost_grows_with_size(name: str) -> None:
    """The long form tries larger inputs, and more of them."""
    measured = list(repetitive.measure(name))
    assert [row for row in measured if repetitive.too_costly(row)] == []
    record("repetitive", parser=name, inputs=len(measured))


def test_what_grows_faster_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> None:
        for at in range(0, len(data), 8):
            data.count(b"x", at)

    monkeypatch.setitem(repetitive.PARSERS, "slow", slow)
    assert any(repetitive.too_costly(row) for row in repetitive.measure("slow"))


# Too much of it


def within(megabytes: int, work: Callable[[], object]) -> None:
    """Run ``work`` in a child that may take so much memory; what it raises comes back as its exit code."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)
            work()
            code = 0
        except FormatError:
            code = 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "was not refused within that memory"


def bomb(path: Path, info: tarfile.TarInfo, body: int) -> Path:
    """A small compressed archive with one member of ``body`` zeros."""
    with gzip.open(path, "wb", compresslevel=9) as out:
        for name in ("p-1/a.txt",):
            first = tarfile.TarInfo(name)
            out.write(first.tobuf(tarfile.GNU_FORMAT))
        info.size = body
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(body >> 20):
            out.write(bytes(1 << 20))
        out.write(bytes(1024))
    return path


def read_all(path: Path) -> None:
    with path.open("rb") as file, archive.opened_archive(file, path.name) as tar:
        for member in archive.members(tar, path.name):
            while not isinstance(member.data, bytes) and member.data.read(1 << 20):
                pass


def test_an_archive_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBER", 64 << 20)
    path = bomb(tmp_path / "bomb.tar.gz", tarfile.TarInfo("p-1/zeros"), 128 << 20)
    assert path.stat().st_size < 1 << 20
    within(32, lambda: read_all(path))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_bomb_in_a_header(tmp_path: Path, kind: bytes) -> None:
    """tarfile reads an extended header into memory, whatever size it says it has."""
    info = tarfile.TarInfo("p-1/long")
    info.type = kind
    within(64, lambda: read_all(bomb(tmp_path / "bomb.tar.gz", info, 256 << 20)))


def test_a_member_is_never_held_whole(empty: Patchq) -> None:
    """A file that a source tree may have: it goes through in pieces."""
    path = bomb(empty.root / "p-1.tar.gz", tarfile.TarInfo("p-1/zeros"), 200 << 20)
    empty.ok("pin", "p", "--archive", f"./{path.name}", "--ref", "v1")
    code = f"""
import sys
from kit import Patchq
from pathlib import Path
import patchq.store.pinning, patchq.sources.archive
done = Patchq(Path({str(empty.root)!r})).run("fetch")
# Not getrusage: that begins with what the process had that started this one.
print(done.output, Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
sys.exit(done.exit_code)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) < 150 << 10  # KiB


def test_more_members_than_any_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders count too: a million of them are small."""
    monkeypatch.setattr(archive, "MAX_MEMBERS", 1000)
    path = tmp_path / "many.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number in range(1001):
            info = tarfile.TarInfo(f"p-1/d{number}")
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    with pytest.raises(FormatError, match="larger than any source tree"):
        read_all(path)


@pytest.mark.parametrize(
    "name", ["p-1/" + "a/" * 3000 + "x", "p-1/" + "n" * 300, "p-1/\udcff/../x", "p-1/.git/x", "p-1/a\0b"]
)
def test_names_that_no_tree_has(empty: Patchq, name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path in ("p-1/a.txt", name):
            info = tarfile.TarInfo(path)
            tar.addfile(info, io.BytesIO())
    (empty.root / "p-1.tar.gz").write_bytes(out.getvalue())
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    said = empty.run("fetch")
    if "\0" in name:
        return  # tar itself ends the name there
    assert said.exit_code == 1
    assert "nothing was imported" in said.output
    assert git(empty.layout.store, "for-each-ref", "refs/patchq/base") == ""


def test_odd_names_are_carried_and_shown_harmless(empty: Patchq) -> None:
    """Control characters, marks that turn text around, bytes that are no UTF-8: in the tree as they are, never on a terminal."""
    names = [
        "p-1/\x1b[31mred",
        "p-1/\u202eevil",
        "p-1/new\nline",
        'p-1/"quoted"',
        "p-1/\udcff\udcfe",
        "p-1/-rf",
        "p-1/ space ",
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"a\n"))
    (empty.root / "p-1.tar.gz").write_bytes(out.getvalue())
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    empty.ok("apply")
    found = {os.fsencode(path.name) for path in empty.tree("p").iterdir() if path.name != ".git"}
    assert found == {os.fsencode(name.split("/", 1)[1]) for name in names}
    for path in empty.tree("p").iterdir():
        if path.name != ".git":
            path.write_bytes(b"b\n")
    shown = empty.ok("new", "p", "odd", "-m", "Odd names\n\nWhy.") + empty.ok("status") + empty.ok("show", "odd")
    assert not [c for c in shown if not c.isprintable() and c != "\n"]
    empty.ok("apply")
    # The patch file holds them quoted, as git does, and carries them.
    git(empty.layout.store, "worktree", "remove", "--force", str(empty.tree("p")))
    empty.layout.state("p").unlink()
    empty.ok("apply")
    assert {path.read_bytes() for path in empty.tree("p").iterdir() if path.name != ".git"} == {b"b\n"}


LIMITS: dict[str, tuple[Callable[[Patchq], Path], int, str]] = {
    "lock": (lambda p: p.layout.lock, 5 << 20, "upstream.lock"),
    "series": (lambda p: p.layout.stack("up", "v1") / "series", 20 << 20, "series"),
    "patch": (lambda p: p.patch_file("first"), 300 << 20, "first.patch"),
}


def bytes_read() -> int:
    """The bytes that this process and its children have read, of files or elsewhere: see proc(5)."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("what", LIMITS)
def test_a_file_that_is_too_large_is_not_read(stack: Patchq, what: str) -> None:
    """A sparse file of ten gigabytes costs nobody anything to send."""
    place, size, name = LIMITS[what]
    os.truncate(place(stack), 10 << 30)
    before = bytes_read()
    out = stack.fails(1, "apply")
    assert "the limit is" in out
    assert name in out
    assert bytes_read() - before < 2 << 30
    os.truncate(place(stack), size)
    assert "the limit is" in stack.fails(1, "apply")


def test_a_series_of_too_many(stack: Patchq) -> None:
    path = stack.layout.stack("up", "v1") / "series"
    path.write_text("".join(f"p{n}.patch\n" for n in range(series.MOST + 1)))
    assert f"more than {series.MOST} patches" in stack.fails(1, "apply")


def test_a_state_of_another_shape_is_rebuilt(stack: Patchq) -> None:
    for body in ({"version": 1}, {"version": 1, "patches": 3}, {"version": 1, "patches": [[1]], "pin": []}):
        stack.layout.state("up").write_text(json.dumps(body))
        assert "up" in stack.ok("apply")
    stack.layout.state("up").write_text("[" * 100_000)
    assert "move" in stack.fails(1, "apply")
