"""`doctor --arch`: what ptxas says to each instruction, with the real nvcc; and toolkits that are broken."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from patchq.cli import cli
from patchq.environment import ptx, toolkits

real = pytest.mark.nvcc
SCALED = "mma mxf8f6f4 e4m3 x e2m1, 1X ue8m0"


def doctor(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["patchq", "doctor", *args], capture_output=True, text=True)


@real
@pytest.mark.parametrize("arch", ["sm_120f", "sm_121a", "sm_121f"])
def test_a_suffix_has_all_that_the_kernels_need(arch: str) -> None:
    done = doctor("--arch", arch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{arch}: has all" in done.stdout


@real
def test_the_bare_target_lacks_fp4_in_ptxas_own_words() -> None:
    done = doctor("--arch", "sm_121")
    assert done.returncode == 1
    assert SCALED in done.stdout.splitlines()[-1]
    assert "Instruction 'mma with block scale' not supported on .target 'sm_121'" in done.stdout


@real
def test_json_has_a_cell_for_each_instruction_suffix_and_toolkit() -> None:
    told = json.loads(doctor("--arch", "sm_121f", "--json").stdout)
    cells = {(c["toolkit"], c["target"], c["instruction"]): c["message"] for c in told["cells"]}
    assert len(cells) == len(told["cells"])
    targets = {target for _, target, _ in cells}
    assert targets == {"sm_121", "sm_121a", "sm_121f"}
    release = told["toolkits"][0]["release"]
    assert cells[release, "sm_121f", SCALED] == ""
    assert cells[release, "sm_121", SCALED].startswith("Instruction")
    assert told["lacking"] == {"sm_121f": []}
    # What SM12x has not, whatever the suffix: not an error, but said.
    assert all(cells[release, t, "tcgen05.alloc"] for t in targets)


def test_what_is_no_architecture_or_nvcc_is_an_error(tmp_path: Path) -> None:
    done = doctor("--arch", "121f")
    assert done.returncode == 2 or "not an architecture" in done.stderr
    fake = tmp_path / "nvcc"
    fake.write_text("#!/bin/sh\necho 'release 9.9, V9.9.9'\n")
    fake.chmod(0o755)
    done = doctor("--arch", "sm_121f", "--nvcc", str(fake))
    assert done.returncode != 0
    assert "is not a usable nvcc" in done.stderr


# Broken ones: programs that are there, found on PATH, and can't do what they are for.

VERSION = "echo 'Cuda compilation tools, release 99.1, V99.1.2'; exit"
#: An nvcc that writes what an empty kernel becomes, and a ptxas that takes all that it is given.
COMPILES = f"""case "$1" in --version) {VERSION} ;; esac
printf '.version 9.9\n.target sm_75\n' > "$3"
"""
ASSEMBLES = """while [ "$1" != -o ]; do shift; done
printf '\177ELF' > "$2"
"""


def program(path: Path, body: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(mode)
    return path


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a toolkit in front of one that works, which is release 98.7.6."""
    good = tmp_path / "good"
    program(good / "nvcc", COMPILES.replace("99.1", "98.7").replace(".2'", ".6'"))
    program(good / "ptxas", ASSEMBLES)
    folder = tmp_path / "broken"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{good}:/usr/bin:/bin")
    monkeypatch.setattr(toolkits, "_installed", lambda: iter(()))  # a real one takes its time
    monkeypatch.setattr(ptx, "INSTRUCTIONS", ptx.INSTRUCTIONS[:2])
    return folder


def told_of(folder: Path, message: str) -> None:
    """The toolkit in ``folder`` is named with what is wrong with it, the other one is asked, both ways of telling."""
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["ok"]
    (mine,) = [u for u in told["unusable"] if u["nvcc"] == str(folder / "nvcc")]
    assert message in mine["message"]
    assert mine["hint"]
    assert "98.7.6" in [t["release"] for t in told["toolkits"]]
    assert not [t for t in told["toolkits"] if t["nvcc"].startswith(str(folder))]
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f"])
    assert done.exit_code == 0, done.output
    assert message in done.output
    assert f"({folder / 'nvcc'})" in done.output
    assert "sm_121f: has all" in done.output


