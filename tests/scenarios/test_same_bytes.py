"""Two machines, two users, two time zones: every artifact of a project has the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit import ROOT, Patchq
from test_build import pair  # noqa: F401


@dataclass(frozen=True)
class User:
    """Somebody on a machine of theirs."""

    name: str
    zone: str
    umask: int
    locale: str
    seed: str
    git: str
    backwards: bool


USERS = [
    User("ada", "Pacific/Kiritimati", 0o022, "C.UTF-8", "1", "[user]\nname = Ada\nemail = ada@example.org\n", False),
    User("Bürger", "America/St_Johns", 0o077, "C", "77",
         "[user]\nname = Bürger\nemail = b@example.org\n[core]\nabbrev = 20\nautocrlf = input\n"
         "[diff]\nalgorithm = patience\nnoprefix = true\n[i18n]\ncommitEncoding = ISO-8859-1\n", True),
]  # fmt: skip


def at_work(user: User, project: Path, home: Path) -> dict[str, bytes]:
    """All artifacts of the project, made by a user from nothing but its files, in folders of theirs."""
    home.mkdir(parents=True)
    (home / ".gitconfig").write_text(user.git)
    gone = ("XDG_", "PYTEST", "GIT_", "LC_", "LANG", "SOURCE_DATE")
    env = {k: v for k, v in os.environ.items() if not k.startswith(gone)}
    env |= {"HOME": str(home), "USER": user.name, "LOGNAME": user.name, "TZ": user.zone, "LC_ALL": user.locale,
            "PYTHONHASHSEED": user.seed, "PYTHONPATH": str(ROOT / "tools"), "TMPDIR": str(home / "tmp"), "PATCHQ_CACHE": str(home / "cache")}  # fmt: skip
    if user.backwards:
        env = dict(reversed(env.items()))
    (home / "tmp").mkdir()
    deep = project / "patches"
    for words in (["apply"], ["build", "--no-isolation"], ["compose"], ["bundle", str(home / "out.bundle")]):
        done = subprocess.run(
            [sys.executable, "-m", "patchq", *words], cwd=deep if user.umask == 0o077 else project, env=env,
            umask=user.umask, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    made = [p for folder in ("dist", "deploy") for p in (project / folder).rglob("*") if p.is_file()]
    return {p.relative_to(project).as_posix(): p.read_bytes() for p in made} | {
        "bundle": (home / "out.bundle").read_bytes()
    }


def stack_id(files: dict[str, bytes]) -> str:
    """The stack id that an attestation names."""
    statement = json.loads(files["dist/default/provenance.json"])
    found: str = statement["predicate"]["buildDefinition"]["externalParameters"]["stackId"]
    assert len(found) == 64
    return found


def test_two_users_on_two_machines_make_the_same_bytes(pair: Patchq, tmp_path: Path) -> None:  # noqa: F811
    text = pair.layout.lock.read_text()
    pair.layout.lock.write_text(text + '\n[environments.default]\nimage = "base:1"\nport = 80\n')
    made = []
    for user in USERS:
        project = tmp_path / user.name / ("far" * 20 if user is USERS[1] else "p") / "project"
        shutil.copytree(pair.root, project, ignore=shutil.ignore_patterns(".patchq", "dist"))
        if user is USERS[1]:
            for path in project.rglob("*"):  # as a clone of another year has them
                os.utime(path, (1_000_000_000, 1_000_000_000))
        made.append(at_work(user, project, tmp_path / user.name / "home"))
    first, second = made
    for folder in (".patchq", "dist", "deploy"):
        shutil.rmtree(tmp_path / "ada/p/project" / folder)
    again = at_work(USERS[0], tmp_path / "ada/p/project", tmp_path / "ada/again")
    assert len({stack_id(files) for files in (first, second, again)}) == 1
    assert [name for name in first if first[name] != again[name]] == [], "applied and built from nothing once more"
    kinds = {Path(name).suffix for name in first}
    assert {".whl", ".json", ".txt", ".yaml"} <= kinds
    assert {"bundle", "dist/default/provenance.json", "dist/default/patchq.cdx.json", "deploy/Dockerfile"} <= set(first)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.parametrize("user", USERS, ids=lambda u: u.name)
def test_the_users_are_at_odds(user: User) -> None:
    """The test above says something only as long as their machines differ."""
    other = USERS[1 - USERS.index(user)]
    assert all(getattr(user, f) != getattr(other, f) for f in user.__dataclass_fields__)
