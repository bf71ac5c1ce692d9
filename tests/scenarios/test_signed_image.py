"""Attestations that a key, or sigstore, has signed: taken from the right one alone, and held against what is signed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from kit import Patchq
from test_build import built, pair  # noqa: F401
from test_image import Made, image, sha  # noqa: F401

pytest.importorskip("securesystemslib", reason="needs the extra attest")
pytest.importorskip("cryptography", reason="needs the extra attest")
ENVELOPE = "usr/share/patchq/provenance.dsse.json"


def key_pair(folder: Path, kind: str = "ed25519") -> tuple[Path, Path]:
    """A private and a public key, as a user makes them."""
    folder.mkdir(parents=True, exist_ok=True)
    private, public = folder / f"{kind}.key", folder / f"{kind}.pem"
    more = {"ec": ["-pkeyopt", "ec_paramgen_curve:P-256"]}.get(kind, [])
    subprocess.run(["openssl", "genpkey", "-algorithm", kind, *more, "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return private, public


def name_key(patchq: Patchq, public: Path) -> None:
    keys = patchq.root / "keys"
    keys.mkdir(exist_ok=True)
    (keys / "release.pem").write_bytes(public.read_bytes())
    text = patchq.layout.lock.read_text()
    patchq.layout.lock.write_text(text + '\n[signing]\nkey = "keys/release.pem"\n')


def sign(made: Made) -> Path:
    """Build and compose anew, and put into the image what is there then; the envelope's path."""
    made.patchq.ok("build", "--no-isolation")
    made.patchq.ok("compose")
    folder = made.patchq.layout.dist / "default"
    for file in ("provenance.json", "provenance.dsse.json", "patchq.cdx.json"):
        if (folder / file).exists():
            made.layers[2][f"usr/share/patchq/{file}"] = (folder / file).read_bytes()
    made.labels["patchq.lock"] = sha(made.patchq.layout.lock.read_bytes())
    return folder / "provenance.dsse.json"


@pytest.mark.parametrize("kind", ["ed25519", "ec"])
def test_openssl_takes_the_signature_and_verify_image_the_image(
    image: Made,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    private, public = key_pair(tmp_path / "k", kind)
    name_key(image.patchq, public)
    monkeypatch.setenv("PATCHQ_SIGNING_KEY", str(private))
    envelope = sign(image)
    image.patchq.ok("verify-image", str(image.saved(tmp_path / "right.tar")))
    told = json.loads(envelope.read_bytes())
    payload, kind_of = base64.b64decode(told["payload"]), told["payloadType"].encode()
    assert payload == envelope.with_name("provenance.json").read_bytes()
    # Not by the library that signed: DSSE's encoding by hand, and openssl.
    (tmp_path / "pae").write_bytes(b"DSSEv1 %d %s %d %s" % (len(kind_of), kind_of, len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(told["signatures"][0]["sig"]))
    raw = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", tmp_path / "pae"]
    subprocess.run([*raw, "-sigfile", tmp_path / "sig"], check=True, capture_output=True)
    before = envelope.read_bytes()
    monkeypatch.delenv("PATCHQ_SIGNING_KEY")
    image.patchq.ok("build", "--no-isolation")
    assert envelope.read_bytes() == before, "what is right stays, key or no key"
    assert "provenance.*json" in (image.patchq.root / "deploy" / "Dockerfile").read_text()


def test_what_is_not_signed_by_the_locks_key_is_refused(
    image: Made,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private, public = key_pair(tmp_path / "ours")
    other, its_public = key_pair(tmp_path / "other")
    name_key(image.patchq, public)
    sign(image)
    assert "its attestation isn't signed (/usr/share/patchq/provenance.dsse.json)" in image.refused(tmp_path)
    monkeypatch.setenv("PATCHQ_SIGNING_KEY", str(other))
    assert "can't sign" in image.patchq.fails(1, "build", "--no-isolation")
    monkeypatch.setenv("PATCHQ_SIGNING_KEY", str(private))
    envelope = sign(image)
    good = json.loads(envelope.read_bytes())
    forged = {**good, "payload": base64.b64encode(base64.b64decode(good["payload"]) + b" ").decode()}
    image.layers[2][ENVELOPE] = json.dumps(forged).encode()
    assert "isn't signed by keys/release.pem" in image.refused(tmp_path)
    image.layers[2][ENVELOPE] = b"["
    assert "has an envelope that can't be read" in image.refused(tmp_path)
    # Rightly signed, but another attestation lies beside it.
    image.layers[2][ENVELOPE] = envelope.read_bytes()
    beside = "usr/share/patchq/provenance.json"
    image.layers[2][beside] += b"\n"
    assert "isn't the statement in its envelope" in image.refused(tmp_path)
    (image.patchq.root / "keys" / "release.pem").write_bytes(its_public.read_bytes())
    assert "isn't signed by keys/release.pem" in image.refused(tmp_path)
    (image.patchq.root / "keys" / "release.pem").write_text("no key")
    assert "is not a public key" in image.refused(tmp_path)


def test_sigstores_program_is_asked_by_identity_and_issuer(
    image: Made,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = image.patchq.layout.lock.read_text()
    image.patchq.layout.lock.write_text(
        text + '\n[signing]\nidentity = "ci@example.org"\nissuer = "https://id.example.org"\n'
    )
    program = tmp_path / "bin" / "sigstore"
    program.parent.mkdir()
    # Its interface, as `sigstore --help` of 4.5.1 has it, with a digest for a signature.
    program.write_text("""#!/bin/sh
if [ "$1" = sign ]; then [ "$2" = --bundle ] && sha256sum < "$4" > "$3"; exit; fi
[ "$1 $2 $3 $5 $6 $7 $8" = "verify identity --bundle --cert-identity ci@example.org --cert-oidc-issuer https://id.example.org" ] || exit 2
sha256sum < "$9" | cmp -s - "$4" || { echo "no such signature" >&2; exit 1; }
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    sign(image)
    assert "its attestation isn't signed" in image.refused(tmp_path), "no token: it isn't even called"
    monkeypatch.setenv("SIGSTORE_IDENTITY_TOKEN", "token")
    bundle = sign(image).with_name("provenance.sigstore.json").read_bytes()
    image.layers[2]["usr/share/patchq/provenance.sigstore.json"] = bundle
    image.patchq.ok("verify-image", str(image.saved(tmp_path / "right.tar")))
    image.layers[2]["usr/share/patchq/provenance.sigstore.json"] = b"other"
    assert "isn't signed by ci@example.org: no such signature" in image.refused(tmp_path)
    program.unlink()
    assert "sigstore isn't installed" in image.refused(tmp_path)


@pytest.mark.parametrize(
    "table", ['key = "../k"', "key = 1", 'identity = "a"', 'key = "k"\nissuer = "i"', 'key = "--k"', ""]
)
def test_a_table_that_says_neither_is_refused(stack: Patchq, table: str) -> None:
    text = stack.layout.lock.read_text()
    stack.layout.lock.write_text(f"{text}\n[signing]\n{table}\n")
    assert "signing" in stack.fails(1, "status")
