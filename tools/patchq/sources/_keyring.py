"""Signature checks of tags and commits with a keyring that the project contains.

An upstream's ``keyring`` in the lock names a file in the project. The file contains OpenPGP public keys,
armoured or not, or the lines of an SSH ``allowed_signers`` file. The user's own keys, trust settings and git
configuration are ignored, so the result is the same on every machine.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from patchq.errors import SourceError
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.system import project_files, runner

_GOOD_PGP = re.compile(r"^\[GNUPG:\] GOODSIG [0-9A-F]+ (.+)$", re.MULTILINE)
_PGP_KEY = re.compile(r"^\[GNUPG:\] VALIDSIG ([0-9A-F]+) ", re.MULTILINE)
_GOOD_SSH = re.compile(r'^Good "git" signature for (\S+) with \S+ key (\S+)$', re.MULTILINE)
_IN = "check who made this ref before you use it; the keys that may sign it are in {keyring}"


def verify(store: Git, commit: CommitId, ref: str, tag: str | None, root: Path, keyring: Path) -> str:
    """Check the signature of a tag object, or of the commit if ``tag`` is None.

    :param root: folder of the project, which contains the keyring.
    :param tag: tag object in the store; None for a branch, a lightweight tag or a tag that wasn't fetched. The
        authors of the tag and of the commit may differ, so a signature of the commit isn't enough if there is a tag
        object.
    :returns: the signer and the key.
    :raises SourceError: if there is no signature, if the keyring contains no matching key, or if the
        signature belongs to another tag.
    """
    hint = _IN.format(keyring=keyring)
    if tag:
        raw = store.run("cat-file", "tag", tag)
        if b"-----BEGIN " in raw:
            head = raw.split(b"\n\n")[0]
            named = re.search(rb"^tag (.+)$", head, re.MULTILINE)
            if not named or named[1] != ref.encode():
                name = named[1].decode("utf-8", "replace") if named else ""
                raise SourceError(f"the tag object of {ref} belongs to a tag named {name!r}", hint=hint)
            if not re.match(rb"object %s\ntype commit\n" % commit.encode(), head):
                raise SourceError(f"the tag object of {ref} points to a commit other than {commit}", hint=hint)
            return f"tag signed by {_verified(store, 'verify-tag', tag, ref, root, keyring, hint)}"
        raise SourceError(f"the tag {ref} is not signed; a signature of its commit is not enough", hint=hint)
    if not re.search(rb"^gpgsig ", store.run("cat-file", "commit", commit).split(b"\n\n")[0], re.MULTILINE):
        raise SourceError(f"the commit {commit} of {ref} is not signed", hint=hint)
    return f"commit signed by {_verified(store, 'verify-commit', commit, ref, root, keyring, hint)}"


def _verified(store: Git, verb: str, name: str, ref: str, root: Path, keyring: Path, hint: str) -> str:
    with _settings(root, keyring) as (options, env):
        done = store.ask(verb, "--raw", name, config=options, env=env)
    message = done.stderr.decode("utf-8", "replace")
    if done.returncode == 0:
        who, key = _GOOD_PGP.search(message), _PGP_KEY.search(message)
        if who and key:
            return f"{who[1]}, key {key[1]}"
        if ssh := _GOOD_SSH.search(message):
            return f"{ssh[1]}, key {ssh[2]}"
    raise SourceError(
        f"{ref} ({name[:12]}) has no valid signature by a key in {keyring.name}: {_why(message)}", hint=hint
    )


def _why(message: str) -> str:
    """Return the reason why a signature was refused, from the output of gpg or ssh-keygen."""
    for status, words in (
        ("NO_PUBKEY", "the signing key is not in the keyring"),
        ("BADSIG", "the signature is for other content"),
        ("REVKEYSIG", "the signing key was revoked"),
        ("EXPKEYSIG", "the signing key has expired"),
        ("EXPSIG", "the signature has expired"),
        ("No principal matched", "the signing key is not in the keyring"),
    ):
        if status in message:
            return words
    if message.strip():
        return message.strip().splitlines()[-1]
    return "git gives no reason"


@contextmanager
def _settings(root: Path, keyring: Path) -> Iterator[tuple[list[str], Mapping[str, str]]]:
    """Yield the options and the environment that make git use only this keyring."""
    try:
        data = project_files.read(root, keyring)
    except OSError as error:
        raise SourceError(
            f"the keyring {keyring} can't be read: {error.strerror}", hint="correct `keyring` in upstream.lock"
        ) from None
    if data is None:
        raise SourceError(f"the keyring {keyring} does not exist", hint="correct `keyring` in upstream.lock")
    # A keyring of one kind must not accept signatures of another kind.
    no_program = "false"
    with tempfile.TemporaryDirectory(prefix="patchq-") as home:
        # A copy, because the project's file may change during the check.
        copy = Path(home) / "keys"
        copy.write_bytes(data)
        if _is_allowed_signers(data):
            # git gives a signature without a matching principal no trust, so minTrustLevel refuses this signature.
            yield (
                [
                    f"gpg.ssh.allowedSignersFile={copy}",
                    "gpg.ssh.program=ssh-keygen",
                    "gpg.ssh.revocationFile=",
                    f"gpg.program={no_program}",
                    "gpg.minTrustLevel=fully",
                    f"gpg.x509.program={no_program}",
                ],
                {"GNUPGHOME": home},
            )
            return
        env = {"GNUPGHOME": home}
        try:
            runner.run(["gpg", "--batch", "--quiet", "--no-autostart", "--import", str(copy)], env=env, timeout=60)
        except runner.CommandError as error:
            raise SourceError(
                f"gpg can't read the keyring {keyring}: {error.output}", hint="export the public keys to this file"
            ) from None
        yield (
            [
                "gpg.program=gpg",
                f"gpg.ssh.program={no_program}",
                f"gpg.x509.program={no_program}",
                "gpg.minTrustLevel=undefined",
            ],
            env,
        )


def _is_allowed_signers(data: bytes) -> bool:
    return (
        b"PGP PUBLIC KEY" not in data and re.search(rb"^[^#\s]\S*\s.*\b(ssh|ecdsa|sk)-", data, re.MULTILINE) is not None
    )
