"""Conversion of verdicts to JSON, JUnit XML and SARIF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from patchq import __version__
from patchq.formats.outcomes import ProofState
from patchq.proofs.judge import CellResult, Verdict, result_of
from patchq.proofs.plan import Proof

_CONTROL = {i: "\N{REPLACEMENT CHARACTER}" for i in range(32) if i not in (9, 10, 13)}


def proofs_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return verdicts as a JSON body of the schema ``patchq/test/1``."""
    return {
        "ok": not any(v.fails or v.state == ProofState.NO_RESULT for v in verdicts),
        "counts": counts(verdicts),
        "proofs": list(map(_proof_json, verdicts)),
    }


def _proof_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "patch": verdict.proof.name,
        "ref": verdict.proof.ref,
        "files": verdict.proof.files,
        "needs": verdict.proof.needs,
        "on": verdict.proof.on,
        "required": verdict.proof.required,
        "state": verdict.state,
        "message": verdict.message,
        "command": verdict.command,
        "cells": list(map(asdict, verdict.cells)),
    }


def parse_proofs(body: dict[str, Any]) -> list[Verdict]:
    """Return the verdicts in a JSON body of ``patchq/test/1``; the inverse of :func:`proofs_json`.

    :raises KeyError, TypeError, ValueError: if the body is invalid.
    """
    found = []
    for p in body["proofs"]:
        upstream, _, name = p["patch"].partition("/")
        required = p.get("required", True) is True
        proof = Proof(upstream, p["ref"], name, tuple(p["files"]), tuple(p["needs"]), p.get("on", ""), required)
        cells = []
        for raw in p["cells"]:
            cell = result_of(raw)
            if cell is None:
                raise ValueError("an invalid cell")
            cells.append(cell)
        state = ProofState(p["state"])
        found.append(Verdict(proof=proof, state=state, message=p["message"], cells=tuple(cells), command=p["command"]))
    return found


def with_older(verdicts: Sequence[Verdict], older: Sequence[Verdict] | None) -> list[Verdict]:
    """Return the new verdicts, and the older verdicts on other patches if both come from the same trees."""
    trees = [c.trees for v in verdicts for c in v.cells if c.variant == "with"][:1]
    new = {v.proof.name for v in verdicts}  # all proofs of a patch run together
    kept = []
    for v in older or ():
        if v.proof.name not in new and any(c.variant == "with" and c.trees in trees for c in v.cells):
            kept.append(v)
    return [*verdicts, *kept]


def by_patch(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    """Return one verdict per patch. A bad verdict on an additional proof replaces a good verdict on the first."""
    found: dict[str, Verdict] = {}
    for v in sorted(verdicts, key=lambda v: bool(v.proof.on)):
        here = found.setdefault(v.proof.name, v)
        if (here.ok or here.state == ProofState.NO_PROOF) and not v.ok and v.state != ProofState.NOT_RUN:
            found[v.proof.name] = v
    return found


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return the number of verdicts by state."""
    found: dict[str, int] = {}
    for v in verdicts:
        found[v.state] = found.get(v.state, 0) + 1
    return found


def junit(verdicts: Sequence[Verdict]) -> bytes:
    """Return JUnit XML with a test suite per proof and a test case per cell.

    A cell that was not run is reported as skipped, not as passed. A missing proof that isn't required is also reported
    as skipped.
    """
    root = ElementTree.Element("testsuites", name="patchq proofs")
    for v in verdicts:
        cases = [_case(v, c) for c in v.cells]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=v.proof.title,
            tests=str(len(cases)),
            failures=_having(cases, "failure"),
            skipped=_having(cases, "skipped"),
            errors=_having(cases, "error"),
        )
        suite.extend(cases)
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _having(cases: Sequence[ElementTree.Element], tag: str) -> str:
    """Return the number of test cases that contain a child element with this tag, as text."""
    return str(sum(case.find(tag) is not None for case in cases))


def _case(verdict: Verdict, cell: CellResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=verdict.proof.title, name=f"{cell.variant} the patch", time=f"{cell.seconds:.2f}"
    )
    wanted = "failed"
    if cell.variant == "with":
        wanted = "passed"
    if cell.state == ProofState.NOT_RUN:
        ElementTree.SubElement(case, "skipped", message=_clean(f"not run: {cell.message}"))
    elif cell.state == ProofState.NO_PROOF and not verdict.fails:
        ElementTree.SubElement(case, "skipped", message=_clean(f"no proof: {cell.message}"))
    elif cell.state == ProofState.NO_RESULT:
        ElementTree.SubElement(case, "error", message=_clean(cell.message))
    elif cell.state != wanted:
        fault = ElementTree.SubElement(case, "failure", message=_clean(verdict.message))
        fault.text = _clean("\n".join(f"{t['test']}: {t['outcome']}: {t['message']}" for t in cell.tests))
    return case


def _clean(text: str) -> str:
    """Replace control characters that are invalid in XML."""
    return text.translate(_CONTROL)


def sarif(verdicts: Sequence[Verdict], stack_path: dict[str, str]) -> dict[str, Any]:
    """Return SARIF 2.1.0 with a result for each verdict that isn't ``proven`` or ``passed``.

    :param stack_path: path of each patch's file in the project, by patch (``upstream/name``).
    """
    rules = {
        ProofState.FAILED: "The proof fails with its patch",
        ProofState.NOT_PROVEN: "The proof doesn't fail without its patch",
        ProofState.NOT_RUN: "The proof was not run",
        ProofState.NO_RESULT: "The environment gave no result",
        ProofState.NO_PROOF: "The patch names no proof",
    }
    results = []
    for v in verdicts:
        if not v.ok:
            level = "error" if v.fails or v.state == ProofState.NO_RESULT else "note"
            path = stack_path.get(v.proof.name, "patches")
            results.append(_result(v.state.replace(" ", "-"), level, f"{v.proof.title}: {v.message}", path))
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "patchq",
                        "version": __version__,
                        "rules": [
                            {"id": k.replace(" ", "-"), "shortDescription": {"text": text}} for k, text in rules.items()
                        ],
                    }
                },
                "results": results,
            }
        ],
    }


def _result(rule: str, level: str, message: str, path: str) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": path}}}],
    }


def sarif_bytes(
    verdicts: Sequence[Verdict], stack_path: dict[str, str], stops: Sequence[tuple[str, str, str, str]] = ()
) -> bytes:
    """Return the contents of a SARIF file.

    :param stops: patches that conflict on a newer ref, each with its name, file, ref and message. They are
        reported as notes.
    """
    found = sarif(verdicts, stack_path)
    run = found["runs"][0]
    if stops:
        rule = {"id": "stops-ahead", "shortDescription": {"text": "The patch conflicts on the newest pin"}}
        run["tool"]["driver"]["rules"].append(rule)
    for patch, path, ref, message in stops:
        run["results"].append(_result("stops-ahead", "note", f"{patch} on {ref}: {message}", path))
    return (json.dumps(found, indent=1) + "\n").encode()


def annotation(path: str, title: str, message: str) -> str:
    """Return a GitHub Actions warning about a file, escaped so that it contains no other command."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    return f"::warning file={value(path)},title={value(title)}::{data(message)}"
