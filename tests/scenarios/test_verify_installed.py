"""`verify-installed` on real environments: every way to be another build than the one that patchq made."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import marshal
import os
import py_compile
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kit import ROOT, Patchq
from patchq.build.wheel import record_line
from patchq.cli import cli
from patchq.cli.differences import SENTENCES
from patchq.environment import verify
from test_build import built, make_pair
from test_image import NAMESPACE


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Patchq, Path]:
    """A project with two built wheels, and a virtual environment that pip installed them into."""
    root = tmp_path_factory.mktemp("verify")
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("GIT_", "PIP_"))]:
            patch.delenv(name)
        (root / "home").mkdir()
        (root / "home" / ".gitconfig").write_text("[user]\n\tname = T\n\temail = t@example.org\n")
        for name, value in {
            "HOME": str(root / "home"), "XDG_CONFIG_HOME": str(root / "home"), "PIP_NO_INDEX": "1",
            "PATCHQ_CACHE": str(root / "cache"), "GIT_CONFIG_NOSYSTEM": "1",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        patchq = Patchq(root / "project")
        assert CliRunner().invoke(cli, ["init", str(patchq.root)]).exit_code == 0
        wheels = built(make_pair(patchq, root, patch))
        from patchq.sources.index import pip_settings

        pip_settings.cache_clear()
        venv = root / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "-q"]
        subprocess.run(
            [*install, "--no-deps", "--no-index", *map(str, wheels.values())], check=True, capture_output=True
        )
    return patchq, venv


def setuptools_template() -> str:
    """What setuptools writes for an editable install that a path can't express; its mapping left open."""
    from setuptools.command.editable_wheel import _finder_template

    return str(_finder_template("__editable__.tool-1.finder", {"{mapping}": ""}, {})).replace(
        "{'{mapping}': ''}", "{mapping}"
    )


class Environment:
    """A copy of that environment to be tampered with."""

    def __init__(self, patchq: Patchq, venv: Path, elsewhere: Path) -> None:
        self.patchq, self.venv = patchq, venv
        self.python = venv / "bin" / "python"
        self.site = next((venv / "lib").glob("python*/site-packages"))
        self.elsewhere = elsewhere

    @property
    def info(self) -> Path:
        return next(self.site.glob("lib-1.0+patchq.*.dist-info"))

    def look(self, *args: str, project: bool = True, python: str = "") -> dict[str, Any]:
        """The verdict as JSON: never a traceback."""
        told: dict[str, Any] = json.loads(self._run("--json", *args, project=project, python=python))
        assert all(d["message"].isprintable() for d in all_differences(told))
        return told

    def words(self, *args: str, project: bool = True) -> str:
        """The same for people."""
        return self._run(*args, project=project)

    def _run(self, *args: str, project: bool, python: str = "") -> str:
        root = self.patchq.root if project else self.elsewhere
        command = ["--project", str(root), "verify-installed", "--python", python or str(self.python), *args]
        done = CliRunner().invoke(cli, command)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        assert done.exit_code in (0, 1), done.output
        assert "Traceback" not in done.output, done.output
        if "--json" in args:
            assert json.loads(done.output).get("ok", False) == (done.exit_code == 0)
        return done.output

    def codes(self, *args: str, project: bool = True) -> set[str]:
        """What is wrong, by code."""
        return {d["code"] for d in all_differences(self.look(*args, project=project)) if d["level"] == "problem"}

    def lib(self, *args: str, project: bool = True) -> dict[str, Any]:
        told = self.look(*args, project=project)
        found: dict[str, Any] = next(p for p in told["packages"] if p["origin"].endswith("/lib") or p["origin"] == "")
        return found

    def record(self, *names: str, info: Path | None = None) -> None:
        """Forge RECORD, so that it has these files as they are now."""
        path = (info or self.info) / "RECORD"
        rows = [row for row in csv.reader(io.StringIO(path.read_text())) if row[0] not in names]
        rows += [list(record_line(name, (self.site / name).read_bytes())) for name in names]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        path.write_text(out.getvalue())

    def move_scripts(self, old: Path) -> None:
        """Have the copy's scripts start the copy's Python, as if it had been installed here."""
        for name in ("lib", "app"):
            script = self.venv / "bin" / name
            script.write_bytes(script.read_bytes().replace(bytes(old), bytes(self.venv)))
            self.record(os.path.relpath(script, self.site), info=next(self.site.glob(f"{name}-1.0+patchq.*.dist-info")))

    def manifest(self, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.site / "lib" / "_patchq.json"
        raw = json.loads(path.read_text())
        change(raw)
        path.write_text(json.dumps(raw, indent=1, sort_keys=True))

    def runs(self, code: str) -> str:
        done = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True)
        return done.stdout + done.stderr

    def cache(self, name: str = "lib/other.py") -> Path:
        return Path(importlib.util.cache_from_source(str(self.site / name)))


