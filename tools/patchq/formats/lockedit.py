"""Changes to ``upstream.lock``: pins, build settings and check rules. tomlkit keeps the comments and the order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from patchq.formats._checkrules import ADOPTED, ADOPTED_REASON, RULES, CheckRules
from patchq.formats.lock import BuildConfig, Pin, Upstream

EMPTY = b"""# The upstreams of this project, where they are pinned, and which pins belong together.
# `patchq pin` writes this file; your comments and order are kept.
version = 1
"""


def with_pin(data: bytes, upstream: Upstream, pin: Pin, set_name: str, *, like: str = "") -> bytes:
    """Return the lock's bytes with a pin added or replaced. The set ``set_name`` then uses this pin.

    If the set doesn't exist, create it as a copy of the set ``like``, or of the default set. So one command is enough
    to move to a new version.
    """
    import tomlkit

    doc = tomlkit.parse(data.decode())
    table = _sub(_sub(doc, "upstreams", True), upstream.name)
    if upstream.url:
        table["url"] = upstream.url
    if upstream.into:
        table["into"] = ":".join(upstream.into)
    if upstream.build and "build" not in table:
        _write_build(_sub(table, "build"), upstream.build)
    fields = {
        "commit": pin.commit or "",
        "archive": pin.archive,
        "sha256": pin.sha256,
        "subdir": pin.subdir,
        "source": pin.source,
    }
    entry = _sub(_sub(table, "pins", True), pin.ref)
    for key, value in fields.items():
        if value:
            entry[key] = value
        else:
            entry.pop(key, None)
    if pin.wheels:
        entry["wheels"] = {k: pin.wheels[k] for k in sorted(pin.wheels)}
    if "default-set" not in doc:
        sets = doc.pop("sets", None)
        doc.add("default-set", tomlkit.item(next(iter(sets or [set_name]))))
        if sets is not None:
            doc["sets"] = sets
    sets = _sub(doc, "sets", True)
    if set_name not in sets:
        chosen = _sub(sets, set_name)
        for name, ref in sets.get(like or doc["default-set"], {}).items():
            chosen[name] = ref
    sets[set_name][upstream.name] = pin.ref
    return tomlkit.dumps(doc).encode()


def with_build(data: bytes, upstream: str, build: BuildConfig) -> bytes:
    """Return the lock's bytes with the build settings of an upstream."""
    import tomlkit

    doc = tomlkit.parse(data.decode())
    _write_build(_sub(_sub(_sub(doc, "upstreams", True), upstream), "build"), build)
    return tomlkit.dumps(doc).encode()


def rules_for_adopted(before: CheckRules, broken: Collection[str]) -> CheckRules | None:
    """Return rules of ``check`` for imported patches: the rules that the patches break are switched off.

    A rule that an earlier import switched off, and that the user switched on again, stays on. Sign-offs stay as
    required before.

    :param broken: rules that the patches break.
    :returns: None if the rules need no change, or if the user wrote the rules.
    """
    if before not in (CheckRules(), replace(before, reason=ADOPTED_REASON)):
        return None
    known = (*before.off, *before.warn, *before.imported)
    new = {rule for rule in broken if rule in ADOPTED and rule not in known}
    sign_off = before.sign_off
    if "dco" in broken and not before.reason:
        new.add("dco")
        sign_off = "none"
    if not new:
        return None
    return CheckRules(
        off=tuple(rule for rule in RULES if rule in before.off or (rule in new and rule != "dco")),
        warn=before.warn,
        sign_off=sign_off,
        reason=ADOPTED_REASON,
        imported=tuple(rule for rule in RULES if rule in before.imported or rule in new),
    )


def rules_to_report(rules: CheckRules, broken: Collection[str]) -> list[str]:
    """Return the broken rules that ``check`` reports as problems; empty unless an import wrote ``rules``."""
    if rules.reason != ADOPTED_REASON:
        return []
    ignored = {*rules.off, *rules.warn}
    if rules.sign_off == "none":
        ignored.add("dco")
    return [rule for rule in RULES if rule in broken and rule not in ignored]


def with_check(data: bytes, upstream: str, rules: CheckRules) -> bytes:
    """Return the lock's bytes with the check rules of an upstream."""
    import tomlkit

    doc = tomlkit.parse(data.decode())
    table = _sub(_sub(_sub(doc, "upstreams", True), upstream), "check")
    if rules.off:
        table["off"] = list(rules.off)
    if rules.warn:
        table["warn"] = list(rules.warn)
    table["sign-off"] = rules.sign_off
    table["reason"] = rules.reason
    table["imported"] = list(rules.imported)
    return tomlkit.dumps(doc).encode()


def _write_build(table: Any, build: BuildConfig) -> None:
    table["distribution"] = build.distribution
    table["package"] = build.package
    table["profile"] = build.profile


def _sub(table: Any, key: str, implicit: bool = False) -> Any:
    import tomlkit

    if key not in table:
        table[key] = tomlkit.table(is_super_table=implicit or None)
    return table[key]
