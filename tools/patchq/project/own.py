"""This patchq itself: which version a project was made with, and from where another machine gets the same.

On an index a name is whoever's takes it first. So what installs patchq elsewhere names a source that can't be
another's: a commit, or a file by its hash. Where this one came from neither, the person says it.
"""

from __future__ import annotations

import json
import re

from patchq import __version__

#: What counts as a source that can't be another's.
_PINNED = re.compile(r"patchq @ (git\+\S+@[0-9a-f]{40}|https://\S+#sha256=[0-9a-f]{64})")
#: The same, for a shell's ``case``.
CASE = "'patchq @ git+'*@????????????????????????????????????????|'patchq @ https://'*'#sha256='*"


def source() -> str:
    """Where this patchq was installed from, as pip takes it; empty where that is no commit and no hashed file."""
    from importlib import metadata  # it brings the email package, and each command reads this module

    try:
        raw = json.loads(metadata.distribution("patchq").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    return source_of(raw)


def source_of(raw: object) -> str:
    """The same of a ``direct_url.json`` (PEP 610).

    >>> source_of({"url": "https://h/p.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}})
    'patchq @ git+https://h/p.git@0000000000000000000000000000000000000000'
    """
    if not isinstance(raw, dict):
        return ""
    url, vcs, archive = raw.get("url", ""), raw.get("vcs_info", {}), raw.get("archive_info", {})
    found = ""
    if isinstance(vcs, dict) and vcs.get("vcs") == "git":
        found = f"patchq @ git+{url}@{vcs.get('commit_id')}"
    elif isinstance(archive, dict):
        hashes = archive.get("hashes") or dict([str(archive.get("hash", "=")).split("=", 1)])
        found = f"patchq @ {url}#sha256={hashes.get('sha256')}"
    return found if _PINNED.fullmatch(found) else ""


def differs(pinned: str) -> str:
    """What to say where a project names another patchq than this one; empty where there is nothing to say."""
    if pinned in ("", __version__):
        return ""
    return (
        f"upstream.lock was made with patchq {pinned}, this is {__version__}: "
        f'install that one, or write patchq = "{__version__}" there'
    )
