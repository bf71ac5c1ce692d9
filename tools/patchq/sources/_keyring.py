"""Signatures on tags and commits, checked by a keyring that the project holds itself.

An upstream's ``keyring`` in the lock names a file in the project: OpenPGP public keys, armoured or
not, or the lines of an SSH ``allowed_signers`` file. Nobody's own keys, trust or git configuration
take part, so that the answer is the same on every machine.
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
_IN = "check who made it before you use it; the keys that may sign are in {keyring}"


def verify(store: Git, commit: CommitId, ref: str, tag: str | None, root: Path, keyring: Path) -> str:
    """Check the signature of a tag that names ``commit``, or the commit's own where there is no such tag.

    :param root: the project's folder, in which the keyring lies.
    :param tag: the tag object in the store; None for a branch or a tag without an object of its own. Who made it
        is not who made the commit: it must be signed itself.
    :returns: who signed, and with which key.
    :raises SourceError: if nothing is signed, if the signature is not one of the keyring's, or if it
        is one of another tag's.
    """
    hint = _IN.format(keyring=keyring)
    if tag:
        raw = store.run("cat-file", "tag", tag)
        if b"-----BEGIN " in raw:
            head = raw.split(b"\n\n")[0]
            named = re.search(rb"^tag (.+)$", head, re.MULTILINE)
            if (
                not re.match(rb"object %s\ntype commit\n" % commit.encode(), head)
                or not named
                or named[1] != ref.encode()
            ):
                name = named[1].decode("utf-8", "replace") if named else "nothing"
                raise SourceError(f"the tag that {ref} names says that it is {name}, or of another commit", hint=hint)
            return f"tag signed by {_verified(store, 'verify-tag', tag, ref, root, keyring, hint)}"
        raise SourceError(f"the tag {ref} is not signed, whoever signed its commit", hint=hint)
    if not re.search(rb"^gpgsig ", store.run("cat-file", "commit", commit).split(b"\n\n")[0], re.MULTILINE):
        raise SourceError(f"neither the tag {ref} nor its commit {commit} is signed", hint=hint)
    return f"commit signed by {_verified(store, 'verify-commit', commit, ref, root, keyring, hint)}"


def _verified(store: Git, verb: str, name: str, ref: str, root: Path, keyring: Path, hint: str) -> str:
    with _settings(root, keyring) as (options, env):
        done = store.ask(verb, "--raw", name, config=options, env=env)
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode == 0:
        who, key = _GOOD_PGP.search(said), _PGP_KEY.search(said)
        if who and key:
            return f"{who[1]}, key {key[1]}"
        if ssh := _GOOD_SSH.search(said):
            return f"{ssh[1]}, key {ssh[2]}"
    raise SourceError(f"{ref} ({name[:12]}) has no good signature of {keyring.name}: {_why(said)}", hint=hint)


def _why(said: str) -> str:
    """What is wrong, out of gpg's or ssh-keygen's answer."""
    for status, words in (
        ("NO_PUBKEY", "it is signed with a key that is not in it"),
        ("BADSIG", "the signature is of something else"),
        ("REVKEYSIG", "its key was revoked"),
        ("EXPKEYSIG", "its key has expired"),
        ("EXPSIG", "it has expired"),
        ("No principal matched", "it is signed with a key that is not in it"),
    ):
        if status in said:
            return words
    return said.strip().splitlines()[-1] if said.strip() else "git says no more"


@contextmanager
def _settings(root: Path, keyring: Path) -> Iterator[tuple[list[str], Mapping[str, str]]]:
    """Options and environment with which git asks this keyring and nothing else."""
    try:
        data = project_files.read(root, keyring)
    except OSError as error:
        raise SourceError(
            f"the keyring {keyring} can't be read: {error.strerror}", hint="see keyring in the lock"
        ) from None
    if data is None:
        raise SourceError(f"the keyring {keyring} is not there", hint="see keyring in the lock")
    # A signer's file of one kind must not let signatures of the other kind pass.
    no_program = "false"
    with tempfile.TemporaryDirectory(prefix="patchq-") as home:
        # What was read is what is asked, whatever becomes of the project's file meanwhile.
        copy = Path(home) / "keys"
        copy.write_bytes(data)
        if _is_allowed_signers(data):
            # A signature without a matching principal has no trust: it must not count.
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
                f"gpg can't read the keyring {keyring}: {error.said}", hint="export public keys to it"
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
