"""The git command, as patchq runs it: in one repository that is named, and with nothing of a person's configuration.

All of git that patchq runs passes here, but for what ``person`` does in a person's own repository. What is pinned:

- No configuration but patchq's: neither a person's nor the machine's; attributes and ignored names come from the
  trees alone. The store's own configuration is only what patchq wrote (``project.private``).
- Nothing else runs: no hook, file monitor, signature program, askpass, pager or editor, no transport.
- An object is what its id says: no replacement, and nothing is fetched to fill a gap.
- The repository is said: where it is damaged, git finds no other one above it.
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

#: Settings of every git: what a file beside the configuration would say, or runs something.
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
    # Set and empty: neither this nor SSH_ASKPASS is asked.
    "GIT_ASKPASS": "",
    "GIT_EDITOR": "false",
    "GIT_COMMITTER_NAME": "patchq",
    "GIT_COMMITTER_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_NAME": "patchq",
    "GIT_AUTHOR_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_DATE": "946684800 +0000",
    "GIT_COMMITTER_DATE": "946684800 +0000",
}
#: What git says where the store lacks something, or holds something damaged.
_LOST = re.compile(
    r"bad object|unable to read|missing (?:blob|tree|commit)|is corrupt|could not (?:read|parse)|bad tree|"
    r"not a git repository|bad ref|broken ref|bad signature|index file|reference broken|bad config|is not a valid ref"
)
MEND = "`patchq fetch` mends the store: what it lacks is brought or made again"


def pinned(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """The environment of git, with more settings after patchq's own."""
    found = {**_EVERY, "GIT_CONFIG_COUNT": str(len(SETTINGS) + len(settings))} if settings else _EVERY
    for n, (key, value) in enumerate(settings, len(SETTINGS)):
        found[f"GIT_CONFIG_KEY_{n}"], found[f"GIT_CONFIG_VALUE_{n}"] = key, value
    return found


_EVERY = {**_PINNED, "GIT_CONFIG_COUNT": str(len(SETTINGS))}
_EVERY.update({f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(SETTINGS)})
_EVERY.update({f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(SETTINGS)})


class Command:
    """Commands in one bare repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self) -> dict[str, str]:
        """The variables that name the repository, and its worktree if it has one."""
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
        """What ``git *args`` answers, whatever its exit code.

        :param config: ``key=value``; ``settings`` are the same, but not to be seen in a list of processes.
        :param most_said: bytes of each end of what it complains of that are kept.
        :raises runner.CommandError: for another exit code than ``ok_codes``.
        """
        argv = ["git", *(x for c in config for x in ("-c", c)), *args]
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
            if _LOST.search(error.said):
                error.hint = MEND
            raise

    def run(
        self,
        *args: str,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[str] = (),
        ok_codes: Sequence[int] = (0,),
    ) -> bytes:
        """Standard output of ``git *args``.

        :raises runner.CommandError: when it fails.
        """
        return self.ask(*args, data=data, env=env, config=config, ok_codes=ok_codes).stdout

    def line(self, *args: str, ok_codes: Sequence[int] = (0,)) -> str:
        """The single line that a command prints."""
        return self.run(*args, ok_codes=ok_codes).decode().strip()

    @contextmanager
    def feed(self, *args: str, config: Sequence[str] = ()) -> Iterator[runner.Running]:
        """``git *args`` running, to write to; see :func:`patchq.system.runner.feed`."""
        argv = ["git", *(x for c in config for x in ("-c", c)), *args]
        with runner.feed(argv, cwd=self.folder, env={**pinned(), **self.place()}) as process:
            yield process

    @contextmanager
    def answering(self, *args: str) -> Iterator[runner.Running]:
        """``git *args`` running, to ask without a buffer; see :func:`patchq.system.runner.answering`."""
        env = {**pinned(), **self.place()}
        with runner.answering(["git", *args], cwd=self.folder, env=env, buffered=False) as process:
            yield process


class Outside(Command):
    """Commands that need no repository, in a folder; they don't find one either."""

    def place(self) -> dict[str, str]:
        return {"GIT_DIR": os.devnull}


#: Nothing that git takes off a name or an address, or writes in another way: it needn't be asked.
_PLAIN_NAME = re.compile(r"\w(?:[^<>\n]*\w)?")
_SECONDS = re.compile(r"@([0-9]{1,12}) ([+-][0-9]{4})")
_PLAIN_ZONE = re.compile(r"[+-](?:0[1-9]|1[0-4])[0-5]\d|[+-]00[1-5]\d|\+0000")


def is_plain(author: Ident) -> bool:
    """Return whether git would write an author into a commit as it is here."""
    named = _PLAIN_NAME.fullmatch(author.name) and _PLAIN_NAME.fullmatch(author.email)
    return bool(named and _PLAIN_ZONE.fullmatch(author.zone)) and 0 <= author.when < 1 << 40


def author_ident(git: Command, name: str, email: str, date: str) -> Ident:
    """An author as git would write one into a commit; ``date`` in any form that git reads, or empty for now.

    :raises runner.CommandError: where git takes none of it.
    :raises FormatError: for a NUL byte, which git can't be told.
    """
    if "\0" in name + email + date:
        raise FormatError(f"{name + ' ' + email + ' ' + date!r} names an author with a NUL byte", hint="take it out")
    if given := _SECONDS.fullmatch(date):
        asked = Ident(name, email, int(given[1]), given[2])
        if is_plain(asked):
            return asked
    env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
    out = git.run("var", "GIT_AUTHOR_IDENT", env=env).decode("utf-8", "replace").rstrip("\n")
    who, when, zone = out.rsplit(" ", 2)
    name, _, email = who.removesuffix(">").rpartition(" <")
    return Ident(name, email, int(when), zone)
