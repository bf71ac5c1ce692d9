"""The ``signing`` table of a lock: by whom the attestation of a set's wheels is to be signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patchq.errors import FormatError
from patchq.system.paths import check_inside


@dataclass(frozen=True, slots=True)
class Signing:
    """Who signs: ``key``, the file of a public key in the project, or sigstore's ``identity`` and its ``issuer``."""

    key: str = ""
    identity: str = ""
    issuer: str = ""


def read(raw: Mapping[str, Any], where: str) -> Signing | None:
    """Of a lock's data, who signs; None where it doesn't say.

    :raises FormatError: for anything but a key, or an identity with its issuer.
    """
    if "signing" not in raw:
        return None
    table = raw["signing"]
    named = set(table) if isinstance(table, dict) else set()
    if named not in ({"key"}, {"identity", "issuer"}) or not all(_is_line(v) for v in table.values()):
        raise FormatError(
            f"{where}: signing: is neither a key nor an identity with its issuer",
            hint='[signing] key = "keys/release.pem", or identity = "…" and issuer = "https://…"',
        )
    if "key" in table:
        check_inside(table["key"], f"{where}: signing.key")
    return Signing(**table)


def _is_line(value: object) -> bool:
    # What begins with a dash would be an option of the program that it is handed to.
    return isinstance(value, str) and value.isprintable() and bool(value) and not value.startswith("-")
