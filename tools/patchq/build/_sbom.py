"""CycloneDX document of the built wheels, their upstreams and the patches (``pedigree``).

The order is that of the CycloneDX project's own library: keys by name, components by name and version, patches by
content. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from patchq import __version__
from patchq.errors import without_secrets
from patchq.project.project import Project
from patchq.project.stack import Stack

#: Fixed date. The current date would change the bytes of the document every day.
TIMESTAMP = "2000-01-01T00:00:00+00:00"
#: Characters that are allowed in the URL of a pin, but not in a URI.
_ESCAPES = str.maketrans({character: quote(character) for character in " \"'[]<>{}"})

#: Distribution, version, file name and SHA-256 of a wheel, and the patches that the wheel doesn't contain.
Wheel = tuple[str, str, str, str, Sequence[str]]


def render(project: Project, stacks: Sequence[Stack], wheels: Sequence[Wheel], stack_id: str) -> bytes:
    """Return a CycloneDX 1.6 document. The same input gives the same bytes."""
    components: list[dict[str, Any]] = []
    statements: dict[str, dict[str, Any]] = {}
    for stack in stacks:
        pin = stack.pin
        config = project.lock.upstreams[pin.upstream].build
        mine = [w for w in wheels if config and w[0] == config.distribution] or [(pin.upstream, pin.ref, "", "", ())]
        for distribution, version, file, sha256, left_out in mine:
            ref = f"{pin.upstream}-{file or version}"
            component = _component(distribution, version, ref, sha256)
            component["pedigree"] = _pedigree(stack, ref, left_out)
            if file:
                component["purl"] = _purl(distribution, version)
            components.append(component)
            for statement in _statements(ref, stack, left_out):
                # Two patches may name the same vulnerability, but each statement needs its own reference.
                if statement["bom-ref"] in statements:
                    statement["bom-ref"] += f"-{len(statements)}"
                statements[statement["bom-ref"]] = statement
    components.sort(key=lambda c: (c["name"], c["version"], c["bom-ref"]))
    tool = {**_component("patchq", __version__, "tool-patchq"), "type": "application"}
    refs = sorted(c["bom-ref"] for c in components)
    document = {
        "components": components,
        "dependencies": [{"ref": ref} for ref in refs],
        "metadata": {"timestamp": TIMESTAMP, "tools": {"components": [tool]}},
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"patchq:{stack_id}").urn,
        "version": 1,
        "vulnerabilities": sorted(statements.values(), key=lambda v: (v["id"], v["bom-ref"])),
    }
    ordered = json.loads(json.dumps(_filled(document), sort_keys=True))
    ordered |= {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
    }
    return (json.dumps(ordered, indent=1) + "\n").encode()


def _component(name: str, version: str, ref: str, sha256: str = "") -> dict[str, Any]:
    hashes = []
    if sha256:
        hashes = [{"alg": "SHA-256", "content": sha256}]
    return {"bom-ref": ref, "hashes": hashes, "name": name, "type": "library", "version": version}


def _pedigree(stack: Stack, ref: str, left_out: Sequence[str]) -> dict[str, Any]:
    """Return the upstream from which a component derives, and the patches that were applied to it."""
    pin = stack.pin
    ancestor = _component(pin.upstream, pin.ref, f"{ref}-upstream", pin.sha256)
    url = without_secrets(pin.url).translate(_ESCAPES)
    if url:
        ancestor["externalReferences"] = [{"type": "vcs", "url": url}]
    else:
        ancestor["externalReferences"] = []
    texts = set()
    for name in stack.names:
        if name not in left_out:
            texts.add(stack.read(name).decode("utf-8", "replace"))
    patches = []
    for text in sorted(texts):
        patches.append({"diff": {"text": {"content": text, "contentType": "text/x-diff"}}, "type": "unofficial"})
    return {"ancestors": [ancestor], "patches": patches}


def _purl(distribution: str, version: str) -> str:
    """Return the package URL of a distribution: https://github.com/package-url/purl-spec."""
    name = distribution.lower().replace("_", "-")
    return f"pkg:pypi/{quote(name, safe='/:')}@{quote(version, safe='/:')}"


def _statements(ref: str, stack: Stack, left_out: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield an exploitability (VEX) statement for each vulnerability that a patch claims to fix (``CVE:``)."""
    for name, header in stack.headers():
        for number in header.values("CVE"):
            fixed = name not in left_out
            detail = f"{name}: {header.subject}" + (
                "" if fixed else "; it must be compiled, so this wheel doesn't contain it"
            )
            state = "exploitable"
            if fixed:
                state = "resolved_with_pedigree"
            yield {
                "affects": [{"ref": ref}],
                "analysis": {"detail": detail, "state": state},
                "bom-ref": f"{number}-{ref}",
                "id": number,
            }


def _filled(value: Any) -> Any:
    """Return a document without its empty lists."""
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            if item != []:
                found[key] = _filled(item)
        return found
    if isinstance(value, list):
        return list(map(_filled, value))
    return value
