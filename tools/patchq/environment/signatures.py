"""Attestations signed and checked: DSSE envelopes by a key, or sigstore's bundles by its own program.

https://github.com/secure-systems-lab/dsse. The private key is never in the project: the environment names its file.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import UserError
from patchq.extras import need
from patchq.formats.signing import Signing
from patchq.system import fsio, project_files, runner

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

#: The file of the private key, PEM without a password.
KEY_VARIABLE = "PATCHQ_SIGNING_KEY"
PAYLOAD = "application/vnd.in-toto+json"
#: The names of the files beside the attestation.
ENVELOPE, BUNDLE = "provenance.dsse.json", "provenance.sigstore.json"
_TOKENS = ("SIGSTORE_IDENTITY_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
#: Seconds for sigstore's services.
_PATIENCE = 120.0


def name_of(signing: Signing) -> str:
    """The file that holds the signature."""
    return ENVELOPE if signing.key else BUNDLE


def sign(signing: Signing, root: Path, statement: bytes) -> bytes | None:
    """What stands beside a statement for it to be signed; None where there is nothing to sign with.

    With a key, that is where :data:`KEY_VARIABLE` names its file; with sigstore, where a CI service vouches for the
    job (its token, or GitHub's offer of one, is in the environment): it never opens a browser.

    :raises UserError: if the key can't be read or isn't the one that the lock names.
    """
    if signing.key:
        named = os.environ.get(KEY_VARIABLE)
        return _seal(signing, root, statement, Path(named)) if named else None
    if not any(os.environ.get(name) for name in _TOKENS):
        return None
    with tempfile.TemporaryDirectory() as folder:
        file, bundle = Path(folder) / "provenance.json", Path(folder) / BUNDLE
        file.write_bytes(statement)
        _sigstore(["sign", "--bundle", str(bundle), str(file)])
        return bundle.read_bytes()


def fault(signing: Signing, root: Path, statement: bytes, signature: bytes | None) -> str:
    """What is wrong with the signature of a statement; empty if it is right.

    :raises UserError: if the public key can't be read, or what is needed to check isn't installed.
    """
    if signature is None:
        return "isn't signed"
    if signing.key:
        return _fault_of_envelope(signing, root, statement, signature)
    with tempfile.TemporaryDirectory() as folder:
        file, bundle = Path(folder) / "provenance.json", Path(folder) / BUNDLE
        file.write_bytes(statement)
        bundle.write_bytes(signature)
        try:
            _sigstore(["verify", "identity", "--bundle", str(bundle), "--cert-identity", signing.identity,
                       "--cert-oidc-issuer", signing.issuer, str(file)])  # fmt: skip
        except runner.CommandError as error:
            said = error.said.splitlines()
            return f"isn't signed by {signing.identity}: {said[-1] if said else 'sigstore refuses it'}"
    return ""


def _sigstore(arguments: list[str]) -> None:
    try:
        runner.run(["sigstore", *arguments], timeout=_PATIENCE)
    except runner.CommandError as error:
        if error.code == 127:
            raise UserError("sigstore isn't installed", hint="python -m pip install sigstore") from None
        raise


def _seal(signing: Signing, root: Path, statement: bytes, private: Path) -> bytes:
    public = _public(signing, root)
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    try:
        signer = CryptoSigner.from_priv_key_uri(f"file2:{private.resolve()}", public)
        envelope = Envelope(statement, PAYLOAD, {})
        envelope.sign(signer)
    except Exception as error:  # whatever its libraries raise: a file, a format, a password, a curve
        raise UserError(
            f"{private} can't sign: {error}", hint=f"{KEY_VARIABLE} names the PEM file of a private key, PKCS8"
        ) from None
    found = fsio.dump_json(envelope.to_dict())
    if wrong := _fault_of_envelope(signing, root, statement, found):
        raise UserError(f"what {private} signs {wrong}", hint="the lock names the public half of another key")
    return found


def _fault_of_envelope(signing: Signing, root: Path, statement: bytes, data: bytes) -> str:
    public = _public(signing, root)
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(json.loads(data))
        envelope.verify([public], 1)
    except VerificationError:
        return f"isn't signed by {signing.key}"
    except Exception:  # somebody else's bytes, read by a library that promises no one kind of error
        return "has an envelope that can't be read"
    if envelope.payload_type != PAYLOAD or envelope.payload != statement:
        return "isn't what is signed beside it"
    return ""


def _public(signing: Signing, root: Path) -> SSlibKey:
    need("attest", "a signature by a key")
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(project_files.read(root, root / signing.key) or b""))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{signing.key} is no public key: {error}", hint="PEM, as `openssl pkey -pubout` writes it"
        ) from None
