"""`compose`: what is rendered is valid, holds no variables of anybody, and the entry point puts the mounted trees first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit import ROOT, Patchq, git

TABLES = """
[upstreams.up.build]
distribution = "up"
package = "pkg"
links = {{ "data/texts" = "texts" }}

[environments.default]
image = "registry.example/cuda:13.0"
requires = ["torch>=2,<3"]
index = "https://index.example/cu130"
env = {{ PLAIN = "a b", HOSTILE = {hostile} }}
caches = ["/root/.cache/models"]
serve = ["serve", "model", {hostile}]
port = 8000
gpu = true
"""
HOSTILE = "$HOME `id` \"'\\ ${X} $(id) #"


@pytest.fixture
def deployable(stack: Patchq) -> Patchq:
    """A stack whose lock says what its set runs in, in hostile words."""
    lock = stack.layout.lock
    text = lock.read_text()
    assert "[sets.default]" in text, text
    lock.write_text(text + TABLES.format(hostile=json.dumps(HOSTILE)))
    stack.ok("apply")
    return stack


def rendered(patchq: Patchq) -> dict[str, str]:
    files = json.loads(patchq.ok("compose", "--json"))["files"]
    return {Path(f).name: (patchq.root / f).read_text() for f in files}


def tool(name: str, *args: str, data: str | None = None) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / name
    assert program.exists(), f"pip install -e '.[dev]' brings {name}"
    return subprocess.run([str(program), *args], input=data, capture_output=True, text=True, check=False)


def test_files_are_valid(deployable: Patchq) -> None:
    files = rendered(deployable)
    folder = deployable.root / "deploy"
    for name in ("Dockerfile", "Dockerfile.dev"):
        done = tool("hadolint", "--no-color", "--format", "json", str(folder / name))
        found = {f["code"] for f in json.loads(done.stdout)}
        assert found <= {"DL3008", "DL3013"}, "versions of the image's packages are its owner's"
    done = tool("shellcheck", str(folder / "dev.sh"))
    assert done.returncode == 0, done.stdout
    services = yaml.safe_load(files["compose.yaml"])["services"]
    assert set(services) == {"dev", "serve"}
    for service in services.values():
        context = folder / service["build"]["context"]
        assert context.resolve() == deployable.root
        assert (context / service["build"]["dockerfile"]).is_file()
    mounts = {v["target"]: v for v in services["dev"]["volumes"]}
    assert (folder / mounts["/trees"]["source"]).resolve() == deployable.tree().parent
    assert mounts["/trees"]["read_only"] is True
    volumes = yaml.safe_load(files["compose.yaml"])["volumes"]
    assert [v["source"] for v in services["serve"]["volumes"]] == list(volumes)
    if program := shutil.which("docker-compose"):
        checked = subprocess.run(
            [program, "-f", str(folder / "compose.yaml"), "config"], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_production_holds_the_wheels_alone_and_proves_itself(deployable: Patchq) -> None:
    files = rendered(deployable)
    copied = [line for line in files["Dockerfile"].splitlines() if line.startswith("COPY ") and "--from" not in line]
    assert copied == [
        "COPY dist/default/*.whl dist/default/constraints.txt /wheels/",
        "COPY dist/default/*.whl /wheels/",
        "COPY deploy/patchq.txt /patchq.txt",
        "COPY dist/default/provenance.json dist/default/patchq.cdx.json /usr/share/patchq/",
    ]
    stack_id = json.loads(deployable.ok("status", "--json"))
    assert stack_id
    line = next(line for line in files["Dockerfile"].splitlines() if "verify-installed" in line)
    assert len(line.split("--stack ")[1].split()[0]) >= 40
    assert files["Dockerfile"].rindex("FROM runtime") < files["Dockerfile"].index("COPY --from=verified")
    ignored = files["Dockerfile.dockerignore"].splitlines()
    assert [line for line in ignored if not line.startswith("#")] == [
        "*",
        "!dist/default/*.whl",
        "!dist/default/constraints.txt",
        "!dist/default/provenance.json",
        "!dist/default/patchq.cdx.json",
        "!deploy/dev.sh",
        "!deploy/patchq.txt",
    ]
    assert files["patchq.txt"] == (ROOT / "locks" / "patchq.txt").read_text()


def test_thin_wheels_are_installed_with_the_releases(deployable: Patchq) -> None:
    deployable.ok("compose", "--thin")
    said = (deployable.root / "deploy" / "Dockerfile").read_text()
    assert "COPY dist/default/thin/*.whl dist/default/thin/constraints.txt /wheels/" in said
    (line,) = [line for line in said.splitlines() if "-c /wheels/constraints.txt" in line]
    assert "-patchq-thin" in line
    assert "!dist/default/thin/*.whl" in (deployable.root / "deploy" / "Dockerfile.dockerignore").read_text()


def test_torch_is_of_the_index_that_is_said_and_for_cuda(deployable: Patchq) -> None:
    files = rendered(deployable)
    for name in ("Dockerfile", "Dockerfile.dev"):
        said = files[name]
        install = next(line for line in said.splitlines() if "torch>=2,<3" in line)
        assert (
            install == "RUN python3 -m pip install --no-cache-dir --index-url https://index.example/cu130 'torch>=2,<3'"
        )
        start = said.index('RUN python3 -c "')
        assert said.index("-c /wheels/constraints.txt") < start
        program = said[start:].split('"')[1].replace("\\\n", "")
        for version, fails in (("13.0", False), (None, True)):
            fake = (
                f"import sys, types; t = types.ModuleType('torch'); t.version = types.SimpleNamespace(cuda={version!r})"
            )
            fake += "; t.__spec__ = types.SimpleNamespace(); sys.modules['torch'] = t; "
            done = subprocess.run(
                [sys.executable, "-c", fake + program.strip()], capture_output=True, text=True, check=False
            )
            assert ("for the CPU" in done.stderr) is fails, done.stderr
    lock = deployable.layout.lock
    lock.write_text(
        lock.read_text().replace("gpu = true", "gpu = false").replace('index = "https://index.example/cu130"\n', "")
    )
    plain = rendered(deployable)["Dockerfile"]
    assert "--index-url" not in plain
    assert "python3 -c" not in plain


def test_nothing_in_the_lock_becomes_a_variable_or_a_command(deployable: Patchq) -> None:
    files = rendered(deployable)
    env = next(line for line in files["Dockerfile"].splitlines() if line.startswith("ENV HOSTILE="))
    said = subprocess.run(
        ["sh", "-c", f"printf %s {env.removeprefix('ENV HOSTILE=')}"], capture_output=True, text=True, check=True
    )
    assert said.stdout == HOSTILE, "quoted as a shell quotes, which is how a Dockerfile reads it"
    command = yaml.safe_load(files["compose.yaml"])["services"]["serve"]["command"]
    assert command[2] == HOSTILE.replace("$", "$$"), "compose reads $$ as a $"
    assert json.loads(files["Dockerfile"].splitlines()[-1].removeprefix("CMD "))[2] == HOSTILE
    lock = deployable.layout.lock
    good = lock.read_text()
    for table, why in (
        ('image = "a b"', "is not the name of an image"),
        ('image = "x"\nenv = { "lower" = "x" }', "is not a NAME"),
        ('image = "x"\nenv = { A = "x\\ny" }', "is not a NAME"),
        ('image = "x"\ncaches = ["relative"]', "absolute"),
        ('image = "x"\ncaches = ["/a/../b"]', "absolute"),
        ('image = "x"\nrequires = ["--index-url=x"]', "not options"),
        ('image = "x"\nrequires = ["x==1 --hash=sha256:0"]', "not options"),
        ('image = "x"\nindex = "https://x --pre"', "not an https address"),
        ('image = "x"\nindex = "http://x"', "not an https address"),
        ('image = "x"\nport = 70000', "port"),
    ):
        lock.write_text(good.partition("[environments.default]")[0] + "[environments.default]\n" + table + "\n")
        assert why in deployable.fails(1, "compose"), table


def test_a_set_without_an_environment_is_told_what_to_write(stack: Patchq, tmp_path: Path) -> None:
    assert "[environments." in stack.fails(1, "compose")


def test_files_stay_in_the_project(deployable: Patchq, tmp_path: Path) -> None:
    assert "is not in the project" in deployable.fails(1, "compose", "--output", str(tmp_path / "elsewhere"))


def test_the_entry_point_puts_the_trees_first_and_doctor_sees_it(deployable: Patchq, tmp_path: Path) -> None:
    rendered(deployable)
    tree, site = deployable.tree(), tmp_path / "site"
    (tree / "texts").mkdir()
    (tree / "texts" / "t.txt").write_text("t\n")
    (tree / "pkg" / "__init__.py").write_text("")
    (site / "pkg" / "sub").mkdir(parents=True)
    for name in ("__init__.py", "mod.py", "_version.py", "_C.so", "sub/_D.so"):
        (site / "pkg" / name).write_text("upstream = True\n")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    # A python3 whose packages are those of `site`.
    (binaries / "python3").write_text(
        f'#!/bin/sh\n[ "$2" = "import sysconfig; print(sysconfig.get_path(\\"purelib\\"))" ] && echo {site} && exit\n'
        f'PYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} "$@"\n'
    )
    (binaries / "python3").chmod(0o755)
    env: dict[str, Any] = {
        **os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "TREES": str(tree.parent),
        "PATCHED": str(tmp_path / "patched"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    env.pop("PYTHONPATH", None)
    script = str(deployable.root / "deploy" / "dev.sh")

    def inside(*command: str) -> str:
        return subprocess.run(["sh", script, *command], env=env, capture_output=True, text=True, check=True).stdout

    for _ in range(2):  # at each start anew
        assert inside("python3", "-c", "import pkg.mod; print(pkg.mod.f())") == "1\n"
    where = inside("python3", "-c", "import os, pkg.mod; print(os.path.realpath(pkg.mod.__file__))")
    assert where.strip() == str(tree / "pkg" / "mod.py")
    patched = tmp_path / "patched" / "pkg"
    assert (patched / "_C.so").resolve() == site / "pkg" / "_C.so"
    assert (patched / "sub" / "_D.so").resolve() == site / "pkg" / "sub" / "_D.so"
    assert (patched / "data" / "texts" / "t.txt").read_text() == "t\n"
    doctor = [sys.executable, "-m", "patchq", "--project", str(deployable.root), "doctor", "--mounted", str(tree.parent),
              "--python", str(binaries / "python3")]  # fmt: skip
    tools = str(Path(__file__).resolve().parents[2] / "tools")
    seen = subprocess.run(
        ["sh", script, *doctor], env={**env, "PYTHONPATH": tools}, capture_output=True, text=True, check=False
    )
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert f"which is {tree / 'pkg' / '__init__.py'}" in seen.stdout
    seen = subprocess.run(doctor, env={**env, "PYTHONPATH": tools}, capture_output=True, text=True, check=False)
    assert seen.returncode == 1
    assert f"imported from {site / 'pkg' / '__init__.py'}, not from {tree}" in seen.stdout
    assert git(tree, "status", "--porcelain", "--untracked-files=no") == ""
