"""CycloneDX: the built wheels, what they descend from, and the patches in between (``pedigree``)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from patchq import __version__
from patchq.errors import without_secrets
from patchq.project.project import Project
from patchq.project.stack import Stack

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom


def render(
    project: Project, stacks: Sequence[Stack], wheels: Sequence[tuple[str, str, str, str, Sequence[str]]], stack_id: str
) -> bytes:
    """A CycloneDX 1.6 document, the same bytes for the same input.

    ``wheels`` are ``(distribution, version, file name, sha256, patches left out)``.
    """
    from cyclonedx.model import AttachedText, ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from packageurl import PackageURL

    def hashes(sha256: str) -> list[HashType]:
        return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"patchq:{stack_id}"))
    # A date would make the same stack give other bytes every day.
    bom.metadata.timestamp = datetime(2000, 1, 1, tzinfo=timezone.utc)
    tool = Component(name="patchq", version=__version__, type=ComponentType.APPLICATION, bom_ref="tool-patchq")
    bom.metadata.tools.components.add(tool)
    for stack in stacks:
        pin = stack.pin
        config = project.lock.upstreams[pin.upstream].build
        mine = [w for w in wheels if config and w[0] == config.distribution] or [(pin.upstream, pin.ref, "", "", ())]
        references = (
            [ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(without_secrets(pin.url)))] if pin.url else []
        )
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
            patches = [
                Patch(
                    type=PatchClassification.UNOFFICIAL,
                    diff=Diff(
                        text=AttachedText(
                            content=stack.read(name).decode("utf-8", "replace"), content_type="text/x-diff"
                        )
                    ),
                )
                for name in stack.names
                if name not in left_out
            ]
            _add_vex(bom, ref, stack, left_out)
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
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return (text + "\n").encode()


def _add_vex(bom: Bom, ref: str, stack: Stack, left_out: Sequence[str]) -> None:
    """What the patches of a component say that they mend (``CVE:``), as CycloneDX's exploitability statements."""
    from cyclonedx.model.impact_analysis import ImpactAnalysisState
    from cyclonedx.model.vulnerability import BomTarget, Vulnerability, VulnerabilityAnalysis

    for name, header in stack.headers():
        for number in header.values("CVE"):
            mended = name not in left_out
            said = f"{name}: {header.subject}" + ("" if mended else "; it takes effect when compiled, and is left out")
            analysis = VulnerabilityAnalysis(
                state=ImpactAnalysisState.RESOLVED_WITH_PEDIGREE if mended else ImpactAnalysisState.EXPLOITABLE,
                detail=said,
            )
            known = f"{number}-{ref}"
            bom.vulnerabilities.add(
                Vulnerability(bom_ref=known, id=number, affects=[BomTarget(ref=ref)], analysis=analysis)
            )
