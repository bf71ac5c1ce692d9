"""Table ``signing`` of a lock: the required signer of the attestation of a set's wheels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patchq.errors import FormatError
from patchq.system.paths import check_inside


@dataclass(frozen=True, slots=True)
class Signing:
    """Required signer: ``key`` (public key file in the project), or sigstore's ``identity`` and ``issuer``."""

    key: str = ""
    identity: str = ""
    issuer: str = ""


def read(raw: Mapping[str, Any], where: str) -> Signing | None:
    """Return the signer that a lock requires; None if the lock requires no signature.

    :raises FormatError: if the table contains neither a key, nor an identity with its issuer.
    """
    if "signing" not in raw:
        return None
    table = raw["signing"]
    if isinstance(table, dict):
        named = set(table)
    else:
        named = set()
    if named not in ({"key"}, {"identity", "issuer"}) or not all(_is_line(v) for v in table.values()):
        raise FormatError(
            f"{where}: signing: is neither a key nor an identity with its issuer",
            hint='[signing] key = "keys/release.pem", or identity = "…" and issuer = "https://…"',
        )
    if "key" in table:
        check_inside(table["key"], f"{where}: signing.key")
    return Signing(**table)


def _is_line(value: object) -> bool:
    # A value with a leading dash would be an option of the program that receives it.
    return isinstance(value, str) and value.isprintable() and bool(value) and not value.startswith("-")