def fails_to_compile(message: str, code: int = 1) -> str:
    return f"""case "$1" in --version) {VERSION} ;; esac
cat >&2 <<'END'
{message}
END
exit {code}
"""


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ("<command-line>: fatal error: cuda_runtime.h: No such file or directory\ncompilation terminated.",
         "its header cuda_runtime.h doesn't exist"),
        ("In file included from <command-line>:\n/x/cuda_runtime.h:82:10: fatal error: crt/host_config.h: No such file "
         "or directory", "its header crt/host_config.h doesn't exist"),
        ("k.cu:1:10: fatal error: 'cuda.h' file not found", "its header cuda.h doesn't exist"),
        ('catastrophic error: cannot open source file "crt/host_runtime.h"', "its header crt/host_runtime.h doesn't exist"),
        ("sh: 1: cicc: not found", "its cicc doesn't exist"),
        ("sh: line 1: /opt/nvvm/bin/cicc: command not found", "its cicc doesn't exist"),
        ("gcc: fatal error: cannot execute 'cc1plus': execvp: No such file or directory", "it has no host compiler"),
        ("nvcc fatal   : Failed to preprocess host compiler properties.", "it has no host compiler"),
        ("something else altogether", "it can't compile: something else altogether"),
        ("", "it can't compile: it ended with 1 and printed nothing"),
        ("\x1b]0;title\x07 error", r"it can't compile: \x1b]0;title\x07 error"),
    ],
)  # fmt: skip
def test_an_nvcc_that_cant_compile_is_named_with_what_is_missing(broken: Path, message: str, output: str) -> None:
    program(broken / "nvcc", fails_to_compile(message))
    program(broken / "ptxas", ASSEMBLES)
    told_of(broken, output)


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("exit 3", "it doesn't print its version: it ended with 3 and printed nothing"),
        ("kill -SEGV $$", "it doesn't print its version: it was killed by SIGSEGV"),
        ("echo release nine", "its version can't be read: 'release nine'"),
        ("printf '\\377\\000\\033[2J'", "its version can't be read: '"),
        ("exit 0", "its version can't be read: it prints nothing"),
        (f"case $1 in --version) {VERSION} ;; esac\nkill -ABRT $$", "it can't compile: it was killed by SIGABRT"),
        (f"case $1 in --version) {VERSION} ;; esac", "it can't compile: it wrote no PTX"),
        (f'case $1 in --version) {VERSION} ;; esac\nmkdir "$3"', "it can't compile: it wrote no PTX"),
        (f'case $1 in --version) {VERSION} ;; esac\nhead -c 9999 /dev/urandom > "$3"', "it wrote no PTX"),
    ],
)
def test_an_nvcc_that_does_anything_is_told(broken: Path, body: str, output: str) -> None:
    program(broken / "nvcc", body)
    program(broken / "ptxas", ASSEMBLES)
    told_of(broken, output)


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("echo 'ptxas fatal   : Memory allocation failure' >&2; exit 1", "is broken: ptxas fatal   : Memory"),
        ("exit 255", "is broken: it ended with 255 and printed nothing"),
        ("kill -ILL $$", "is broken: it was killed by SIGILL"),
        ("head -c 9999 /dev/urandom", "is broken: it wrote no cubin"),
        ("head -c 9999 /dev/urandom >&2; exit 1", "is broken: "),
        ("while [ $1 != -o ]; do shift; done; echo garbage > $2", "is broken: it wrote no cubin"),
    ],
)
def test_a_broken_ptxas_is_told(broken: Path, body: str, output: str) -> None:
    program(broken / "nvcc", COMPILES)
    program(broken / "ptxas", body)
    told_of(broken, output)


