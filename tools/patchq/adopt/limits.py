"""How much of what comes from elsewhere is read: memory stays bounded, and a sentence says what was too large."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from patchq.errors import UserError
from patchq.formats.treepath import MOST_DEEP
from patchq.system import fsio

#: Bytes of a patch, or of an edited file; of all patches of one import; of a series, a recipe, a list.
MOST, MOST_ALL, MOST_TEXT = 256 << 20, 512 << 20, 16 << 20
#: Bytes of a Dockerfile, and of the shell commands in one file that may edit files: what takes them apart needs time
#: that grows with their square where they are no shell.
MOST_DOCKERFILE, MOST_COMMANDS = 256 << 10, 20 << 10
#: Mails of an mbox; recipes that one includes.
MOST_MAILS, MOST_INCLUDED = 10_000, 100
_HINT = "see the limits in docs/reference/formats.md; is it a patch?"


def too_large(where: str, size: str, most: int) -> UserError:
    """What says so."""
    return UserError(f"{where}: {size}; {most} are the most", hint=_HINT)


def read_stream(file: IO[bytes], where: str) -> bytes:
    """All that is piped in.

    :raises UserError: if that is more than a patch has.
    """
    data = file.read(MOST + 1)
    if len(data) > MOST:
        raise too_large(where, f"more than {MOST} bytes", MOST)
    return data


def read_edited(path: Path) -> bytes:
    """A file that somebody edited.

    :raises FormatError: if it is too large to be one.
    """
    return fsio.read_limited(path, MOST) or b""


def walk_edited(folder: Path, where: str) -> Iterator[bytes]:
    """Yield the path below ``folder`` of all that is no folder, sorted by folder. ``.git`` is passed over.

    :raises UserError: if folders lie too deeply in each other.
    """
    todo = [b""]
    while todo:
        at = todo.pop()
        if at.count(b"/") > MOST_DEEP or len(at) >= 4096:
            raise too_large(where, "folders lie too deeply in each other", MOST_DEEP)
        with os.scandir(os.path.join(os.fsencode(folder), at)) as entries:
            found = sorted((entry for entry in entries if entry.name != b".git"), key=lambda entry: entry.name)
        below = [at + entry.name + b"/" for entry in found if entry.is_dir(follow_symlinks=False)]
        yield from (at + entry.name for entry in found if not entry.is_dir(follow_symlinks=False))
        todo += reversed(below)


def read_list(path: Path) -> str:
    """A text that names patches; what isn't UTF-8 in it is shown as that.

    :raises FormatError: if it is too large to be one, or no file.
    """
    return (fsio.read_limited(path, MOST_TEXT) or b"").decode("utf-8", "replace")
