"""Commands become patches of what they change; they can change nothing else, and reach nobody."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kit import Patchq, edit, git, numbered, release
from patchq.errors import UserError
from patchq.replay import dockerfile, scripts
from patchq.system import sandbox
from patchq.system.sandbox import Limits, run_isolated

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


def names(patchq: Patchq) -> list[str]:
    return [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]]


def test_commands(patchq: Patchq) -> None:
    said = patchq.ok("import", "up", "--run", "sed -i 's/line 3$/line three/' a.txt && echo 'new = 1' > pkg/new.py")
    assert said.index("--run:1: sed -i") < said.index("added edit-a")
    assert names(patchq) == ["edit-a", "edit-new"]
    patchq.ok("apply")
    assert (patchq.tree() / "a.txt").read_bytes() == numbered(40).replace(b"line 3\n", b"line three\n")
    assert (patchq.tree() / "pkg/new.py").read_text() == "new = 1\n"
    assert "    sed -i 's/line 3$/line three/' a.txt\n" in patchq.patch_file("edit-a").read_text()
    assert "nothing changed" in patchq.ok("export", "up")


def test_a_command_without_an_effect_is_an_error(patchq: Patchq) -> None:
    patchq.ok("apply")
    before = patchq.snapshot()
    said = patchq.fails(1, "import", "up", "--run", "sed -i s/line/LINE/ a.txt", "--run", "sed -i s/nowhere/x/ b.txt")
    assert "--run 2:1: refused: `sed -i s/nowhere/x/ b.txt`: it changes nothing in the package" in said
    said = patchq.fails(1, "import", "up", "--run", "sed -i s/a/b/ not-there.txt")
    assert "failed with exit code 2" in said
    assert "not-there.txt" in said
    assert patchq.snapshot() == before


def write_image(place: Path, text: str, **files: str) -> Path:
    place.mkdir()
    for name, data in files.items():
        (place / name.replace("_", ".")).write_text(data)
    (place / "Dockerfile").write_text(text)
    return place / "Dockerfile"


def test_a_dockerfile(patchq: Patchq, tmp_path: Path) -> None:
    text = (
        "FROM base\nARG WHAT=two\nRUN apt-get update && pip install up\nWORKDIR /usr/lib/python3/dist-packages\n"
        '# Spell it out\nRUN sed -i "s/return 1$/return $WHAT/" /usr/lib/python3/dist-packages/pkg/mod.py && \\\n'
        "    rm -rf /var/lib/apt\nCOPY new.diff /tmp/new.diff\nRUN patch -p1 < /tmp/new.diff\nCOPY more.py pkg/more.py\n"
        "RUN <<EOF\npython3 - <<'X'\nfrom pathlib import Path\np = Path('pkg/more.py')\n"
        "p.write_text(p.read_text().replace('9', 'nine'))\nX\nEOF\nRUN echo done\n"
    )
    diff = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+new = 1\n"
    path = write_image(tmp_path / "image", text, new_diff=diff, more_py="def f():\n    return 9\n")
    said = patchq.ok("import", "up", str(path), "--dry-run")
    assert "Dockerfile:6: sed -i" in said
    assert "all would be adopted" in said
    patchq.ok("import", "up", str(path))
    assert names(patchq) == ["spell-it-out", "edit-new", "edit-more", "edit-more-2"]
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/mod.py").read_text() == "def f():\n    return two\n"
    assert (patchq.tree() / "pkg/new.py").read_text() == "new = 1\n"
    assert (patchq.tree() / "pkg/more.py").read_text() == "def f():\n    return nine\n"
    assert "Origin: " in patchq.patch_file("edit-more").read_text()


def test_what_a_dockerfile_may_change_otherwise_is_named(patchq: Patchq, tmp_path: Path) -> None:
    site = "/usr/local/lib/python3.12/site-packages"
    text = (
        f"FROM base\nRUN echo 'x = 1' >> {site}/pkg/mod.py\nRUN curl -L https://x/y | python3 -\n"
        "RUN pip install other\nRUN pip install -U up\nARG SECRET\nCOPY $SECRET /opt/\n"
    )
    path = write_image(tmp_path / "image", text)
    said = patchq.fails(3, "import", "up", str(path), "--dry-run")
    assert "Dockerfile:3: not understood: `curl -L https://x/y | python3 -`: it needs the network" in said
    assert "Dockerfile:4: not understood: `pip install other`: pip may install another version" in said
    assert "Dockerfile:5: refused: `pip install -U up`: up installs the package again" in said
    assert "Dockerfile:7: not understood: `COPY $SECRET /opt/`: the variable SECRET has no value" in said
    assert "`--build-arg SECRET=`" in said
    assert "1 of 2 would be adopted; 3 more may change the package" in said
    assert "all would" not in said
    refused = patchq.fails(1, "import", "up", str(path))
    assert "Dockerfile:5: refused: " in refused
    assert "nothing was adopted; 1 other step would be adopted" in refused
    assert names(patchq) == []
    patchq.ok("import", "up", str(path), "--partial")
    assert names(patchq) == ["edit-mod"]
    answer = json.loads(patchq.run("import", "up", str(path), "--dry-run", "--json").output)
    fates = {item["account"]["where"].rpartition(":")[2]: item["account"]["status"] for item in answer["items"]}
    assert fates == {"2": "taken", "3": "not understood", "4": "not understood", "5": "refused", "7": "not understood"}


AGAIN = """FROM base
RUN pip install up
WORKDIR /usr/lib/python3/dist-packages
# Spell it out
RUN sed -i "s/return 1$/return one/" pkg/mod.py
RUN echo "x = 1" > pkg/x.py
"""


def test_a_dockerfile_is_imported_again(patchq: Patchq, tmp_path: Path) -> None:
    path = write_image(tmp_path / "image", AGAIN)
    patchq.ok("import", "up", str(path))
    patchq.ok("reword", "spell-it-out", "-m", "Return a word")
    said = patchq.ok("import", "up", str(path))
    assert "up: nothing changed (2 patches)" in said
    assert f"up: equal: spell-it-out: {path}:5: the stack already has this edit" in said
    assert f"up: equal: edit-x: {path}:6: the stack already has this edit" in said
    path.write_text(AGAIN.replace("RUN echo", 'RUN echo "y = 1" > pkg/y.py\nRUN echo'))
    said = patchq.ok("import", "up", str(path), "--dry-run")
    assert "nothing was changed; the import gives 2 equal, 1 new" in said
    said = patchq.ok("import", "up", str(path))
    assert "up: added edit-y" in said
    assert names(patchq) == ["spell-it-out", "edit-y", "edit-x"]
    assert "nothing changed (3 patches)" in patchq.ok("import", "up", str(path))


def test_a_changed_step_names_the_patch_that_it_replaces(patchq: Patchq, tmp_path: Path) -> None:
    path = write_image(tmp_path / "image", AGAIN)
    patchq.ok("import", "up", str(path))
    path.write_text(AGAIN.replace("return one", "return uno"))
    before = patchq.snapshot()
    said = patchq.fails(3, "import", "up", str(path))
    assert f"{path}:5: the step makes another change than up/spell-it-out\n" in said
    assert "hint: to keep the patch's message and trailers: `patchq apply up --fix spell-it-out`, make the edit" in said
    assert "`patchq drop up/spell-it-out`, then import again; --partial keeps the patch as it is" in said
    assert patchq.snapshot() == before
    patchq.ok("drop", "up/spell-it-out")
    patchq.ok("import", "up", str(path))
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/mod.py").read_text() == "def f():\n    return uno\n"


def sed(line: int, text: str) -> str:
    return f"# Line {line}\nRUN sed -i 's/x = {line}$/{text}/' pkg/data.py\n"


@pytest.fixture
def steps(patchq: Patchq, upstream: Path, tmp_path: Path) -> Path:
    """A Dockerfile of four steps, the second and third of them imported, with a patch of the user on top."""
    release(upstream, "v2", {"pkg/data.py": b"".join(b"x = %d\n" % n for n in range(40))})
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v2")
    start = "FROM base\nRUN pip install up\nWORKDIR /usr/lib/python3/dist-packages\n"
    path = write_image(tmp_path / "image", start + sed(5, "five = 5") + sed(9, "nine = 9"))
    patchq.ok("import", "up", str(path))
    patchq.ok("apply")
    edit(patchq.tree() / "pkg/data.py", 16, b"mine = 15\n")
    patchq.ok("new", "up", "mine")
    path.write_text(start + sed(1, "one = 1") + sed(5, "FIVE = 5") + sed(9, "nine = 9") + sed(30, "thirty = 30"))
    return path


def test_steps_next_to_a_changed_one_are_taken(patchq: Patchq, steps: Path) -> None:
    said = patchq.fails(3, "import", "up", str(steps))
    assert f"{steps}:7: the step makes another change than up/line-5\nnothing was adopted; 2 other patches" in said
    said = patchq.fails(3, "import", "up", str(steps), "--dry-run")
    rows = [line.split()[:2] for line in said.splitlines() if line.startswith("line-")]
    assert rows == [["line-1", "merged"], ["line-5", "conflict"], ["line-9", "equal"], ["line-30", "merged"]]
    said = patchq.ok("import", "up", str(steps), "--partial")
    assert "`patchq export up --amend line-5`; to take a new message, without trailers that were added: " in said
    assert "`patchq drop up/line-5`, then import again" in said
    assert "gone" not in said
    assert names(patchq) == ["line-1", "line-5", "line-9", "line-30", "mine"]
    patchq.ok("drop", "up/line-5")
    patchq.ok("import", "up", str(steps))
    assert names(patchq) == ["line-1", "line-5", "line-9", "line-30", "mine"]
    patchq.ok("apply")
    lines = (patchq.tree() / "pkg/data.py").read_text().splitlines()
    assert [lines[n] for n in (1, 5, 9, 15, 30)] == ["one = 1", "FIVE = 5", "nine = 9", "mine = 15", "thirty = 30"]


def test_a_step_that_conflicts_at_its_place_goes_to_the_end(patchq: Patchq, steps: Path) -> None:
    """The user's patch changes the line of the new step, and another one changes it back."""
    text = steps.read_text().replace("FIVE", "five").replace(sed(1, "one = 1"), "")
    steps.write_text(text)
    for name, line in (("there", b"mine = 30\n"), ("back", b"x = 30\n")):
        patchq.ok("apply")
        edit(patchq.tree() / "pkg/data.py", 31, line)
        patchq.ok("new", "up", name)
    said = patchq.ok("import", "up", str(steps))
    assert "line-30: at the end of the stack, because of a conflict at the place of the new patches" in said
    assert names(patchq) == ["line-5", "line-9", "mine", "there", "back", "line-30"]


