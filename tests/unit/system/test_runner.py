"""The subprocess door: whose errors are told, and which environment children see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit import ROOT
from patchq.system import runner


def test_an_error_while_feeding_is_not_hidden_by_the_dead_child() -> None:
    """The buffer's BrokenPipeError, raised when the pipe is closed, must not replace the real error."""
    with pytest.raises(ValueError, match="the real one"), runner.feed(["sleep", "60"]) as process:
        assert process.stdin
        process.stdin.write(b"still in the buffer")
        process.kill()
        process.wait()
        raise ValueError("the real one")


def test_a_child_that_dies_while_fed_tells_its_own_words() -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('its own words')"]
    with pytest.raises(runner.CommandError, match="its own words"), runner.feed(argv) as process:
        assert process.stdin
        for _ in range(100):
            process.stdin.write(b"x" * 65536)


def test_gits_variables_are_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    out = runner.run(["env"]).stdout.decode()
    assert "/nowhere" not in out
    assert "GIT_TERMINAL_PROMPT=0" in out


def test_a_failure_shows_command_code_and_words() -> None:
    with pytest.raises(runner.CommandError) as caught:
        runner.run(["sh", "-c", "echo words >&2; exit 3"])
    assert caught.value.code == 3
    assert "words" in caught.value.message
    assert "sh -c" in caught.value.message
    with pytest.raises(runner.CommandError) as caught:
        runner.run(["no-such-program"])
    assert caught.value.code == 127


def test_a_hanging_command_ends(tmp_path: Path) -> None:
    with pytest.raises(runner.CommandError, match=r"no answer in 0\.2 s"):
        runner.run(["sleep", "60"], timeout=0.2)


def test_a_reader_that_leaves_is_no_bug() -> None:
    command = f"{sys.executable} -m patchq --help | head -1"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
    assert done.stdout.startswith("Usage")
    assert "bug" not in done.stderr


def test_whoever_says_too_much_is_heard_at_the_beginning_and_the_end(tmp_path: Path) -> None:
    """What is adopted from somebody else may write without an end: it isn't kept in memory."""
    script = "cat; echo first >&2; head -c 9000000 /dev/zero >&2; echo last >&2; exit 3"
    code, said = runner.overhear(["sh", "-c", script], cwd=tmp_path, data=b"x", timeout=60, most=1000)
    assert (code, len(said), said[:6], said[-5:]) == (3, 2000, b"first\n", b"last\n")
    code, said = runner.overhear(["sh", "-c", "exec yes >&2"], cwd=tmp_path, timeout=0.3, most=1000)
    assert (code, said[-18:]) == (124, b"no answer in 0.3 s")
    assert runner.overhear(["sh", "-c", "exec 2>&-; exec sleep 60"], cwd=tmp_path, timeout=0.3)[0] == 124
    assert runner.overhear([str(tmp_path / "none")], cwd=tmp_path, timeout=1)[0] == 127


def test_of_what_a_command_complains_of_beginning_and_end_are_kept() -> None:
    script = "echo first >&2; yes | head -c 3000000 >&2; echo last >&2; cat; exit 3"
    done = runner.run(["sh", "-c", script], data=b"x", ok_codes=(3,), most_said=1000)
    assert (done.stdout, done.stderr[:6], done.stderr[-5:], len(done.stderr)) == (b"x", b"first\n", b"last\n", 2000)
    with pytest.raises(runner.CommandError) as failed:
        runner.run(["sh", "-c", "exec yes >&2"], timeout=0.3, most_said=1000)
    assert failed.value.code == 124
    assert failed.value.stderr.startswith(b"y\ny\n")
    assert len(failed.value.stderr) < 2100
    # Who still holds it open isn't waited for.
    assert runner.run(["sh", "-c", "sleep 3 >&- & echo said >&2"], most_said=1000).stderr == b"said\n"
