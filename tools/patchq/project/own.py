"""Version of the running patchq, and the source from which it was installed.

Anyone may register an unused name on a package index. Workflows therefore install patchq from a commit, or
from a file with a hash. If the running patchq was installed in neither way, the user must name a source.
"""

from __future__ import annotations

import json
import re

from patchq import __version__

#: Sources that identify their content.
_PINNED = re.compile(r"patchq @ (git\+\S+@[0-9a-f]{40}|https://\S+#sha256=[0-9a-f]{64})")
#: The same sources, as a pattern for a shell's ``case``.
CASE = "'patchq @ git+'*@????????????????????????????????????????|'patchq @ https://'*'#sha256='*"


def source() -> str:
    """Return the source of this patchq as a requirement for pip; empty if the source has no commit or hash."""
    from importlib import metadata  # slow: it imports the email package

    try:
        raw = json.loads(metadata.distribution("patchq").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    return source_of(raw)


def source_of(raw: object) -> str:
    """Return the source that a ``direct_url.json`` (PEP 610) names, as a requirement for pip.

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
        hashes = archive.get("hashes")
        if not hashes:
            name, value = str(archive.get("hash", "=")).split("=", 1)
            hashes = {name: value}
        found = f"patchq @ {url}#sha256={hashes.get('sha256')}"
    if _PINNED.fullmatch(found):
        return found
    return ""


def differs(pinned: str) -> str:
    """Return a warning if the project names another version of patchq; empty otherwise."""
    if pinned in ("", __version__):
        return ""
    return (
        f"upstream.lock was written by patchq {pinned}, but this is {__version__}: "
        f'install that version, or set patchq = "{__version__}" in upstream.lock'
    )
