"""Tables ``verify`` and ``signing`` of a lock: the items that verification accepts, and the required signer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchq.errors import FormatError
from patchq.records import dataclass
from patchq.system.paths import check_inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Additional items that a project's environments may contain.

    :ivar allow: names of start-up files, modules, distributions with plugins, variables and
        libraries.
    :ivar groups: entry point groups that the packages load, in addition to the groups named in their sources.
    """

    allow: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """Required signer: ``key`` (public key file in the project), or sigstore's ``identity`` and ``issuer``."""

    key: str = ""
    identity: str = ""
    issuer: str = ""


def read_verification(raw: Mapping[str, Any], where: str) -> Verification:
    """Return the settings in the ``verify`` table of a lock; empty settings if the lock has no such table.

    :raises FormatError: for other keys, or values that aren't lists of names.
    """
    table = raw.get("verify", {})
    if isinstance(table, dict):
        lists = list(table.values())
    else:
        lists = [None]
    names = []
    for value in lists:
        if isinstance(value, list):
            names += value
    known = isinstance(table, dict) and set(table) <= {"allow", "plugin-groups"}
    if not known or not all(isinstance(v, list) for v in lists) or not all(_is_name(name) for name in names):
        raise FormatError(
            f"{where}: verify: may contain only the lists of names allow and plugin-groups",
            hint='[verify] allow = ["hook.pth", "my-plugin"]',
        )
    return Verification(allow=tuple(table.get("allow", ())), groups=tuple(table.get("plugin-groups", ())))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable() and "/" not in value


def read_signing(raw: Mapping[str, Any], where: str) -> Signing | None:
    """Return the signer that a lock requires; None if the lock requires no signature.

    :raises FormatError: unless the table contains either ``key``, or ``identity`` and ``issuer``.
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
            f"{where}: signing: needs either a key, or an identity and its issuer",
            hint='[signing] key = "keys/release.pem", or identity = "…" and issuer = "https://…"',
        )
    if "key" in table:
        check_inside(table["key"], f"{where}: signing.key")
    return Signing(**table)


def _is_line(value: object) -> bool:
    # A value with a leading dash would be an option of the program that receives it.
    return isinstance(value, str) and value.isprintable() and bool(value) and not value.startswith("-")
