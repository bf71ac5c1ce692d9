"""Signatures of attestations: DSSE envelopes signed with a key, or bundles made by the program sigstore.

DSSE is specified at https://github.com/secure-systems-lab/dsse. The private key is not in the project: an
environment variable names the key's file.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import UserError
from patchq.extras import install_command
from patchq.formats.verification import Signing
from patchq.system import fsio, project_files, runner

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

#: Variable with the file of the private key: PEM without a password.
KEY_VARIABLE = "PATCHQ_SIGNING_KEY"
PAYLOAD = "application/vnd.in-toto+json"
#: Names of the signature files. They are in the same folder as the attestation.
ENVELOPE, BUNDLE = "provenance.dsse.json", "provenance.sigstore.json"
_TOKENS = ("SIGSTORE_IDENTITY_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
#: Time limit for sigstore's services, in seconds.
_TIMEOUT = 120.0


def name_of(signing: Signing) -> str:
    """Return the name of the file that contains the signature."""
    if signing.key:
        return ENVELOPE
    return BUNDLE


def sign(signing: Signing, root: Path, statement: bytes) -> bytes | None:
    """Return the signature of a statement; None if no key or token is available.

    A key is available if the environment variable :data:`KEY_VARIABLE` names its file. sigstore is available
    in a CI job that has a token or can request one from GitHub. No browser is opened.

    :raises UserError: if the key can't be read or isn't the key that the lock names.
    """
    if signing.key:
        private = os.environ.get(KEY_VARIABLE)
        if private:
            return _seal(signing, root, statement, Path(private))
        return None
    if not any(os.environ.get(name) for name in _TOKENS):
        return None
    with tempfile.TemporaryDirectory() as folder:
        file, bundle = Path(folder, "provenance.json"), Path(folder, BUNDLE)
        file.write_bytes(statement)
        _sigstore(["sign", "--bundle", str(bundle), str(file)])
        return bundle.read_bytes()


def fault(signing: Signing, root: Path, statement: bytes, signature: bytes | None) -> str:
    """Return the reason why a statement's signature is invalid; empty if the signature is valid.

    :raises UserError: if the public key can't be read, or a required library or program isn't
        installed.
    """
    if signature is None:
        return "isn't signed"
    if signing.key:
        return _fault_of_envelope(signing, root, statement, signature)
    with tempfile.TemporaryDirectory() as folder:
        file, bundle = Path(folder, "provenance.json"), Path(folder, BUNDLE)
        file.write_bytes(statement)
        bundle.write_bytes(signature)
        arguments = ["verify", "identity", "--bundle", str(bundle)]
        arguments += ["--cert-identity", signing.identity]
        arguments += ["--cert-oidc-issuer", signing.issuer, str(file)]
        try:
            _sigstore(arguments)
        except runner.CommandError as error:
            reason = (error.output.splitlines() or ["sigstore refuses it"])[-1]
            return f"isn't signed by {signing.identity}: {reason}"
    return ""


def _sigstore(arguments: list[str]) -> None:
    try:
        runner.run(["sigstore", *arguments], timeout=_TIMEOUT)
    except runner.CommandError as error:
        if error.code == 127:
            hint = "python -m pip install sigstore"
            raise UserError("sigstore isn't installed", hint=hint) from None
        raise


def _seal(signing: Signing, root: Path, statement: bytes, private: Path) -> bytes:
    """Return a DSSE envelope that contains the statement, signed with the private key."""
    public = _public(signing, root)
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    try:
        signer = CryptoSigner.from_priv_key_uri(f"file2:{private.resolve()}", public)
        envelope = Envelope(statement, PAYLOAD, {})
        envelope.sign(signer)
    except Exception as error:  # the library documents no common exception for bad files, formats and curves
        raise UserError(
            f"{private} can't sign: {error}",
            hint=f"set {KEY_VARIABLE} to the PEM file of a private key in PKCS8 format",
        ) from None
    sealed = fsio.dump_json(envelope.to_dict())
    wrong = _fault_of_envelope(signing, root, statement, sealed)
    if wrong:
        hint = "the lock names the public key of another private key"
        raise UserError(f"the statement signed with {private} {wrong}", hint=hint)
    return sealed


def _fault_of_envelope(signing: Signing, root: Path, statement: bytes, data: bytes) -> str:
    public = _public(signing, root)
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(json.loads(data))
        envelope.verify([public], 1)
    except VerificationError:
        return f"isn't signed by {signing.key}"
    except Exception:  # the library documents no common exception for damaged envelopes
        return "has an envelope that can't be read"
    if envelope.payload_type != PAYLOAD or envelope.payload != statement:
        return "isn't the statement in its envelope"
    return ""


def _public(signing: Signing, root: Path) -> SSlibKey:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from securesystemslib.signer import SSlibKey
    except ImportError:
        raise UserError("signatures need a library", hint=install_command("attest")) from None
    try:
        data = project_files.read(root, root / signing.key) or b""
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except (OSError, ValueError) as error:
        hint = "`openssl pkey -pubout` writes a public key in PEM format"
        raise UserError(f"{signing.key} is not a public key: {error}", hint=hint) from None