def all_differences(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [*told.get("differences", ()), *(d for p in told.get("packages", ()) for d in p["differences"])]


@pytest.fixture
def env(template: tuple[Patchq, Path], tmp_path: Path) -> Environment:
    patchq, venv = template
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    environment = Environment(patchq, copy, tmp_path)
    environment.move_scripts(venv)
    return environment


@pytest.mark.parametrize("name", ["x.pth", "linked.pth", "pyvenv.cfg", "pybuilddir.txt"])
def test_a_pipe_that_python_reads_at_its_start(env: Environment, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(verify, "START_S", 10)  # for the failure to come sooner
    folders = {"pyvenv.cfg": env.venv, "pybuilddir.txt": env.python.parent}
    path = folders.get(name, env.site) / name
    path.unlink(missing_ok=True)
    os.mkfifo(env.elsewhere / "pipe")
    if name == "linked.pth":
        path.symlink_to(env.elsewhere / "pipe")
    else:
        (env.elsewhere / "pipe").rename(path)
    assert env.look()["message"] == f"{path} is not a regular file, and Python would wait for it"


def test_what_was_built_and_installed_is_told_as_that(env: Environment) -> None:
    told = env.look()
    assert told["ok"], told
    assert {p["state"] for p in told["packages"]} == {"patched"}
    assert all(p["reference"] == "wheel" for p in told["packages"])
    assert all(p["against"].startswith("dist/default/") for p in told["packages"])
    assert not [d for d in all_differences(told) if d["level"] == "problem"]
    stack = told["packages"][0]["stack_id"]
    outside = env.look("--stack-id", stack[:8], project=False)
    assert outside["ok"]
    assert {p["reference"] for p in outside["packages"]} == {"stack"}
    assert outside["packages"][0]["against"] == f"stack id {stack[:8]}, its files only against its own RECORD"
    alone = env.look(project=False)
    assert alone["ok"]
    assert {p["reference"] for p in alone["packages"]} == {"itself"}
    assert all(p["against"].startswith("consistent with itself only") for p in alone["packages"])
    given = env.look("--dist", str(env.patchq.layout.dist / "default"), project=False)
    assert {p["reference"] for p in given["packages"]} == {"wheel"}
    assert env.look("lib", project=False)["packages"][0]["state"] == "patched"
    assert "holds no wheels" in env.look("--dist", str(env.elsewhere), project=False)["message"]
    assert env.codes("--stack", "0" * 8, project=False) == {"other-stack"}
    words = env.words()
    assert "live: lib/answer" in words
    assert "checked against: dist/default/lib-1.0+patchq." in words
    assert "checked against: consistent with itself only" in env.words(project=False)


def test_the_next_step_builds_wheels_that_are_missing_or_old(env: Environment) -> None:
    folder = env.patchq.layout.dist / "default"
    pip = f"{env.python} -m pip install --force-reinstall --no-deps -r "
    (env.site / "lib" / "__init__.py").write_bytes(b"")
    assert f"\nnext: {pip}" in env.words()
    aside = folder.rename(env.patchq.root / "aside")
    try:
        assert f"\nnext: patchq build\nthen: {pip}" in env.words()
        shutil.copytree(aside, folder)
        requirements = folder / "requirements.txt"
        head, _, rest = requirements.read_text().partition("\n")
        requirements.write_text(f"{head[:-64]}{'0' * 64}\n{rest}")
        assert f"\nnext: patchq build\nthen: {pip}" in env.words()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)


# Files


def test_a_changed_file_that_the_manifest_does_not_name(env: Environment) -> None:
    (env.site / "lib" / "other.py").write_text("x = 666\n")
    lib = env.lib()
    assert lib["state"] == "altered"
    assert "changed since the build: lib/other.py" in lib["problems"]
    assert env.codes(project=False) == {"changed"}


def test_a_change_of_the_same_length_and_time(env: Environment) -> None:
    path = env.site / "lib" / "other.py"
    stat = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "changed" in env.codes(project=False)


def test_a_file_that_is_gone(env: Environment) -> None:
    (env.site / "lib" / "other.py").unlink()
    env.cache().unlink()
    assert env.codes() == {"missing"}
    assert env.codes(project=False) == {"missing"}


@pytest.mark.parametrize(
    "name",
    [
        "lib/evil.py", "lib/other.cpython-311-x86_64-linux-gnu.so", "lib/sub/evil.py", "lib/__pycache__/evil.py",
        "lib/other.pyc", "lib/__pycache__/evil.pth", "lib/evil\n.py", "lib/\udcff.py", "lib/\x1b[31m.py",
    ],
)  # fmt: skip
def test_an_added_file(env: Environment, name: str) -> None:
    path = env.site / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    assert env.codes() == {"added"}
    assert "\x1b" not in env.words(project=False)


def test_an_added_file_of_the_metadata(env: Environment) -> None:
    (env.info / "more.txt").write_text("x\n")
    assert env.codes(project=False) == {"added"}


def test_a_file_that_another_distribution_put_into_the_package(env: Environment) -> None:
    other = env.site / "evil-1.dist-info"
    other.mkdir()
    (env.site / "lib" / "evil.py").write_bytes(b"")
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (other / "RECORD").write_text("lib/evil.py,,\n")
    assert "lib/evil.py (of evil)" in env.lib(project=False)["problems"][0]


def test_links_and_what_is_no_file(env: Environment) -> None:
    path = env.site / "lib" / "other.py"
    real = env.elsewhere / "other.py"
    shutil.copy2(path, real)
    path.unlink()
    path.symlink_to(real)
    assert env.codes() == {"link"}
    path.unlink()
    os.mkfifo(path)
    assert env.codes(project=False) == {"special"}
    path.unlink()
    path.mkdir()
    assert env.codes(project=False) == {"special"}
    path.rmdir()
    path.symlink_to("other.py")
    assert env.codes(project=False) == {"link"}


def test_a_package_that_is_a_link(env: Environment) -> None:
    shutil.move(str(env.site / "lib"), env.elsewhere / "lib")
    (env.site / "lib").symlink_to(env.elsewhere / "lib")
    told = env.look()
    assert not told["ok"]
    assert "record-missing" in {d["code"] for d in all_differences(told)} | {"link"}
    (env.site / "lib").unlink()
    shutil.move(str(env.elsewhere / "lib"), env.site / "real")
    (env.site / "lib").symlink_to("real")
    assert not env.look()["ok"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cant_be_read(env: Environment) -> None:
    (env.site / "lib" / "other.py").chmod(0)
    assert "unreadable" in env.codes(project=False)
    (env.site / "lib").chmod(0)
    env.look(project=False)
    (env.site / "lib").chmod(0o755)


# Forgeries


def test_file_and_manifest_forged_together(env: Environment) -> None:
    path = env.site / "lib" / "__init__.py"
    path.write_text("def answer():\n    return 666\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    env.manifest(lambda raw: raw["files"].update({"lib/__init__.py": digest}))
    lib = env.lib(project=False)
    assert [d["code"] for d in lib["differences"] if d["level"] == "problem"] == ["changed"]
    assert lib["differences"][0]["paths"] == ["lib/__init__.py", "lib/_patchq.json"]


def test_file_and_record_forged_together(env: Environment) -> None:
    (env.site / "lib" / "__init__.py").write_text("def answer():\n    return 666\n")
    env.record("lib/__init__.py")
    assert env.codes(project=False) == {"manifest-disagrees"}, "the manifest names it"
    assert env.codes() == {"manifest-disagrees", "wheel-differs"}


def test_file_manifest_and_record_forged_together(env: Environment) -> None:
    """Only something from outside can tell; without it that is said."""
    path = env.site / "lib" / "__init__.py"
    path.write_text("def answer():\n    return 666\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    env.manifest(lambda raw: raw["files"].update({"lib/__init__.py": digest}))
    env.record("lib/__init__.py", "lib/_patchq.json")
    (env.site / "lib" / "other.py").write_text("x = 666\n")
    (env.site / "lib" / "more.py").write_text("")
    env.record("lib/other.py", "lib/more.py")
    alone = env.lib(project=False)
    assert alone["problems"] == []
    assert alone["against"].startswith("consistent with itself only")
    stack = env.lib("--stack", alone["stack_id"], project=False)
    assert (stack["reference"], stack["problems"]) == ("stack", [])
    assert "only against its own RECORD" in stack["against"]
    lib = env.lib()
    assert lib["state"] == "altered"
    (wrong,) = [d for d in lib["differences"] if d["level"] == "problem"]
    assert wrong["code"] == "wheel-differs"
    assert wrong["paths"] == ["lib/__init__.py", "lib/_patchq.json", "lib/more.py", "lib/other.py"]
    assert env.codes("--dist", str(env.patchq.layout.dist / "default"), project=False) == {"wheel-differs"}


def test_a_file_taken_out_of_record_too(env: Environment) -> None:
    (env.site / "lib" / "other.py").unlink()
    env.cache().unlink()
    path = env.info / "RECORD"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "other" not in line))
    assert env.codes(project=False) == set()
    assert env.codes() == {"wheel-differs"}


def test_a_manifest_that_claims_other_patches(env: Environment) -> None:
    """Its stack id is one over what it names, so that it can't name other patches under the id that was asked for."""

    def more(raw: dict[str, Any]) -> None:
        upstream = next(u for u in raw["upstreams"] if u["name"] == "lib")
        upstream["patches"].append({**upstream["patches"][0], "name": "fixes-everything"})

    env.manifest(more)
    env.record("lib/_patchq.json")
    assert env.codes(project=False) == {"manifest-disagrees"}
    assert "its pins and patches give another stack id" in env.lib(project=False)["problems"][0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("distribution", "other"), ("package", "other"), ("version", "1.0+patchq.00000000"), ("stack_id", "0" * 64)],
)
def test_a_manifest_of_something_else(env: Environment, field: str, value: str) -> None:
    env.manifest(lambda raw: raw.update({field: value}))
    env.record("lib/_patchq.json")
    assert env.codes(project=False)
    assert "manifest-disagrees" in env.codes()


def test_a_wheel_that_was_changed_in_dist(env: Environment, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(env.patchq.root, project, symlinks=True)
    env.patchq = Patchq(project)
    wheel = next((env.patchq.layout.dist / "default").glob("lib-*.whl"))
    with zipfile.ZipFile(wheel) as zf:
        members = {i.filename: zf.read(i) for i in zf.infolist()}
    record = next(n for n in members if n.endswith("/RECORD"))
    members["lib/other.py"] = b"x = 666\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 666\n").digest()).rstrip(b"=").decode()
    lines = [line for line in members[record].decode().splitlines() if not line.startswith("lib/other.py")]
    members[record] = "\n".join([*lines, f"lib/other.py,sha256={digest},8", ""]).encode()
    with zipfile.ZipFile(wheel, "w") as zf:
        for name, data in members.items():
            zf.writestr(name, data)
    (env.site / "lib" / "other.py").write_bytes(b"x = 666\n")
    env.record("lib/other.py")
    assert env.codes() == {"wheel-changed"}
    wheel.write_bytes(b"PK no wheel")
    told = env.look()
    assert told["ok"], "a stack id is left to hold it against"
    assert any("can't be compared with" in note for note in told["notes"])
    assert next(p for p in told["packages"] if p["distribution"] == "lib")["reference"] == "stack"


