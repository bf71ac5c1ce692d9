"""Every parser that reads what somebody else wrote: any bytes give a result or an error that is explained.

Both the property tests and the coverage-guided fuzzer (``python tests/reliability/fuzz.py``) run these.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from kit import ROOT
from patchq.adopt import _diffs, _mails, _monkey
from patchq.errors import PatchqError
from patchq.formats import diff, header, ledger, lock, lockedit, measurements, series, treepath
from patchq.formats.diff import Mismatch, Unsupported
from patchq.git.mergetree import Stage
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git, init_store
from patchq.merge import rerere
from patchq.names import BlobId
from patchq.project import stack
from patchq.recipes.recipe import recipe_entries
from patchq.replay import _instructions, _shell
from patchq.replay.scripts import find_moves
from patchq.sources import archive as archives
from patchq.store import bundle
from patchq.system import fsio
from patchq.system.paths import Layout

WHERE = "input"


def lock_(data: bytes) -> None:
    found = lock.parse(data, WHERE)
    for name in found.sets:
        found.pins_of(name)
    for upstream in found.upstreams.values():
        for pin in upstream.pins.values():
            assert lock.parse(lockedit.with_pin(data, upstream, pin, found.default_set or "set")).upstreams


def series_(data: bytes) -> None:
    found = series.parse(data, WHERE)
    assert series.parse(found.with_names(found.names).dump(), WHERE).names == found.names


def patch_header(data: bytes) -> None:
    found, _ = header.parse(data, WHERE)
    found.trailers, found.needs, found.author.line()
    header.parse_trailers(header.without_ours(header.mail_safe(found.message)))


def diff_(data: bytes) -> None:
    with contextlib.suppress(Unsupported):
        for file in diff.parse(data, WHERE):
            for path in file.paths:
                treepath.check_tree_path(path, WHERE)
            with contextlib.suppress(Mismatch):
                diff.apply_hunks(file.hunks, b"line 1\nline 2\nline 3\n")


def ledger_(data: bytes) -> None:
    found = ledger.parse(data)
    ledger.costs(found)
    ledger.hot_files(found)
    again = ledger.parse(b"".join(a.line() for a in found.attempts))
    assert again.attempts == found.attempts
    assert not again.problems


def measurement_file(data: bytes) -> None:
    measurements.read_file(data, WHERE)


def measurement_ledger(data: bytes) -> None:
    found, _ = measurements.parse(data)
    assert measurements.parse(b"".join(m.line() for m in found))[0] == found


def targets(data: bytes) -> None:
    measurements.parse_goals(data, WHERE)


def state(data: bytes) -> None:
    """What `apply` remembers, below .patchq."""
    with contextlib.suppress(KeyError, TypeError, ValueError):  # as load_state takes them: rebuilt
        stack._state(fsio.load_state(data, Path(WHERE), stack.STATE_VERSION))


def archive(data: bytes) -> None:
    """An archive's members, as they are checked before git is given them."""
    with archives.opened_archive(io.BytesIO(data), WHERE) as tar:
        for member in archives.members(tar, WHERE):
            if not isinstance(member.data, bytes):
                member.data.read(1 << 20)


def bundle_manifest(data: bytes) -> None:
    bundle._manifest(data, WHERE)


def resolutions(data: bytes) -> None:
    """rerere's cache: a preimage and a postimage, here one after the other."""
    before, _, after = data.partition(b"\0")
    short = rerere.cut_down(before[:4000], after[:4000])
    rerere.is_settled(short[1])
    git = _repository()
    stages = [Stage(b"a.txt", rerere_entry(git, text), n) for n, text in ((1, b"base\n"), (2, before), (3, after))]
    parked = {b"a.txt": b"<<<<<<< ours\n" + before[:2000] + b"\n=======\n" + after[:2000] + b"\n>>>>>>> theirs\n"}
    with tempfile.TemporaryDirectory() as text:
        layout = Layout(Path(text))
        case = rerere.recorded(layout, "up") / "0123456789abcdef0123456789abcdef01234567"
        case.mkdir(parents=True)
        (case / "preimage").write_bytes(before)
        (case / "postimage").write_bytes(after)
        rerere.replay(git, stages, parked, layout, "up")


