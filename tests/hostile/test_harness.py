"""The judge of the hostile corpus sees each thing that it is there to see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import harness
from harness import Base, Case, Server, Way, World, judge

#: What a bad patchq would do, in the shell's words, and what is said of it.
BAD = {
    "runs a program": ("{programs}/less", "less was run"),
    "reads a secret": ("cat {outside}/secret.txt >/dev/null", "a secret file was opened"),
    "prints a secret": ("cat {home}/.ssh/id_ed25519", "prints the ssh key"),
    "prints a variable": ("echo $SECRET_TOKEN", "prints the variable"),
    "keeps a secret": ("cp {outside}/folder/deeper.txt {project}/patches/", "holds the deeper"),
    "packs a secret": ("gzip -c {outside}/secret.txt >{out}/x", "holds the outside"),
    "commits a secret": (
        "cp {outside}/secret.txt {tree} && git -C {tree} add . && git -C {tree} commit -qm x && rm {tree}/secret.txt",
        "holds the outside",
    ),
    "writes outside": ("touch {outside}/x", "made outside"),
    "changes what is outside": ("touch {outside}/secret.txt", "changed outside"),
    "removes what is outside": ("rm {outside}/folder/deeper.txt", "removed outside"),
    "makes a folder": ("mkdir {root}/x", "made outside"),
    "leaves a file": ("touch $TMPDIR/x", "left in TMPDIR"),
    "leaves a process": ("sleep 60 >/dev/null 2>&1 &", "left running: sleep 60"),
    "falls": ("echo 'Traceback (most recent call last)'; exit 4", "exit code 4"),
    "dies": ("kill -9 $$", "exit code -9"),
    "colours": (r"printf '\033[31m'", r"prints raw '\x1b'"),
    "turns text around": (r"printf '\342\200\256'", r"prints raw '\u202e'"),
    "prints bytes": (r"printf '\377'", "no UTF-8"),
    "commands a log": ("echo ' ::add-mask::x'", "commands the log"),
    "takes memory": ("""python3 -c 'x = b"1" * (1 << 28)'""", "MiB of memory"),
    "takes time": ("""python3 -c 'import time\nwhile time.process_time() < 0.6: pass'""", "s of processor time"),
    "writes a page": ("echo '<img src=x onerror=pwned()>' >{out}/x.html", "onerror"),
    "makes a pipe": ("mkfifo {project}/x", "which is no file"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_goes_wrong_is_seen(
    what: str, worlds: Callable[[Base], World], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.5)
    monkeypatch.setattr(harness, "MEMORY", 200 << 20)
    world = worlds(Base.STACK)
    command, said = BAD[what]
    world.write(world.inputs / "x.sh", command.format(**world.places, tree=world.tree))
    case = Case(
        name=what,
        make=lambda _: None,
        verbs=("{inputs}/x.sh",),
        way=Way(process=("/bin/sh",), environment={"GITHUB_ACTIONS": "true"}),
    )
    _, wrong = judge(server, world, case)
    assert any(said in problem for problem in wrong), wrong


def test_what_goes_well_is_no_fault(judged: Callable[[Case], None]) -> None:
    verbs = (
        "status", "list", "show first --diff", "check --text", "apply", "apply --to first", "fetch", "deps", "diff HEAD",
        "report", "report --html {out}/r.html", "ledger", "bundle {out}/b", "--project {out}/site apply --from-bundle {out}/b",
        "publish --to {out}/published.git", "export up", "drop third", "undo", "forecast up --onto v2",
        "rebase up --onto v2", "conflict up", "rebase --abort", "doctor", "compose", "status --json",
    )  # fmt: skip
    judged(Case(name="good", make=lambda _: None, verbs=verbs))
    judged(Case(name="terminal", make=lambda _: None, verbs=verbs[:3], way=Way(terminal=True)))