# Compiled caches


def forge(env: Environment, source: str, name: str = "lib/other.py", **options: Any) -> None:
    """A cache that Python takes for the source that is there."""
    path = env.site / name
    evil = env.elsewhere / "evil.py"
    evil.write_text(source)
    stat = path.stat()
    made = Path(py_compile.compile(str(evil), cfile=str(env.elsewhere / "evil.pyc"), doraise=True))
    data = bytearray(made.read_bytes())
    data[8:16] = int(stat.st_mtime).to_bytes(4, "little") + stat.st_size.to_bytes(4, "little")
    Path(importlib.util.cache_from_source(str(path), **options)).write_bytes(data)


def test_a_forged_cache(env: Environment) -> None:
    assert "666" not in env.runs("import lib.other; print(lib.other.x)")
    forge(env, "x = 666\n")
    assert "666" in env.runs("import lib.other; print(lib.other.x)"), "it is what runs"
    assert env.codes() == {"cache-forged"}
    lib = env.lib(project=False)
    assert lib["state"] == "altered"
    assert any(str(env.cache().relative_to(env.site)) in d["paths"] for d in lib["differences"])


@pytest.mark.parametrize("level", [1, 2])
def test_a_forged_cache_of_an_optimising_run(env: Environment, level: int) -> None:
    forge(env, "x = 666\n", optimization=level)
    assert env.codes(project=False) == {"cache-forged"}