def patches_to_import(data: bytes) -> None:
    """What ``patchq import`` is given: mails, an mbox, a plain diff."""
    for found in _mails.read_data(data, "input", "input", 1):
        with contextlib.suppress(_diffs.OddDiff):
            parts = _diffs.sections(found.diff)
            files = [b"a.txt", b"src/b.txt"]
            placing = _diffs.find_placing(parts, files, _diffs.Placing()) or _diffs.Placing()
            _diffs.as_git(parts, placing, files)


def scripts(data: bytes) -> None:
    """What ``patchq import`` looks for commands in: a Dockerfile, a script, and monkey patches."""
    files = [b"a.txt", b"src/b.txt"]
    for instruction in _instructions.parse(data, "Dockerfile"):
        with contextlib.suppress(_instructions.Unset):
            _instructions.split(instruction.value, {"A": "b"})
    find_moves(_shell.script_steps(data, "script"), files)
    _monkey.replacements(data.decode("utf-8", "replace"), files)


def recipes(data: bytes) -> None:
    """Recipes of each packager."""
    names = ("up_1.0.bb", "up.spec", "up.nix", "meta.yaml", "PKGBUILD", "up-1.ebuild", "up.rb", "portfile.cmake")
    with tempfile.TemporaryDirectory() as text:
        for name in names:
            path = Path(text) / name
            path.write_bytes(data)
            with contextlib.suppress(PatchqError):  # none of the patches is there
                for entry in recipe_entries(path, "up"):
                    entry.words("up")


_kept: list[tuple[tempfile.TemporaryDirectory[str], Git]] = []


def _repository() -> Git:
    """One repository for all calls: what is tried leaves no refs."""
    if not _kept:
        folder = tempfile.TemporaryDirectory()
        _kept.append((folder, init_store(Path(folder.name) / "store.git")))
    return _kept[0][1]


def rerere_entry(git: Git, content: bytes) -> TreeEntry:
    return TreeEntry(b"100644", BlobId(git.run("hash-object", "-w", "--stdin", data=content).decode().strip()))


#: What a fuzzer can call ten thousand times a second comes first; the last three start git.
PARSERS: dict[str, Callable[[bytes], None]] = {
    "lock": lock_,
    "series": series_,
    "header": patch_header,
    "diff": diff_,
    "ledger": ledger_,
    "measurement": measurement_file,
    "measurements": measurement_ledger,
    "targets": targets,
    "state": state,
    "archive": archive,
    "bundle": bundle_manifest,
    "scripts": scripts,
    "recipes": recipes,
    "import": patches_to_import,
    "resolutions": resolutions,
}


def holds(name: str, data: bytes) -> None:
    """Run a parser: it may refuse, in words; anything else that it raises is a finding."""
    try:
        PARSERS[name](data)
    except PatchqError as error:
        if not (error.message and error.hint):
            raise AssertionError(f"{name}: refused without a word") from error


def fixtures(name: str) -> list[Path]:
    """Minimised findings: what a parser once fell over."""
    return sorted((Path(__file__).parent / "fixtures" / name).glob("*"))


