"""Size limits for patches, mails, scripts and streams from outside the project, to bound the use of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from patchq.errors import UserError
from patchq.formats.treepath import MOST_DEEP
from patchq.system import fsio

#: Limits in bytes: a patch or edited file; all patches of an import.
MOST, MOST_ALL = 256 << 20, 512 << 20
#: Limits: number of stages of a Dockerfile, and number of its steps that are run.
MOST_STAGES, MOST_STEPS = 100, 500
#: Limits in bytes: a Dockerfile; the shell commands in a script or one instruction. The parser needs quadratic time
#: for text that is not shell code.
MOST_DOCKERFILE, MOST_COMMANDS = 256 << 10, 20 << 10
#: Limit of a script in bytes.
MOST_SCRIPT = 4 << 20
#: Limit of mails in an mbox.
MOST_MAILS = 10_000
HINT = "check the input; docs/reference/formats.md lists the limits"


def too_large(where: str, size: str, most: int) -> UserError:
    """Return the error for input that exceeds a limit."""
    return UserError(f"{where}: {size}; the limit is {most}", hint=HINT)


def read_stream(file: IO[bytes], where: str) -> bytes:
    """Return the contents of a stream.

    :raises UserError: if the stream is longer than :data:`MOST`.
    """
    data = file.read(MOST + 1)
    if len(data) > MOST:
        raise too_large(where, f"more than {MOST} bytes", MOST)
    return data


def read_edited(path: Path) -> bytes:
    """Return the contents of an edited file.

    :raises FormatError: if the file is larger than :data:`MOST`.
    """
    return fsio.read_limited(path, MOST) or b""


def walk_edited(folder: Path, where: str) -> Iterator[bytes]:
    """Yield the path of each file and symlink below ``folder``, sorted within each folder.

    Paths are relative to ``folder``. ``.git`` is skipped.

    :raises UserError: if folders are nested too deeply.
    """
    todo = [b""]
    while todo:
        at = todo.pop()
        if at.count(b"/") > MOST_DEEP or len(at) >= 4096:
            raise too_large(where, "folders are nested too deeply", MOST_DEEP)
        with os.scandir(os.path.join(os.fsencode(folder), at)) as entries:
            found = sorted((entry for entry in entries if entry.name != b".git"), key=lambda entry: entry.name)
        below = []
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                below.append(at + entry.name + b"/")
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield at + entry.name
        todo += reversed(below)