@pytest.mark.parametrize(
    ("source", "evil"),
    [
        ("def f(x=1):\n    return x\n", "def f(x=2):\n    return x\n"),
        ("def f():\n    return {'a': (1.0, 2)}\n", "def f():\n    return {'a': (1, 2)}\n"),
        ("def f():\n    return 0.0\n", "def f():\n    return -0.0\n"),
        ("def f(a):\n    return a in {1, 2}\n", "def f(a):\n    return a in {1, 3}\n"),
        ("def f():\n    try:\n        g()\n    except A:\n        pass\n", "def f():\n    try:\n        g()\n    except B:\n        pass\n"),
        ("class A:\n    def f(self, /, a): ...\n", "class A:\n    def f(self, a): ...\n"),
    ],
)  # fmt: skip
def test_small_changes_in_a_cache(env: Environment, source: str, evil: str) -> None:
    path = env.site / "lib" / "other.py"
    path.write_text(source)
    env.record("lib/other.py")
    py_compile.compile(str(path), doraise=True)
    assert env.codes(project=False) == set()
    forge(env, evil)
    assert env.codes(project=False) == {"cache-forged"}


def test_constants_that_are_no_number(env: Environment) -> None:
    path = env.site / "lib" / "other.py"
    path.write_text(
        "x = 1e400 - 1e400\ny = (1e999, -0.0, 1j, b'x', ..., frozenset({1, 2}), 10**40)\nz = 'a' in {'a', 'b', 'c'}\n"
    )
    env.record("lib/other.py")
    py_compile.compile(str(path), doraise=True)
    assert env.codes(project=False) == set()


def test_a_cache_that_is_loaded_whatever_the_source_is(env: Environment) -> None:
    path = env.site / "lib" / "other.py"
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert env.codes(project=False) == {"cache-unchecked"}
    env.cache().write_bytes(env.cache().read_bytes()[:16] + marshal.dumps(compile("x = 666", "f", "exec")))
    assert env.codes(project=False) == {"cache-forged"}
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    assert env.codes(project=False) == set()


def test_a_stale_cache_is_a_note(env: Environment) -> None:
    forge(env, "x = 666\n")
    data = bytearray(env.cache().read_bytes())
    data[8] ^= 1
    env.cache().write_bytes(data)
    told = env.look(project=False)
    assert told["ok"]
    (stale,) = [d for d in all_differences(told) if d["code"] == "cache-stale"]
    assert stale["level"] == "note"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff" * 100, b"(\xff\xff\xff\x7f", b"N", b"[\x01\0\0\0N", b"r\0\0\0\0",
        b"(\x01\0\0\0" * 100_000, b"\xe3" + b"\0" * 200,
    ],
)  # fmt: skip
def test_bytes_that_are_no_code(env: Environment, body: bytes) -> None:
    env.cache().write_bytes(env.cache().read_bytes()[:16] + body)
    found = env.codes(project=False)
    assert found
    assert found <= {"cache-forged", "cache-unreadable"}
    forge(env, "x = 666\n", "lib/_version.py")
    assert "cache-forged" in env.codes(project=False), "the others are judged all the same"


def test_a_cache_that_takes_the_interpreter_down(env: Environment) -> None:
    """An object of code whose parts aren't of its kind: marshal is not for what comes from others."""
    env.cache().unlink()
    os.mkfifo(env.cache())
    assert env.codes(project=False) & {"cache-unreadable", "special"}
    env.cache().unlink()
    env.cache().symlink_to("/dev/zero")
    assert env.codes(project=False) & {"cache-unreadable", "link"}