def seeds(name: str) -> list[bytes]:
    """Whole inputs to begin with: this project's own files, where it has some."""
    patches = sorted((ROOT / "patches").glob("*/*/*.patch"), key=lambda p: p.stat().st_size)[:12]
    found: list[bytes] = [path.read_bytes() for path in fixtures(name)]
    if name == "lock":
        found += [(ROOT / "upstream.lock").read_bytes(), lockedit.EMPTY]
    elif name == "series":
        found += [path.read_bytes() for path in sorted((ROOT / "patches").glob("*/*/series"))[:5]]
    elif name in ("header", "diff", "import"):
        found += [p.read_bytes() for p in patches]
    elif name == "ledger":
        found += [
            b"".join(p.read_bytes().splitlines(keepends=True)[:5]) for p in (ROOT / "patches").glob("*/ledger.jsonl")
        ]
    elif name == "measurement":
        found += [p.read_bytes() for p in sorted((ROOT / "measurements" / "files").iterdir())[:6]]
        found += [b'[{"build_commit":"a","model_filename":"m","n_prompt":512,"n_gen":0,"avg_ts":1.5,"stddev_ts":0.1}]']
    elif name == "measurements":
        found += [(ROOT / "measurements" / "ledger.jsonl").read_bytes()[:4000]]
    elif name == "targets":
        found += [(ROOT / "measurements" / "targets.toml").read_bytes()]
    elif name == "state":
        body = {
            "version": 1, "set": "s", "ref": "v1", "pin": ["a", "b", "c"], "base": "d", "source": "git", "tip": "e",
            "tree": "f", "patches": [["n", [1, 2, 3], "g", "h", [["a.txt", 1, 2]]]],
        }  # fmt: skip
        found += [json.dumps(body).encode()]
    elif name == "archive":
        found += [_tar("gz"), _tar("")]
    elif name == "bundle":
        digest = "a" * 64
        found += [json.dumps({
            "version": 1, "set": "s", "files": {
                "project/upstream.lock": [3, digest], f"archives/{digest}/x": [1, digest], "packs/u.pack": [1, digest],
            },
            "pins": [{"upstream": "u", "ref": "v1", "source": "git", "commit": "c"}], "trees": {"u": "t"},
        }).encode()]  # fmt: skip
    elif name == "scripts":
        found += [
            b"FROM x\nENV A=b\nWORKDIR /s\nCOPY a.txt /tmp/\nRUN sed -i s/a/b/ /s/a.txt && cp /tmp/a.txt b.txt || true\n"
            b"RUN <<EOF\nsed -i s/a/b/ a.txt\nEOF\n",
            b"import src.b as b\nb.f = g\nsetattr(b, 'h', 1)\n",
        ]
    elif name == "recipes":
        found += [
            b'SRC_URI = "file://a.patch;striplevel=2 \\\n file://b.patch;patchdir=src"\nSRC_URI:append = " file://c.patch"\n',
            b"%global x a\nPatch0: %{x}.patch\n%prep\n%autosetup -N -p1\n%if 0%{?y}\n%patch -P 0 -p1 -R\n%endif\n",
            b'{ lib }: { patches = [ ./a.patch ] ++ lib.optional true ./b.patch; patchFlags = [ "-p0" ]; }',
            b"source:\n  - patches:\n    - a.patch  # [win]\n    - if: win\n      then: b.patch\n",
            b'A=(a b)\nprepare() {\n cd x\n for i in "${A[@]}"; do patch -p1 -i "$i.patch"; done\n}\n',
            b'PATCHES=( "${FILESDIR}"/a.patch )\nsrc_prepare() {\n default\n use b && eapply -p0 files/b.patch\n}\n',
            b'class A < Formula\n  patch :DATA\n  patch do\n    url "https://h.org/b"\n  end\nend\n__END__\n--- a\n',
            b"vcpkg_from_github(OUT_SOURCE_PATH S PATCHES a.patch ${B} REF v1)\nif(W)\nlist(APPEND B b.patch)\nendif()\n",
        ]
    elif name == "resolutions":
        found += [b"a\n<<<<<<<\nb\n=======\nc\n>>>>>>>\nd\n\0a\nb\nc\nd\n"]
    return found


def _tar(compression: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}", format=tarfile.PAX_FORMAT) as tar:
        for path in ("p-1/a.txt", "p-1/b/\N{GREEK SMALL LETTER ALPHA}" * 40):
            info = tarfile.TarInfo(path)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"a\n"))
    return out.getvalue()
