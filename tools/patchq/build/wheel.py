"""Reproducible rewriting of wheels, without recompressing unchanged members.

For an overlay, the unchanged members of a release wheel are copied as compressed bytes. Only changed members
are compressed again, see :mod:`patchq.build.zipped`.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from patchq.build import zipped
from patchq.build.contents import inspect_wheel
from patchq.errors import BuildError


def rewrite_metadata(metadata: str, version: str, pins: Mapping[str, str]) -> str:
    """Return METADATA with another version, and with the exact versions ``pins`` for required siblings."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    head, gap, body = metadata.partition("\n\n")
    lines = []
    for line in head.split("\n"):
        if line.startswith("Version: "):
            line = f"Version: {version}"
        elif line.startswith("Requires-Dist: "):
            try:
                wanted = Requirement(line[15:])
            except InvalidRequirement:
                lines.append(line)
                continue
            pinned = pins.get(canonicalize_name(wanted.name))
            if pinned:
                extras = ""
                if wanted.extras:
                    extras = f"[{','.join(sorted(wanted.extras))}]"
                marker = ""
                if wanted.marker:
                    marker = f" ; {wanted.marker}"
                line = f"Requires-Dist: {wanted.name}{extras}=={pinned}{marker}"
        lines.append(line)
    return "\n".join(lines) + gap + body


def wheel_name(old: str, version: str) -> str:
    """Return a wheel's file name with another version and the same tags."""
    parts = old.split("-")
    return "-".join([parts[0], version, *parts[2:]])


def record_line(name: str, data: bytes) -> tuple[str, str, str]:
    """Return a member's row of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return (name, f"sha256={digest}", str(len(data)))


def rewrite_record(record: str, gone: Iterable[str], new: Mapping[str, bytes], own: str) -> bytes:
    """Return RECORD without the members ``gone``, and with the members ``new``.

    RECORD's own row (``own``) is the last one.
    """
    dropped = {*gone, *new, own}
    rows = []
    for r in csv.reader(io.StringIO(record)):
        if r and r[0] not in dropped:
            rows.append(tuple(r))
    for name, data in sorted(new.items()):
        if name != own:
            rows.append(record_line(name, data))
    rows.append((own, "", ""))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def overlay(
    source: Path, target: Path, version: str, pins: Mapping[str, str], files: Mapping[str, bytes], gone: Iterable[str]
) -> None:
    """Write the wheel ``target``: the wheel ``source`` with ``files`` added or replaced, without the members ``gone``.

    Rename the metadata folder for ``version``, and rewrite METADATA and RECORD. Copy all other
    members as raw bytes. ``target`` appears only when it is complete.

    :raises BuildError: if ``source`` isn't a valid wheel, or the new wheel would be too large.
    """
    info = inspect_wheel(source)
    new_info = re.sub(r"-[^-]+\.dist-info$", f"-{version}.dist-info", info.dist_info)
    old_meta = []
    for m in info.members:
        if m.startswith(info.dist_info + "/"):
            old_meta.append(m)
    moved = info.read(m for m in old_meta if not m.endswith("/"))
    record_name = f"{info.dist_info}/RECORD"
    record = moved.pop(record_name).decode()
    for signature in (f"{record_name}.jws", f"{record_name}.p7s"):
        moved.pop(signature, None)
    fresh = {}
    for m, data in moved.items():
        fresh[new_info + m.removeprefix(info.dist_info)] = data
    fresh[f"{new_info}/METADATA"] = rewrite_metadata(info.metadata, version, pins).encode()
    fresh.update(files)
    dropped = {*old_meta, *gone, *files}
    own = f"{new_info}/RECORD"
    fresh[own] = rewrite_record(record, dropped, fresh, own)
    kept = [item for name, item in info.items.items() if name not in dropped]
    zipped.write(target, fresh, kept=kept, source=info)


def repack(source: Path, target: Path, version: str, pins: Mapping[str, str], extra: Mapping[str, bytes]) -> None:
    """Write the wheel ``target``: a built wheel with sorted members, fixed dates, and the files ``extra`` added.

    The members' order, times and permissions vary between builds, so they are normalized. Only the executable bit is
    kept. METADATA is rewritten as in :func:`rewrite_metadata`.
    """
    info = inspect_wheel(source)
    new_info = re.sub(r"-[^-]+\.dist-info$", f"-{version}.dist-info", info.dist_info)
    contents: dict[str, bytes] = {}
    executable = set()
    for name, data in info.read(n for n in info.members if not n.endswith("/")).items():
        if name.startswith(info.dist_info + "/"):
            new = new_info + name[len(info.dist_info) :]
        else:
            new = name
        contents[new] = data
        if info.items[name].external_attr >> 16 & 0o100:
            executable.add(new)
    contents[f"{new_info}/METADATA"] = rewrite_metadata(info.metadata, version, pins).encode()
    contents.update(extra)
    own = f"{new_info}/RECORD"
    contents.pop(own, None)
    contents[own] = rewrite_record("", (), contents, own)
    ordered = {name: contents[name] for name in sorted(contents, key=lambda n: (n.startswith(new_info), n == own, n))}
    zipped.write(target, ordered, executable)


def set_version(data: bytes, version: str) -> bytes:
    """Return a module's source with another string assigned to ``__version__``.

    :raises BuildError: if the module assigns no string to ``__version__``.
    """
    tree = ast.parse(data)
    lines = data.split(b"\n")
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Assign):
            for t in node.targets:
                if isinstance(t, ast.Name):
                    names.append(t.id)
        value = None
        if isinstance(node, ast.Assign):
            value = node.value
        if "__version__" in names and isinstance(value, ast.Constant) and isinstance(value.value, str):
            row, start, end = value.lineno - 1, value.col_offset, value.end_col_offset
            lines[row] = lines[row][:start] + repr(version).encode() + lines[row][end:]
            return b"\n".join(lines)
    raise BuildError("the version file assigns no string to __version__", hint="correct version-file in upstream.lock")