def test_caches_of_another_folder(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """``PYTHONPYCACHEPREFIX``: Python then looks for them there."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(env.elsewhere / "caches"))
    monkeypatch.setattr(sys, "pycache_prefix", str(env.elsewhere / "caches"))
    env.cache().parent.mkdir(parents=True)
    forge(env, "x = 666\n")
    assert "666" in env.runs("import lib.other; print(lib.other.x)")
    assert env.codes(project=False) == {"cache-forged"}


def test_no_caches_are_nothing_wrong_and_none_are_written(env: Environment) -> None:
    for folder in list(env.site.rglob("__pycache__")):
        shutil.rmtree(folder)
    assert env.look()["ok"]
    assert not list(env.site.rglob("__pycache__"))


# What runs at each start


def test_code_in_a_pth_file_of_nobody(env: Environment) -> None:
    (env.site / "evil.pth").write_text("# nothing\nimport os; os.environ['X'] = '1'\n")
    told = env.look()
    assert not told["ok"]
    (found,) = [d for d in told["differences"] if d["level"] == "problem"]
    assert found["code"] == "startup-code"
    assert "evil.pth" in found["message"]


def test_a_pth_file_that_makes_the_interpreter_lie(env: Environment) -> None:
    """It changes what hashes and files are for everything that starts as usual; the files are read without it."""
    (env.site / "lib" / "other.py").write_text("x = 666\n")
    (env.site / "evil.py").write_text(
        "import hashlib, json, os\n"
        "json.dumps = lambda *a, **k: '{}'\nhashlib.sha256 = None\nos.listdir = lambda *a: []\n"
    )
    (env.site / "evil.pth").write_text("import evil\n")
    told = env.look()
    assert "start-up code prints other text" in told["message"]
    (env.site / "evil.py").write_text("import hashlib\nhashlib.sha256 = hashlib.new = None\nimport lib\n")
    told = env.look(project=False)
    codes = {d["code"]: d["level"] for d in all_differences(told)}
    assert codes["changed"] == "problem"
    assert codes["startup-code"] == "problem"
    assert codes["preloaded"] == "note"


def test_a_pth_file_that_hides_its_own_folder(env: Environment) -> None:
    """It shows a clean copy to whoever looks; where .pth files lie is known without asking."""
    clean = env.elsewhere / "clean"
    shutil.copytree(env.site, clean)
    (env.site / "lib" / "other.py").write_text("x = 666\n")
    (env.site / "evil.pth").write_text(
        f"import sys, site; sys.path.remove({str(env.site)!r}); sys.path.append({str(clean)!r}); "
        "site.getsitepackages = lambda *a: []\n"
    )
    assert str(clean) in env.runs("import sys; print(sys.path)")
    assert not env.look()["ok"]
    assert "startup-code" in env.codes(project=False)


@pytest.mark.parametrize(
    "body",
    [
        "import sys; print('hello'); sys.stdout.flush()", "import sys; sys.exit(3)", "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 11)", "import sys; sys.path[:] = [1, None, b'x']", "import sys; sys.meta_path[:] = [3]",
        "import sys; print('{}'); sys.stdout.flush(); __import__('os')._exit(0)",
        "import sys; print('[' * 99999); sys.stdout.flush(); __import__('os')._exit(0)",
        "import site; site.getsitepackages = None", "import sys; sys.prefix = 3",
    ],
)  # fmt: skip
def test_a_start_that_does_anything(env: Environment, body: str) -> None:
    (env.site / "evil.pth").write_text(body + "\n")
    told = env.look()
    assert told.get("ok") is False or told["schema"] == "patchq/error/1"


def test_pth_files_that_are_usual(env: Environment) -> None:
    (env.site / "paths.pth").write_text(f"# a comment\n{env.elsewhere}\n")
    (env.site / "_virtualenv.pth").write_text("import _virtualenv")
    (env.site / "_virtualenv.py").write_text("")
    told = env.look()
    assert told["ok"], told
    assert {"startup-path", "startup-code"} <= {d["code"] for d in told["differences"]}
    (env.site / "_virtualenv.pth").write_text("import _virtualenv; import os")
    assert env.codes() == {"startup-code"}


def test_a_pth_file_of_a_distribution(env: Environment) -> None:
    name, body = "hook.pth", b"import os\n"
    (env.site / name).write_bytes(body)
    other = env.site / "hook-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: hook\nVersion: 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
    (other / "RECORD").write_text(f"{name},sha256={digest},{len(body)}\nhook-1.dist-info/RECORD,,\n")
    assert env.codes() == {"startup-code"}, "a row of some RECORD says nothing about what it does"


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_customising_modules(env: Environment, name: str) -> None:
    before = env.codes()
    (env.site / f"{name}.py").write_text("x = 1\n")
    assert env.codes() - before == {"startup-code"}


def dist_info(env: Environment, name: str, **files: bytes) -> Path:
    """A made-up distribution whose RECORD has these files of site-packages as they are."""
    folder = env.site / f"{name}-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    rows = [",".join(map(str, record_line(file, data))) for file, data in files.items()]
    (folder / "RECORD").write_text("\n".join([*rows, f"{name}-1.dist-info/RECORD,,", ""]))
    for file, data in files.items():
        (env.site / file).parent.mkdir(exist_ok=True, parents=True)
        (env.site / file).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "body",
    [
        b"#\rimport evil\n", b"#\x0cimport evil\n", b"#\x0bimport evil\n", b"\xef\xbb\xbfimport evil\n",
        "#\x85import evil\n".encode(), b"import\tevil", b"\n" * 9 + b"import evil",
        b"import evil\n" + b"#" * (2 << 20), b"import _virtualenv; import evil\n",
    ],
    ids=range(9),
)  # fmt: skip
def test_a_line_that_some_python_runs(env: Environment, body: bytes) -> None:
    (env.site / "evil.py").write_bytes(b"")
    (env.site / "x.pth").write_bytes(body)
    assert env.codes() == {"startup-code"}
    (env.site / "x.pth").rename(env.site / ".x.pth")
    assert env.codes() == {"startup-code"}, "Python before 3.13 reads it"


def test_no_line_of_a_pth_file_with_white_space_in_front_is_code(env: Environment) -> None:
    (env.site / "x.pth").write_bytes(b"  import evil\n# import evil\n\nimportant\n")
    assert env.look()["ok"]


def test_the_module_that_a_known_line_imports_is_judged(env: Environment) -> None:
    line = b"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    line += b"enabled and __import__('_distutils_hack').add_shim(); \n"
    import _distutils_hack

    good = Path(_distutils_hack.__file__).read_bytes()
    hack = "_distutils_hack/__init__.py"
    dist_info(env, "setuptools", **{hack: good, "distutils-precedence.pth": line})
    told = env.look()
    assert told["ok"]
    (note,) = [d["message"] for d in all_differences(told) if d["code"] == "startup-code"]
    assert note.startswith("runs at each start of Python, as setuptools installs it: ")
    (env.site / hack).write_bytes(good + b"import evil\n")
    assert env.codes() == {"startup-code"}
    (env.site / hack).write_bytes(good)
    (env.site / hack).with_name("__init__.abi3.so").write_bytes(b"")
    assert env.codes() == {"startup-code"}, "it comes before the source"
    (env.site / hack).with_name("__init__.abi3.so").unlink()
    shutil.rmtree(env.site / "setuptools-1.dist-info")
    dist_info(env, "evil", **{hack: good + b"def add_shim(): evil\n"})
    assert env.codes() == {"startup-code"}, "recorded, but by another distribution"


def test_an_editable_finder_of_another_package(env: Environment) -> None:
    template = EDITABLE.replace("{mapping}", "{'tool': '/src/tool'}")
    (env.site / "__editable__.tool-1.pth").write_text(
        "import __editable___tool_1_finder; __editable___tool_1_finder.install()"
    )
    finder = env.site / "__editable___tool_1_finder.py"
    finder.write_text(template)
    assert env.look()["ok"], env.look()
    finder.write_text(EDITABLE.replace("{mapping}", "{'lib': '/src/lib'}"))
    assert env.codes() == {"shadowed"}
    for evil in (template + "import evil\n", template.replace("{'tool': '/src/tool'}", "__import__('evil')")):
        finder.write_text(evil)
        assert "startup-code" in env.codes()


def test_a_namespace_line(env: Environment) -> None:
    line = NAMESPACE.decode()
    (env.site / "google-nspkg.pth").write_text(line)
    assert env.look()["ok"]
    (env.site / "google-nspkg.pth").write_text(line.replace("'google'", "'lib'"))
    assert env.codes() >= {"shadowed"}
    (env.site / "google-nspkg.pth").write_text(line.strip() + ";import evil\n")
    assert env.codes() == {"startup-code"}


@pytest.mark.parametrize("form", ["{}/__init__.py", "{}.pyc", "{}.so", "{}.abi3.so", "{}/__init__.pyc"])
@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_customising_modules_in_every_form(env: Environment, name: str, form: str) -> None:
    path = env.site / form.format(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"evil")
    assert env.codes() == {"startup-code"}


def test_a_customising_module_without_code_is_a_note(env: Environment) -> None:
    (env.site / "__pycache__").mkdir(exist_ok=True)
    (env.site / "sitecustomize.py").write_text("# nothing\n")
    assert env.look()["ok"]
    forge(env, "x = 666\n", "sitecustomize.py")
    assert env.codes() == {"cache-forged"}


def test_a_plugin_of_another_distribution(env: Environment) -> None:
    folder = dist_info(env, "evil")
    (folder / "entry_points.txt").write_text("[lib.general_plugins]\nx = evil:run\n")
    assert env.codes() == {"plugin"}
    (folder / "entry_points.txt").write_text("[console_scripts]\nx = evil:run\n[pytest11]\ny = evil\n")
    assert env.look()["ok"]
    lock = env.patchq.layout.lock
    before = lock.read_text()
    try:
        lock.write_text(before + '\n[verify]\nplugin-groups = ["pytest11"]\n')
        assert env.codes() == {"plugin"}
        lock.write_text(before + '\n[verify]\nplugin-groups = ["pytest11"]\nallow = ["evil"]\n')
        assert env.look()["ok"]
    finally:
        lock.write_text(before)


def test_a_script_replaced_with_its_row(env: Environment) -> None:
    script = env.venv / "bin" / "lib"
    good = script.read_bytes()
    row = os.path.relpath(script, env.site)
    assert env.look()["ok"]
    script.write_bytes(good + b"import evil\n")
    assert "changed" in env.codes(project=False)
    env.record(row)
    assert env.codes() == {"script"}
    script.write_bytes(good.replace(b"answer", b"evil"))
    env.record(row)
    assert env.codes(project=False) == {"script"}
    script.write_bytes(UV_SCRIPT.format(python=env.python).encode())
    env.record(row)
    assert env.look()["ok"], "uv's"
    script.write_bytes(LONG_SCRIPT.format(python=env.python).encode())
    env.record(row)
    assert env.look()["ok"], "of a long path"


def test_a_script_of_a_relative_interpreter(env: Environment) -> None:
    """`../try/bin/python -m pip` writes its path with the `..` into scripts."""
    script = env.venv / "bin" / "lib"
    row = os.path.relpath(script, env.site)
    (env.elsewhere / "deep" / "er").mkdir(parents=True)
    (env.elsewhere / "link").symlink_to("deep/er")

    def write(python: str, old: str = "", new: str = "") -> None:
        script.write_bytes(LONG_SCRIPT.format(python=python).replace(old, new).encode())
        env.record(row)

    relative = f"{env.venv}/lib/../bin/python"
    write(relative)
    assert env.look()["ok"]
    write(relative, "import answer", "import evil")
    assert env.codes() == {"script"}, "it calls something else"
    write(f"{env.venv}/lib/../../bin/python")
    assert env.codes() == {"script"}, "another folder"
    back = os.path.relpath(env.venv, env.elsewhere)
    write(f"{env.elsewhere}/link/{back}/bin/python")
    assert env.codes() == {"script"}, "the kernel takes the `..` from where the link leads"
    write(f"{env.elsewhere}/gone/../{back}/bin/python")
    assert env.codes() == {"script"}, "a folder that isn't there"


UV_SCRIPT = """#!{python}
# -*- coding: utf-8 -*-
import sys
from lib import answer
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(answer())
"""
LONG_SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from lib import answer
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(answer())
"""


def test_modules_in_place_of_the_librarys_or_a_requirements(env: Environment) -> None:
    front = env.elsewhere / "front"
    front.mkdir()
    (front / "unrelated.py").write_text("")
    assert env.look(python=path_of(env, front))["ok"]
    (front / "random.py").write_text("")
    assert "shadowed" in problems(env.look(python=path_of(env, front)))
    (front / "random.py").rename(front / "click.py")
    assert env.look(python=path_of(env, front))["ok"], "nothing else has it"
    dist_info(env, "click", **{"click/__init__.py": b""})
    assert "shadowed" in problems(env.look(python=path_of(env, front)))
    (front / "click.py").unlink()
    (env.venv / "bin" / "json.py").write_text("")
    assert env.codes() == {"shadowed"}


@pytest.mark.parametrize(
    ("name", "value", "file"),
    [
        ("PYTHONSTARTUP", "{}/x.py", "x.py"), ("BASH_ENV", "{}/x.sh", "x.sh"), ("ENV", "{}/x.sh", "x.sh"),
        ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:{}", "libcrypto.so.3"), ("PYTHONUSERBASE", "{}", ""),
        ("PYTHONWARNINGS", "ignore::evil.W", ""), ("PYTHONBREAKPOINT", "evil.run", ""),
    ],
)  # fmt: skip
def test_variables_are_judged_by_what_they_lead_to(
    env: Environment, monkeypatch: pytest.MonkeyPatch, name: str, value: str, file: str
) -> None:
    folder = env.elsewhere / "folder"
    monkeypatch.setenv(name, value.format(folder))
    assert env.look()["ok"], "it leads nowhere"
    folder.mkdir()
    if file:
        (folder / file).write_bytes(b"")
    elif "evil" in value:
        (env.site / "evil.py").write_bytes(b"")
    assert env.look()["ok"] == (name == "PYTHONUSERBASE"), "a virtual environment has no user site"


EDITABLE = setuptools_template()


# Manifests, RECORD and metadata that are anything


JUNK = [
    "null", "true", "0", "-1e999", "NaN", '""', '"text"', "[]", "[[]]", "{}", '{"schema": 1}', "[" * 100_000,
    '{"a":' * 100_000, "", "\0", "{", "1" * 100_000, '{"schema": "patchq/wheel/1"}', '"\\ud800"',
]  # fmt: skip


def test_a_manifest_that_is_no_manifest(env: Environment) -> None:
    path = env.site / "lib" / "_patchq.json"
    for number, junk in enumerate(JUNK):
        path.write_text(junk)
        env.record("lib/_patchq.json")
        lib = env.lib(project=bool(number % 2))
        assert lib["state"] == "altered"
        assert {d["code"] for d in lib["differences"]} == {"manifest-malformed"}, junk[:50]
    assert "problem: the manifest" in env.words()


FIELDS = ["distribution", "package", "version", "stack_id", "contains", "upstreams", "siblings", "files", "left_out"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_manifest_with_a_field_of_any_type(env: Environment, field: str) -> None:
    original = (env.site / "lib" / "_patchq.json").read_text()
    anything: list[Any] = [
        None,
        True,
        3,
        -0.5,
        "\x1b[31m",
        [],
        [None],
        [[]],
        {},
        {"a": None},
        {"a": "b"},
        [{}],
        [{"name": 3}],
    ]
    for value in anything[FIELDS.index(field) % 2 :: 2]:
        (env.site / "lib" / "_patchq.json").write_text(original)
        env.manifest(lambda raw, value=value: raw.update({field: value}))  # type: ignore[misc]
        told = env.look(project=False)
        lib = next(p for p in told["packages"] if p["origin"].endswith("/lib"))
        assert lib["state"] in ("altered", "other stack"), (field, value)
    raw = json.loads(original)
    del raw[field]
    (env.site / "lib" / "_patchq.json").write_text(json.dumps(raw))
    assert env.lib(project=False)["state"] == "altered"


def test_a_manifest_that_is_no_text_or_file(env: Environment) -> None:
    path = env.site / "lib" / "_patchq.json"
    for body in (b"\xff\xfe\0", os.urandom(5000)):
        path.write_bytes(body)
        assert "manifest-malformed" in env.codes(project=False)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "manifest-malformed" in env.codes(project=False)
    path.unlink()
    for make in (lambda: path.mkdir(), lambda: os.mkfifo(path), lambda: path.symlink_to("_patchq.json"),
                 lambda: path.symlink_to("/dev/zero")):  # fmt: skip
        make()
        assert "manifest-malformed" in env.codes(project=False)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert env.codes() == {"not-patched"}


def rewrite(env: Environment, body: bytes | Callable[[str], str]) -> None:
    path = env.info / "RECORD"
    path.write_bytes(body) if isinstance(body, bytes) else path.write_text(body(path.read_text()))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "record-malformed"), (b"\0\0\0", "record-malformed"), (b"a,b\n", "record-malformed"), (b"\xff\xfe,,\n", "missing"),
        (b'"unclosed,,\n', "record-malformed"), (b"a" * 200_000 + b",,", "record-malformed"),
        (lambda t: t + "lib/other.py,sha256=!!!,6\n", "record-malformed"),
        (lambda t: t + "lib/other.py,sha256=AAAA,6\n", "record-malformed"),
        (lambda t: t + "lib/x.py,sha256=AAAA,-1\n", "record-malformed"),
        (lambda t: t + "lib/x.py,sha256=AAAA," + "9" * 5000 + "\n", "record-malformed"),
        (lambda t: t + "../../../../../../../../etc/passwd,sha256=AAAA,6\n", "record-outside"),
        (lambda t: t + "/etc/passwd,sha256=AAAA,6\n", "record-outside"),
        (lambda t: t + "lib/\\..\\x,sha256=AAAA,6\n", "missing"),
        (lambda t: t + "lib/../../../../../../../x,sha256=AAAA,6\n", "record-outside"),
        (lambda t: t + "lib/none.py,,\n", "record-unhashed"), (lambda t: t + "lib/none.py,md5=AAAA,\n", "record-unhashed"),
        (lambda t: t.replace("lib/other.py,sha256", "lib/other.py,sha1"), "record-unhashed"),
        (lambda t: t + "lib/\x07bell.py,sha256=AAAA,6\n", "missing"),
    ],
    ids=range(18),
)  # fmt: skip
def test_a_record_that_is_anything(env: Environment, body: bytes | Callable[[str], str], code: str) -> None:
    rewrite(env, body)
    assert code in env.codes(project=False)


