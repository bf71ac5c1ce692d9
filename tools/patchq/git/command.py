"""The git command in an isolated environment.

This module starts the git processes that read or write a store. The module ``person`` starts the git processes in the
user's repository.

- Configuration: only patchq's, not the user's or the system's. Attributes and ignore rules come
  from the trees. ``project._private`` checks that the store's configuration is patchq's own.
- Programs: no hook, file monitor, signature program, askpass, pager, editor or transport runs.
- Objects: no replacement refs, and no lazy fetch of missing objects.
- Repository: always explicit. If the repository is damaged, git doesn't search the parent folders for another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchq.errors import FormatError
from patchq.formats.header import Ident
from patchq.system import runner

#: Settings of every git process. They override git's defaults and all settings that name a program to run.
SETTINGS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.eol", "lf"),
    ("core.askPass", ""),
    ("core.pager", "cat"),
    ("core.quotePath", "true"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.showSignature", "false"),
    ("log.mailmap", "false"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
    ("mailinfo.scissors", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
)
_PINNED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_DEFAULT_HASH": "sha1",
    "GIT_DEFAULT_REF_FORMAT": "files",
    "GIT_TERMINAL_PROMPT": "0",
    # Empty, because git falls back to SSH_ASKPASS if it is unset.
    "GIT_ASKPASS": "",
    "GIT_EDITOR": "false",
    "GIT_COMMITTER_NAME": "patchq",
    "GIT_COMMITTER_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_NAME": "patchq",
    "GIT_AUTHOR_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_DATE": "946684800 +0000",
    "GIT_COMMITTER_DATE": "946684800 +0000",
}
#: Messages of git about missing or damaged objects, refs and indexes.
_LOST = re.compile(
    r"bad object|unable to read|missing (?:blob|tree|commit)|is corrupt|could not (?:read|parse)|bad tree|"
    r"not a git repository|bad ref|broken ref|bad signature|index file|reference broken|bad config|is not a valid ref"
)
MEND = "`patchq fetch` repairs the store: it fetches or recreates what is missing"


def pinned(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the environment variables for git: patchq's own settings, followed by ``settings``."""
    if not settings:
        return _EVERY
    found = dict(_EVERY)
    found["GIT_CONFIG_COUNT"] = str(len(SETTINGS) + len(settings))
    for number, (key, value) in enumerate(settings, len(SETTINGS)):
        found[f"GIT_CONFIG_KEY_{number}"] = key
        found[f"GIT_CONFIG_VALUE_{number}"] = value
    return found


_EVERY = {**_PINNED, "GIT_CONFIG_COUNT": str(len(SETTINGS))}
_EVERY.update({f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(SETTINGS)})
_EVERY.update({f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(SETTINGS)})


class Command:
    """Commands of git in one bare repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self) -> dict[str, str]:
        """Return the variables that name the repository and, if it has one, its worktree."""
        return {"GIT_DIR": str(self.folder.absolute())}

    def ask(
        self,
        *args: str,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[str] = (),
        settings: Sequence[tuple[str, str]] = (),
        timeout: float | None = None,
        ok_codes: Sequence[int] = range(256),
        most_said: int | None = None,
    ) -> runner.Done:
        """Run ``git *args`` and return its result. By default, any exit code is accepted.

        :param config: settings as ``key=value``, passed as arguments.
        :param settings: settings passed as environment variables, which a process list doesn't show.
        :param most_said: number of bytes to keep from the start and from the end of stderr; None for all.
        :raises runner.CommandError: if the exit code is not in ``ok_codes``.
        """
        argv = _argv(args, config)
        every = {**pinned(settings), **self.place(), **(env or {})}
        try:
            return runner.run(
                argv,
                cwd=self.folder,
                data=data,
                env=every,
                timeout=timeout,
                ok_codes=ok_codes,
                most_said=most_said,
            )
        except runner.CommandError as error:
            if _LOST.search(error.output):
                error.hint, error.lacks_object = MEND, True
            raise

    def run(
        self,
        *args: str,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[str] = (),
        ok_codes: Sequence[int] = (0,),
    ) -> bytes:
        """Return the standard output of ``git *args``.

        :raises runner.CommandError: if the command fails.
        """
        return self.ask(*args, data=data, env=env, config=config, ok_codes=ok_codes).stdout

    def line(self, *args: str, ok_codes: Sequence[int] = (0,)) -> str:
        """Return the only line that a command prints."""
        return self.run(*args, ok_codes=ok_codes).decode().strip()

    @contextmanager
    def feed(self, *args: str, config: Sequence[str] = ()) -> Iterator[runner.Running]:
        """Run ``git *args`` with a pipe as standard input; see :func:`patchq.system.runner.feed`."""
        env = {**pinned(), **self.place()}
        with runner.feed(_argv(args, config), cwd=self.folder, env=env) as process:
            yield process

    @contextmanager
    def answering(self, *args: str) -> Iterator[runner.Running]:
        """Run ``git *args`` with unbuffered pipes; see :func:`patchq.system.runner.answering`."""
        env = {**pinned(), **self.place()}
        with runner.answering(["git", *args], cwd=self.folder, env=env, buffered=False) as process:
            yield process


def _argv(args: Sequence[str], config: Sequence[str]) -> list[str]:
    return ["git", *options(config), *args]


def options(config: Sequence[str]) -> list[str]:
    """Return the arguments that pass configuration settings to git."""
    return [word for setting in config for word in ("-c", setting)]


class Outside(Command):
    """Commands of git that need no repository."""

    def place(self) -> dict[str, str]:
        return {"GIT_DIR": os.devnull}


#: Names, addresses and time zones that git writes unchanged into a commit.
_PLAIN_NAME = re.compile(r"\w(?:[^<>\n]*\w)?")
_SECONDS = re.compile(r"@([0-9]{1,12}) ([+-][0-9]{4})")
_PLAIN_ZONE = re.compile(r"[+-](?:0[1-9]|1[0-4])[0-5]\d|[+-]00[1-5]\d|\+0000")


def is_plain(author: Ident) -> bool:
    """Return whether git writes an author into a commit unchanged."""
    named = _PLAIN_NAME.fullmatch(author.name) and _PLAIN_NAME.fullmatch(author.email)
    return bool(named and _PLAIN_ZONE.fullmatch(author.zone)) and 0 <= author.when < 1 << 40


def author_ident(git: Command, name: str, email: str, date: str) -> Ident:
    """Return an author as git writes it into a commit.

    :param date: date in any format that git reads; empty for the current time.
    :raises runner.CommandError: if git refuses the author.
    :raises FormatError: if a value contains a NUL byte, which an environment variable can't contain.
    """
    if "\0" in name + email + date:
        raise FormatError(
            f"the author {name + ' ' + email + ' ' + date!r} contains a NUL byte", hint="remove the NUL byte"
        )
    if given := _SECONDS.fullmatch(date):
        asked = Ident(name, email, int(given[1]), given[2])
        if is_plain(asked):
            return asked
    env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
    out = git.run("var", "GIT_AUTHOR_IDENT", env=env).decode("utf-8", "replace").rstrip("\n")
    who, when, zone = out.rsplit(" ", 2)
    name, _, email = who.removesuffix(">").rpartition(" <")
    return Ident(name, email, int(when), zone)