def test_a_script_of_the_same_name_is_told_apart(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the name says which file it is: patches of the other one are not called gone."""
    shared, own = "sed -i 's/line 3$/three/' a.txt\n", "sed -i 's/line 8$/eight/' a.txt\n"
    for folder, text in (("one", shared + own), ("two", shared)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fix.sh").write_text(f"set -e\n{text}")
    monkeypatch.chdir(tmp_path / "one")
    patchq.ok("import", "up", "fix.sh")
    monkeypatch.chdir(tmp_path)
    said = patchq.ok("import", "up", "two/fix.sh")
    assert "up: equal: edit-a: two/fix.sh:2" in said
    typed = "`patchq drop up/edit-a-2` removes it"
    assert f"two/fix.sh doesn't make this edit, which came from fix.sh: if that is the same file, {typed}" in said
    (tmp_path / "one" / "fix.sh").write_text(f"set -e\n{shared}")
    patchq.ok("drop", "up/edit-a-2")
    patchq.ok("drop", "up/edit-a")
    (tmp_path / "one" / "fix.sh").write_text(f"set -e\n{shared}{own}")
    patchq.ok("import", "up", "one/fix.sh")
    (tmp_path / "one" / "fix.sh").write_text(f"set -e\n{shared}")
    assert f"one/fix.sh no longer makes this edit: {typed}" in patchq.ok("import", "up", "one/fix.sh")


@pytest.mark.parametrize("cause", ["argument", "default", "copied", "diff"])
def test_a_step_that_makes_another_change_is_not_equal(patchq: Patchq, tmp_path: Path, cause: str) -> None:
    """The text of the step is the same: a value or a file that it uses has changed."""
    text = (
        "FROM base\nARG WIDTH=120\nRUN pip install up\nWORKDIR /usr/lib/python3/dist-packages\n"
        'RUN sed -i "s/return 1$/return $WIDTH/" pkg/mod.py\nCOPY more.py pkg/more.py\n'
        "COPY new.diff /tmp/new.diff\nRUN patch -p1 < /tmp/new.diff\n"
    )
    diff = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+new = 1\n"
    path = write_image(tmp_path / "image", text, more_py="more = 1\n", new_diff=diff)
    patchq.ok("import", "up", str(path))
    assert "nothing changed (3 patches)" in patchq.ok("import", "up", str(path))
    options = []
    if cause == "argument":
        options = ["--build-arg", "WIDTH=132"]
    elif cause == "default":
        path.write_text(text.replace("120", "132"))
    elif cause == "copied":
        (path.parent / "more.py").write_text("more = 2\n")
    else:
        (path.parent / "new.diff").write_text(diff.replace("= 1", "= 2"))
    line, name = {"copied": (6, "edit-more"), "diff": (8, "edit-new")}.get(cause, (5, "edit-mod"))
    before = patchq.snapshot()
    said = patchq.fails(3, "import", "up", str(path), *options)
    assert f"{path}:{line}: the step makes another change than up/{name}\n" in said
    assert f"`patchq drop up/{name}`, then import again; --partial keeps the patch" in said
    said = patchq.fails(3, "import", "up", str(path), "--dry-run", *options)
    assert "1 conflict" in said
    assert "2 equal" in said
    assert "left out: " in patchq.ok("import", "up", str(path), "--partial", *options)
    assert patchq.snapshot() == before
    patchq.ok("drop", f"up/{name}")
    patchq.ok("import", "up", str(path), *options)
    patchq.ok("apply")
    file, now = {"copied": ("more", "more = 2\n"), "diff": ("new", "new = 2\n")}.get(cause, ("mod", "return 132\n"))
    assert (patchq.tree() / f"pkg/{file}.py").read_text().endswith(now)


def test_a_refused_step_keeps_its_patch(patchq: Patchq, tmp_path: Path) -> None:
    path = write_image(tmp_path / "image", AGAIN + "COPY more.py pkg/more.py\n", more_py="more = 1\n")
    patchq.ok("import", "up", str(path))
    (path.parent / "more.py").unlink()
    said = patchq.fails(1, "import", "up", str(path))
    assert f"{path}:7: `COPY more.py pkg/more.py`: " in said
    assert "drop" not in said
    said = patchq.ok("import", "up", str(path), "--partial")
    assert "gone" not in said
    path.write_text(AGAIN)
    assert "up: gone: edit-more: " in patchq.ok("import", "up", str(path))


@pytest.mark.parametrize("before", ["", "RUN curl -L https://x/y | python3 -\n"])
def test_a_removed_step_is_gone_next_to_one_not_understood(patchq: Patchq, tmp_path: Path, before: str) -> None:
    """The step that is not understood may now be on the line of the removed one."""
    other = "RUN curl -L https://x/z | python3 -\n"
    path = write_image(tmp_path / "image", AGAIN.replace("# Spell", f"{before}# Spell") + other)
    patchq.ok("import", "up", str(path))
    path.write_text(path.read_text().replace('RUN echo "x = 1" > pkg/x.py\n', ""))
    said = patchq.ok("import", "up", str(path))
    line = 7 if before else 6
    unless = f"unless the step {path}:{line}, which has no result, makes this edit: "
    assert f"up: gone: edit-x: {unless}{path} no longer makes this edit: `patchq drop up/edit-x` removes it" in said


def test_a_test_of_the_package_is_no_edit(patchq: Patchq, tmp_path: Path) -> None:
    site = "/usr/lib/python3/dist-packages"
    lines = f'RUN set -ex; cd {site}; echo "x = 1" > pkg/x.py ; python3 -c "import pkg.mod"\n'
    path = write_image(tmp_path / "image", f"FROM base\nRUN pip install up\n{lines}")
    said = patchq.ok("import", "up", str(path), "--dry-run")
    assert f'{path}:3: unrelated: `python3 -c "import pkg.mod"`: it changes nothing in the package\n' in said
    assert "all would be adopted" in said
    path.write_text(path.read_text().replace('"import pkg.mod"', "\"p = 'pkg/x.py'; open(p, 'a')\""))
    assert ":3: refused: `python3 -c" in patchq.fails(1, "import", "up", str(path))


def test_a_step_over_its_time_is_refused_and_the_next_goes_on(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = "/usr/local/lib/python3.12/site-packages"
    text = (
        f"FROM base\nRUN bash -c 'echo x = 1 >> {site}/pkg/mod.py; sleep 613'\nRUN echo 'y = 1' >> {site}/pkg/mod.py\n"
    )
    path = write_image(tmp_path / "image", text)
    monkeypatch.setattr(dockerfile, "Limits", functools.partial(Limits, seconds=5))
    said = patchq.ok("import", "up", str(path), "--partial")
    assert "Dockerfile:2: refused: `" in said
    assert "it was stopped at the time limit of a step, 5 seconds" in said
    data = patchq.patch_file("edit-mod").read_text()
    assert "+y = 1" in data
    assert "x = 1" not in data


def test_scripts(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "fix.sh").write_text(
        "#!/bin/bash -e\nFILE=a.txt\ncd /nowhere/pkg/.. 2>/dev/null || true\n# Spell it\nsed -i 's/line 3$/three/' $FILE\n"
    )
    (tmp_path / "fix.py").write_text("open('b.txt', 'a').write('end\\n')\n")
    patchq.ok("import", "up", str(tmp_path / "fix.sh"), str(tmp_path / "fix.py"))
    assert names(patchq) == ["spell-it", "edit-b"]


def test_nothing_else_can_be_written_or_reached(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    monkeypatch.setenv("MY_TOKEN", "secret")
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    port = server.getsockname()[1]
    evil = f"""
        echo x > {mine}; echo x > {patchq.layout.lock}; echo x > /usr/x; echo x > /etc/x; echo x > /x
        mount -o remount,rw /usr && echo x > /usr/x
        unshare -rm sh -c 'mount -o remount,bind,rw /usr && echo x > /usr/x'
        mkdir /tmp/up; mount --bind /usr /tmp/up
        echo x > /proc/sys/kernel/domainname
        python3 -c "import socket; socket.create_connection(('127.0.0.1', {port}), 2); open('/src/reached', 'w')"
        for fd in /proc/self/fd/*; do case ${{fd##*/}} in 0|1|2) ;; *) eval "echo x >&${{fd##*/}}";; esac; done
        ls -A / /tmp {mine} > /src/seen 2>&1; env >> /src/seen; echo x >> /src/a.txt; true
    """
    patchq.ok("apply")
    before = ((patchq.root / ".patchq/lock").read_bytes(), mine.read_bytes())
    patchq.ok(
        "import", "up", "--run", f"sh -c '{evil.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' 2>/dev/null"
    )
    patchq.ok("apply")
    seen = (patchq.tree() / "seen").read_text()
    assert "secret" not in seen
    assert "src" in seen.split()
    assert "work" not in seen.split()
    assert not (patchq.tree() / "reached").exists()
    assert ((patchq.root / ".patchq/lock").read_bytes(), mine.read_bytes()) == before
    # The import itself writes check rules to the lock.
    assert "x" not in patchq.layout.lock.read_text().splitlines()
    assert not Path("/usr/x").exists()
    with pytest.raises(BlockingIOError):
        server.accept()
    server.close()


def test_where_it_cannot_be_walled_in_nothing_runs(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/unshare").write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    (tmp_path / "bin/unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    said = patchq.fails(1, "import", "up", "--run", "echo x > a.txt")
    assert "can't run commands in a sandbox: unshare failed: Operation not permitted" in said
    assert "`patchq new`" in said


def test_a_folder_that_cannot_be_told_from_others_is_no_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with blank").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "with blank"))
    with pytest.raises(UserError, match="can't be made read-only"):
        run_isolated(["true"], tmp_path)


def test_a_command_that_goes_on_is_ended(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert run_isolated(["sh", "-c", "sleep 1000 & exec sleep 1000"], tmp_path, limits=Limits(seconds=2)).code == 124
    assert git(tmp_path, "hash-object", "f")


#: A limit, what is run with it, and what is said. Each would go on for ten minutes, and take what it can.
TOO_MUCH = {
    "time": ({"seconds": 2}, "{ sleep 611 & sleep 611; }", "the limit is 2 seconds"),
    "time of a silent one": ({"seconds": 2}, "{ exec >&- 2>&-; sleep 611 & sleep 611; }", "the limit is 2 seconds"),
    "processes": (
        {"processes": 60},
        "{ for n in $(seq 200); do sleep 611 & done; wait; }",
        "the limit is 60 processes at once",
    ),
    "processes that nobody waits for": (
        {"processes": 60},
        'python3 -c "import os, time\nfor _ in range(90): os.fork() or os._exit(0)\ntime.sleep(611)"',
        "the limit is 60 processes at once",
    ),
    "threads": (
        {"processes": 60},
        'python3 -c "import threading, time\nfor _ in range(90): threading.Thread(target=time.sleep, args=(611,)).start()"',
        "the limit is 60 processes at once",
    ),
    "memory": (
        {"memory": 200 << 20},
        "python3 -c \"import time; held = bytearray(b'x') * (300 << 20); time.sleep(611)\"",
        "the limit is 200 MiB of memory",
    ),
    "memory of several": (
        {"memory": 200 << 20},
        "{ for n in 1 2 3 4; do python3 -c \"import time; held = bytearray(b'x') * (80 << 20); time.sleep(611)\" & done; wait; }",
        "the limit is 200 MiB of memory",
    ),
    "disk": (
        {"disk": 8 << 20},
        "while :; do dd if=/dev/zero of=f$((n += 1)) bs=1M count=1 2>/dev/null; sleep 0.02; done",
        "the limit is 8 MiB on disk",
    ),
    "disk at once": ({"disk": 8 << 20}, "head -c 20M /dev/zero > big || true", "the limit is 8 MiB on disk"),
    "many small files": (
        {"disk": 8 << 20},
        "mkdir many && while :; do : > many/$((n += 1)); done",
        "the limit is 8 MiB on disk",
    ),
    "output": ({"output": 1 << 20}, "yes", "the limit is 1 MiB of output"),
    "complaints": ({"output": 1 << 20}, "yes >&2", "the limit is 1 MiB of output"),
}


def left_behind() -> list[str]:
    """The processes of a command that was to go on for 611 seconds."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if b"611" in words and b"pytest" not in words:
            found.append(str(words))
    return found


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_command_that_takes_too_much_is_stopped(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    small, command, words = TOO_MUCH[what]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(scripts, "Limits", functools.partial(Limits, **{"seconds": 120, **small}))
    patchq.ok("apply")
    before = patchq.snapshot()
    # What follows isn't run either: the copy may hold anything.
    said = patchq.fails(1, "import", "up", "--run", command, "--run", "sed -i s/line/LINE/ a.txt", "--partial")
    assert words in said
    assert "was stopped" in said
    assert "nothing was adopted" in said
    assert patchq.snapshot() == before
    assert os.listdir(scratch) == []
    assert left_behind() == []


def test_a_command_within_its_limits_is_let_be(tmp_path: Path) -> None:
    limits = Limits(seconds=120, processes=60, memory=400 << 20, disk=8 << 20, output=1 << 20)
    (tmp_path / "f").write_bytes(bytes(20 << 20))  # what was there before is none of it
    command = "yes | head -c 500K; yes | head -c 500K >&2; head -c 7M /dev/zero > new; for n in 1 2 3 4 5; do sleep 0.2 & done; wait"
    ran = run_isolated(["sh", "-c", command], tmp_path, limits=limits)
    assert (ran.code, ran.over) == (0, None)
    assert (tmp_path / "new").stat().st_size == 7 << 20


def test_processes_are_bounded_by_the_kernel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that forks faster than anyone looks."""
    if os.geteuid() == 0 and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 14):
        pytest.skip("for root there is no such limit before Linux 6.14")
    monkeypatch.setattr(sandbox._Watch, "__call__", lambda self, pid, said: False)
    count = "n=0; while [ $n -lt 3000 ]; do sleep 611 & n=$((n+1)); done"
    ran = run_isolated(["sh", "-c", count], tmp_path, limits=Limits(seconds=120, processes=60))
    assert ran.code not in (0, 124)
    assert "fork" in ran.message
    assert left_behind() == []


@pytest.mark.parametrize("depth", [1100, 2500], ids=["path", "longer-than-a-path"])
def test_a_command_that_makes_too_deep_folders(
    patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """Python's own ways to walk and to remove folders end with a RecursionError, or at the longest path."""
    patchq.ok("apply")
    before, temporary = patchq.snapshot(), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    deeper = f"import os\nfor _ in range({depth}):\n    os.mkdir('d')\n    os.chdir('d')\nopen('f', 'w')\n"
    said = patchq.fails(1, "import", "up", "--run", f'python3 -c "{deeper}"')
    assert "error: --run:1: " in said
    assert "folders are nested too deeply; the limit is 256" in said
    assert patchq.snapshot() == before
    assert not list(temporary.iterdir())


def test_an_overlay_with_too_deep_folders(patchq: Patchq, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    deep = f"{overlay}/{'d/' * 1100}"
    subprocess.run(["mkdir", "-p", deep], check=True)  # Python's own ways to make and remove it would recurse
    Path(deep, "a.txt").write_text("x\n")
    said = patchq.fails(1, "import", "up", "--overlay", str(overlay))
    assert "error: " in said
    assert "folders are nested too deeply; the limit is 256" in said
    subprocess.run(["rm", "-r", str(overlay)], check=True)


def test_the_parts_of_a_sed_that_change_nothing_are_named(patchq: Patchq, tmp_path: Path) -> None:
    text = (
        "FROM base\nRUN pip install up\nWORKDIR /usr/lib/python3/dist-packages/pkg\n"
        "RUN echo 'x = 1' > other.py\n"
        "RUN sed -i 's/return 1$/return 2/' mod.py other.py\n"
        "RUN sed -i -e 's/return 2/return 3/' -e 's/nowhere/x/' mod.py\n"
        "RUN sed -i -e 's/return 3/return 4/' -e 's/4/5/' mod.py\n"
        "RUN sed -i 's/return 5/return 6/' *.py\n"
    )
    path = write_image(tmp_path / "image", text)
    said = patchq.ok("import", "up", str(path), "--build-arg", "NOWHERE=1")
    assert f"{path}:5: not understood: `sed -i 's/return 1$/return 2/' mod.py other.py`: this part of the" in said
    assert "step changes nothing: other.py\n" in said
    assert "changes nothing: s/nowhere/x/\n" in said
    assert said.count("changes nothing") == 2, "not the second expression of line 7, nor the files of a pattern"
    assert "no instruction uses --build-arg NOWHERE" in said
    patchq.ok("apply")
    assert (patchq.tree() / "pkg/mod.py").read_text() == "def f():\n    return 6\n"