def test_a_record_that_is_not_there_or_no_file(env: Environment) -> None:
    path = env.info / "RECORD"
    path.unlink()
    assert "record-missing" in env.codes(project=False)
    path.mkdir()
    assert "record-malformed" in env.codes(project=False)
    path.rmdir()
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "record-malformed" in env.codes(project=False)


def test_metadata_that_is_anything(env: Environment) -> None:
    path = env.info / "METADATA"
    for body in (b"", os.urandom(3000), b"Name: lib\n", b"Version: 1\n", b"Name: \x1b[31m\nVersion: \xff\n"):
        path.write_bytes(body)
        assert "changed" in env.codes(project=False)
    path.unlink()
    assert {"missing", "metadata"} <= env.codes(project=False)
    path.mkdir()
    assert "metadata" in env.codes(project=False)
    shutil.rmtree(env.info)
    assert "record-missing" in env.codes(project=False)


def test_metadata_twice(env: Environment) -> None:
    copy = env.site / "lib-1.0.dist-info"
    shutil.copytree(env.info, copy)
    (copy / "METADATA").write_text("Metadata-Version: 2.1\nName: lib\nVersion: 1.0\n")
    assert env.codes(project=False) == {"installed-twice"}
    (env.site / "lib-2.dist-info").write_bytes(b"no folder")
    (env.site / "lib-3.egg-link").write_text("/elsewhere\n.\n")
    (env.site / "-.dist-info").mkdir()
    (env.site / ".dist-info").symlink_to(".dist-info")
    assert {"installed-twice", "editable"} <= env.codes(project=False)


