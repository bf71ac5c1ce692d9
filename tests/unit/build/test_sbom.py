"""The SBOM is the document that CycloneDX's own library makes of the same input, byte for byte, and is valid."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from cyclonedx.model import AttachedText, ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.model.impact_analysis import ImpactAnalysisState
from cyclonedx.model.vulnerability import BomTarget, Vulnerability, VulnerabilityAnalysis
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from kit import ROOT
from patchq import __version__
from patchq.build import _sbom as sbom
from patchq.errors import without_secrets
from patchq.project.project import Project

Wheel = tuple[str, str, str, str, Sequence[str]]


def by_library(project: Any, stacks: Sequence[Any], wheels: Sequence[Wheel], stack_id: str) -> bytes:
    """Make the document with the library."""

    def hashes(sha256: str) -> list[HashType]:
        return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"patchq:{stack_id}"))
    bom.metadata.timestamp = datetime(2000, 1, 1, tzinfo=timezone.utc)
    bom.metadata.tools.components.add(
        Component(name="patchq", version=__version__, type=ComponentType.APPLICATION, bom_ref="tool-patchq")
    )
    for stack in stacks:
        pin = stack.pin
        config = project.lock.upstreams[pin.upstream].build
        mine = [w for w in wheels if config and w[0] == config.distribution] or [(pin.upstream, pin.ref, "", "", ())]
        url = XsUri(without_secrets(pin.url))
        references = [ExternalReference(type=ExternalReferenceType.VCS, url=url)] if pin.url else []
        for distribution, version, file, sha256, left_out in mine:
            ref = f"{pin.upstream}-{file or version}"
            ancestor = Component(
                name=pin.upstream,
                version=pin.ref,
                type=ComponentType.LIBRARY,
                bom_ref=f"{ref}-upstream",
                external_references=references,
                hashes=hashes(pin.sha256),
            )
            texts = [stack.read(n).decode("utf-8", "replace") for n in stack.names if n not in left_out]
            patches = [
                Patch(
                    type=PatchClassification.UNOFFICIAL,
                    diff=Diff(text=AttachedText(content=text, content_type="text/x-diff")),
                )
                for text in texts
            ]
            for name, header in stack.headers():
                for number in header.values("CVE"):
                    fixed = name not in left_out
                    detail = f"{name}: {header.subject}"
                    analysis = VulnerabilityAnalysis(
                        state=ImpactAnalysisState.RESOLVED_WITH_PEDIGREE if fixed else ImpactAnalysisState.EXPLOITABLE,
                        detail=detail if fixed else f"{detail}; it must be compiled, so this wheel doesn't contain it",
                    )
                    bom.vulnerabilities.add(
                        Vulnerability(
                            bom_ref=f"{number}-{ref}", id=number, affects=[BomTarget(ref=ref)], analysis=analysis
                        )
                    )
            bom.components.add(
                Component(
                    name=distribution,
                    version=version,
                    type=ComponentType.LIBRARY,
                    bom_ref=ref,
                    hashes=hashes(sha256),
                    purl=PackageURL("pypi", name=distribution, version=version) if file else None,
                    pedigree=Pedigree(ancestors=[ancestor], patches=patches),
                )
            )
    return (make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n").encode()


class Header:
    def __init__(self, subject: str, *cves: str) -> None:
        self.subject, self._cves = subject, cves

    def values(self, key: str) -> Sequence[str]:
        return self._cves if key == "CVE" else ()


class MadeStack:
    """A stack as the document needs it."""

    def __init__(self, upstream: str, ref: str, url: str, sha256: str, patches: dict[str, tuple[bytes, Header]]):
        self.pin = SimpleNamespace(upstream=upstream, ref=ref, url=url, sha256=sha256)
        self.names, self._patches = list(patches), patches

    def read(self, name: str) -> bytes:
        return self._patches[name][0]

    def headers(self) -> list[tuple[str, Header]]:
        return [(name, header) for name, (_, header) in self._patches.items()]


def made(**distributions: str) -> Any:
    upstreams = {
        name: SimpleNamespace(build=SimpleNamespace(distribution=its) if its else None)
        for name, its in distributions.items()
    }
    return SimpleNamespace(lock=SimpleNamespace(upstreams=upstreams))


PATCHES = {
    "second": (b"--- a/z\n+++ b/z\n\xff \x00 \x1b \xe2\x80\xa8\n", Header('Mend "it"', "CVE-2026-2", "CVE-2026-1")),
    "first": (b"--- a/a\n", Header("Größe", "CVE-2026-10")),
    "same": (b"--- a/a\n", Header("The same text")),
    "empty": (b"", Header("")),
}
CASES = {
    "nothing": ([], []),
    "not built": ([MadeStack("lib", "v1", "", "", {})], []),
    "url": ([MadeStack("lib", "v1", "https://me:pw@host/a b/{x}[1]'<>\"%41#f", "ab" * 32, PATCHES)], []),
    "ssh": ([MadeStack("lib", "v1", "ssh://git:pw@host/~me/x.git", "", PATCHES)], []),
    "two wheels": (
        [MadeStack("lib", "v1", "https://host/lib.git", "ab" * 32, PATCHES), MadeStack("Bare", "0", "", "", {})],
        [
            ("My_Lib.Core", "1!2.0+patchq.1", "my_lib-2-x86_64.whl", "cd" * 32, ("first",)),
            ("My_Lib.Core", "1!2.0+patchq.1", "my_lib-2-aarch64.whl", "ef" * 32, ()),
            ("other", "1", "other.whl", "cd" * 32, ()),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_librarys_document(case: str) -> None:
    stacks, wheels = CASES[case]
    project = made(lib="My_Lib.Core", Bare="")
    found = sbom.render(project, stacks, wheels, "0123abcd")  # type: ignore[arg-type]
    assert found.decode() == by_library(project, stacks, wheels, "0123abcd").decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(found.decode()) is None
    assert b"pw@" not in found


@pytest.mark.parametrize("set_name", ["gb10", "gb10-newest"])
def test_it_is_the_librarys_document_of_real_stacks(set_name: str) -> None:
    project = Project.find(ROOT)
    stacks = project.stacks(set_name)
    builds = [(s, project.lock.upstreams[s.pin.upstream].build) for s in stacks]
    wheels = [
        (build.distribution, f"{s.pin.ref}+patchq.1", f"{s.pin.upstream}-1.whl", "ab" * 32, tuple(s.names[:1]))
        for s, build in builds
        if build
    ]
    found = sbom.render(project, stacks, wheels, "0123abcd")
    assert found == by_library(project, stacks, wheels, "0123abcd")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(found.decode()) is None


def test_two_patches_for_one_vulnerability_have_references_of_their_own() -> None:
    patches = {"a": (b"a", Header("A", "CVE-2026-1")), "b": (b"b", Header("B", "CVE-2026-1"))}
    stack = MadeStack("lib", "v1", "", "", patches)
    found = sbom.render(made(lib=""), [stack], [], "0")  # type: ignore[list-item]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(found.decode()) is None
    assert found.count(b'"bom-ref": "CVE-2026-1-lib-v1') == 2
    assert found.count(b'"bom-ref": "CVE-2026-1-lib-v1"') == 1
