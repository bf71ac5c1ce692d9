"""Manifest of a wheel, ``_patchq.json``. A wheel may be untrusted, so every field is checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from patchq.errors import FormatError
from patchq.records import dataclass

SCHEMA = "patchq/wheel/1"
#: Part of every stack id. Raise it when the same input would give other wheel bytes.
#: 1: members stored uncompressed. 2: compressed by libdeflate.
BUILD_FORMAT = 2
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of a wheel.

    :ivar patches: patches in this wheel, as ``upstream/name``.
    :ivar left_out: patches that are not in this wheel, because an overlay can't contain them.
    :ivar files: SHA-256 of each patched file, by its path in the wheel.
    :ivar siblings: required versions of the set's other distributions, by canonical name.
    :ivar computed: stack ids computed from the pins and patches in the manifest, one per build format; empty
        if patches were left out.
    """

    distribution: str
    package: str
    version: str
    stack_id: str
    patches: tuple[str, ...]
    left_out: tuple[str, ...]
    files: dict[str, str]
    siblings: dict[str, str]
    computed: tuple[str, ...]


def stack_id(stacks: Sequence[Sequence[Any]], build_format: int = BUILD_FORMAT) -> str:
    """Return the stack id of a set: a SHA-256 over the set's pins and the SHA-256 of each applied patch.

    :param stacks: for each upstream: its name, ref, commit, SHA-256, subdir, and ``[name, SHA-256]`` of each
        patch.
    """
    body = {"format": build_format, "stacks": sorted(stacks, key=lambda s: str(s[0]))}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def parse_manifest(text: str) -> Manifest:
    """Parse a manifest.

    :raises FormatError: if the text isn't a valid manifest.
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            raise ValueError(f"is not an object of schema {SCHEMA}")
        return _manifest(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, KeyError):
            message = f"lacks {error}"
        else:
            message = str(error) or type(error).__name__
        raise FormatError(f"the manifest {message[:200]}", hint="install the wheel again") from None


def _manifest(raw: dict[str, Any]) -> Manifest:
    distribution, package, version, its_id = (_text(raw, k) for k in ("distribution", "package", "version", "stack_id"))
    if not _HEX.fullmatch(its_id):
        raise ValueError("has an invalid stack_id")
    contains, left_out = _texts(raw, "contains"), _texts(raw, "left_out") if "left_out" in raw else ()
    patches, stacks = [], []
    for upstream in _list(raw, "upstreams"):
        name, applied = _text(upstream, "name"), []
        for patch in _list(upstream, "patches"):
            applied.append([_text(patch, "name"), _text(patch, "sha256")])
        if name in contains:
            patches += [f"{name}/{patch}" for patch, _ in applied]
        stacks.append([name, *(_text_or_none(upstream, k) for k in ("ref", "commit", "sha256", "subdir")), applied])
    files = _table(raw, "files")
    if not all(_HEX.fullmatch(digest) for digest in files.values()):
        raise ValueError("has a file whose SHA-256 is not 64 hexadecimal digits")
    computed: tuple[str, ...] = ()
    if not left_out:
        computed = tuple(stack_id(stacks, number) for number in range(1, BUILD_FORMAT + 1))
    return Manifest(
        distribution=distribution,
        package=package,
        version=version,
        stack_id=its_id,
        patches=tuple(patches),
        left_out=left_out,
        files=files,
        siblings=_table(raw, "siblings"),
        computed=computed,
    )


def _text(raw: Any, key: str) -> str:
    if not isinstance(raw, dict) or not isinstance(raw[key], str):
        raise TypeError(f"has a {key} that is not a string")
    return str(raw[key])


def _text_or_none(raw: Any, key: str) -> str | None:
    if raw[key] is None:
        return None
    return _text(raw, key)


def _list(raw: dict[str, Any], key: str) -> list[Any]:
    if not isinstance(raw[key], list):
        raise TypeError(f"has {key} that are not a list")
    return list(raw[key])


def _texts(raw: dict[str, Any], key: str) -> tuple[str, ...]:
    found = _list(raw, key)
    if not all(isinstance(text, str) for text in found):
        raise TypeError(f"has {key} that are not strings")
    return tuple(found)


def _table(raw: dict[str, Any], key: str) -> dict[str, str]:
    value = raw[key]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TypeError(f"has {key} that are not a table of strings")
    return dict(value)