# The interpreter


def test_a_relative_interpreter(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(env.venv)
    assert env.look(python="bin/python")["ok"]
    assert env.look(python="./bin/python")["ok"]
    monkeypatch.chdir(env.venv / "bin")
    assert env.look(python="../bin/python")["ok"]
    assert Path(env.look(python="./python")["python"]).parent == env.venv / "bin"
    monkeypatch.setenv("PATH", f"{env.venv / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir("/")
    assert env.look(python="python")["ok"]


def test_what_is_no_interpreter(env: Environment) -> None:
    assert "is a folder" in env.look(python=str(env.venv))["message"]
    assert "no program" in env.look(python=str(env.venv / "pyvenv.cfg"))["message"]
    assert "no program" in env.look(python="no-such-python")["message"]
    for body in ("exit 0\n", "echo '{}'\n", "echo '[]'\n", "exit 7\n", "kill -9 $$\n", "head -c 999 /dev/urandom\n"):
        fake = env.elsewhere / "fake"
        fake.write_text("#!/bin/sh\n" + body)
        fake.chmod(0o755)
        assert env.look(python=str(fake))["schema"] == "patchq/error/1"
    (env.elsewhere / "fake").write_bytes(b"\x7fELF")
    assert "can't be run" in env.look(python=str(env.elsewhere / "fake"))["message"]


# Where imports find it


def path_of(env: Environment, *folders: Path) -> str:
    wrapper = env.elsewhere / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={":".join(map(str, folders))} exec {env.python} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def problems(told: dict[str, Any]) -> set[str]:
    return {d["code"] for d in all_differences(told) if d["level"] == "problem"}


def test_a_module_in_front_of_the_package(env: Environment) -> None:
    folder = env.elsewhere / "front"
    folder.mkdir()
    (folder / "lib.py").write_text("")
    told = env.look(python=path_of(env, folder))
    assert {"not-patched", "copies"} <= problems(told)
    lib = next(p for p in told["packages"] if p["distribution"] == "lib")
    assert lib["origin"] == str(folder / "lib.py")


def test_a_zip_file_in_front_of_the_package(env: Environment) -> None:
    with zipfile.ZipFile(env.elsewhere / "front.zip", "w") as zf:
        zf.writestr("lib/__init__.py", "")
    told = env.look(python=path_of(env, env.elsewhere / "front.zip"))
    assert "not-patched" in problems(told)
    (env.elsewhere / "bad.zip").write_bytes(b"PK\3\4 no zip")
    assert env.look(python=path_of(env, env.elsewhere / "bad.zip"))["ok"]


def test_an_import_hook_in_front_of_the_path(env: Environment) -> None:
    other = env.elsewhere / "other" / "lib"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (env.site / "evil.py").write_text(
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "class F:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        f"        return PathFinder.find_spec(name, [{str(other.parent)!r}]) if name == 'lib' else None\n"
        "sys.meta_path.insert(0, F)\n"
    )
    (env.site / "evil.pth").write_text("import evil\n")
    told = env.look()
    assert {"redirected", "not-patched", "startup-code"} <= problems(told)
    assert any(d["code"] == "finders" and "evil.F" in d["paths"] for d in told["differences"])


def test_an_editable_install(env: Environment) -> None:
    url = {"url": "file:///src/lib", "dir_info": {"editable": True}}
    (env.info / "direct_url.json").write_text(json.dumps(url))
    assert "editable" in env.codes(project=False)
    for junk in JUNK[::3]:
        (env.info / "direct_url.json").write_text(junk)
        env.look(project=False)


def test_a_namespace_of_several_folders(env: Environment) -> None:
    (env.site / "lib" / "__init__.py").unlink()
    more = env.elsewhere / "more" / "lib"
    more.mkdir(parents=True)
    told = env.look(python=path_of(env, more.parent))
    assert {"namespace", "not-patched"} & problems(told)
    told = env.look(project=False)
    assert "missing" in problems(told)


def test_a_sibling_of_another_version(env: Environment) -> None:
    """The app wants the lib of its own set; upstream's lib in its place has no manifest to be found by."""
    shutil.rmtree(env.site / "lib")
    shutil.rmtree(env.info)
    other = env.site / "lib-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: lib\nVersion: 1.0\n")
    assert env.codes(project=False) == {"sibling"}


def test_nothing_is_imported_and_nothing_written(env: Environment) -> None:
    for name in ("lib/__init__.py", "lib/other.py", "app/__init__.py"):
        (env.site / name).write_text(f"open({str(env.elsewhere / 'ran')!r}, 'w')\n")
    before = sorted(str(p) for p in env.venv.rglob("*"))
    env.look()
    env.look(project=False)
    assert not (env.elsewhere / "ran").exists()
    assert sorted(str(p) for p in env.venv.rglob("*")) == before


# All of it


def test_random_damage_is_told_and_never_a_traceback(env: Environment) -> None:
    chance = random.Random(19)
    saved = env.elsewhere / "saved"
    shutil.copytree(env.site, saved, symlinks=True)
    files = sorted(p.relative_to(saved) for p in saved.rglob("*") if p.is_file())
    for _ in range(25):
        name = chance.choice(files)
        data = bytearray((saved / name).read_bytes() or b"x")
        how = chance.randrange(4)
        if how == 0:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[chance.randrange(len(data)) :]
        elif how == 2:
            at = chance.randrange(len(data))
            data[at:at] = chance.randbytes(chance.randrange(1, 50))
        else:
            data = bytearray(chance.randbytes(chance.randrange(500)))
        if bytes(data) != (saved / name).read_bytes():
            (env.site / name).write_bytes(data)
            told = env.look()
            harmless = all(d["level"] == "note" for d in all_differences(told))
            assert not told["ok"] or (harmless and name.suffix == ".pyc"), name
        shutil.copy2(saved / name, env.site / name)


def test_every_code_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "json.md").read_text()
    assert [code for code in SENTENCES if f"| `{code.value}` |" not in text] == []


def test_wheels_of_another_folder_are_named_with_the_command(env: Environment) -> None:
    dist = env.patchq.root / "dist"
    (dist / "default").rename(dist / "other")
    try:
        said = env.words("--stack", "0000")
        place = os.path.relpath(dist / "other")
        assert f"the installed versions are those in {place}" in said
        assert f"`patchq verify-installed --python {env.python} --dist {place}`" in said
        assert "problem" not in env.words("--dist", place)
    finally:
        (dist / "other").rename(dist / "default")