def test_what_is_no_program_is_told(broken: Path) -> None:
    (broken / "nvcc").mkdir()
    told_of(broken, "is a folder, not a program")
    (broken / "nvcc").rmdir()
    program(broken / "nvcc", COMPILES, 0o644)
    told_of(broken, "is not executable")
    (broken / "nvcc").write_bytes(b"\x7fELF and no more")
    (broken / "nvcc").chmod(0o755)
    told_of(broken, "it doesn't print its version: [Errno 8] Exec format error")
    program(broken / "nvcc", COMPILES)
    told_of(broken, f"its ptxas ({broken / 'ptxas'}) doesn't exist")
    (broken / "ptxas").symlink_to("nowhere")
    told_of(broken, "is a broken link")
    (broken / "ptxas").unlink()
    (broken / "ptxas").mkdir()
    told_of(broken, "is a folder, not a program")
    (broken / "ptxas").rmdir()
    program(broken / "ptxas", ASSEMBLES, 0o644)
    told_of(broken, "is not executable")
    (broken / "nvcc").unlink()
    (broken / "nvcc").symlink_to("nvcc")
    told_of(broken, "is a broken link")


def test_a_program_that_hangs_is_told(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = "exec sleep 600"
    program(broken / "ptxas", ASSEMBLES)
    monkeypatch.setattr(toolkits, "ANSWER_S", 0.5)
    program(broken / "nvcc", hangs)
    told_of(broken, "it doesn't print its version: no answer in 0.5 s")
    monkeypatch.setattr(toolkits, "ANSWER_S", 60)
    monkeypatch.setattr(toolkits, "WORK_S", 1)
    program(broken / "nvcc", f"case $1 in --version) {VERSION} ;; esac\n{hangs}")
    told_of(broken, "it can't compile: no answer in 1 s")
    program(broken / "nvcc", COMPILES)
    program(broken / "ptxas", hangs)
    told_of(broken, "is broken: no answer in 1 s")


def test_a_second_nvcc_of_the_same_release_is_asked_where_the_first_is_broken(broken: Path) -> None:
    program(broken / "nvcc", fails_to_compile("fatal error: cuda_runtime.h: No such file").replace("99.1.2", "98.7.6"))
    program(broken / "ptxas", ASSEMBLES)
    told_of(broken, "its header cuda_runtime.h doesn't exist")


def test_where_none_can_compile_nothing_is_claimed(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{broken}:{tmp_path / 'none'}:/usr/bin:/bin")
    program(broken / "nvcc", "exit 1")
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f", "--json"])
    told = json.loads(done.output)
    assert (done.exit_code, told["ok"], told["toolkits"], told["lacking"]) == (1, False, [], {})
    assert [u["nvcc"] for u in told["unusable"]] == [str(broken / "nvcc")]
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f"])
    assert done.exit_code == 1
    assert "no nvcc on this machine works" in done.output
    (broken / "nvcc").unlink()
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f"])
    assert done.exit_code == 1
    assert "no nvcc was found on this machine" in done.output


def test_a_broken_one_that_is_named_is_an_error_that_says_why(broken: Path) -> None:
    program(broken / "ptxas", ASSEMBLES)
    path = program(broken / "nvcc", fails_to_compile("fatal error: cuda_runtime.h: No such file"))
    done = CliRunner().invoke(cli, ["doctor", "--arch", "sm_121f", "--nvcc", str(path)])
    assert done.exit_code == 1
    assert "its header cuda_runtime.h doesn't exist" in done.output


def test_doctor_itself_says_what_the_nvcc_on_path_lacks(broken: Path, tmp_path: Path) -> None:
    program(broken / "ptxas", ASSEMBLES)
    program(broken / "nvcc", fails_to_compile("fatal error: cuda_runtime.h: No such file"))
    done = CliRunner().invoke(cli, ["--project", str(tmp_path), "doctor", "--json"])
    (found,) = [f for f in json.loads(done.output)["findings"] if f["topic"] == "nvcc"]
    assert "its header cuda_runtime.h doesn't exist" in found["message"]
    assert found["level"] == "note"
