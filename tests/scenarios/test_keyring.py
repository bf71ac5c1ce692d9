"""Signatures of tags and commits, made by real gpg and ssh keys and checked by a keyring of the project."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git


@dataclass
class Signer:
    """A key that git signs with: ``options`` make it, ``public`` is what a keyring of it holds."""

    options: tuple[str, ...]
    public: bytes
    home: str = ""

    def sign(self, folder: Path, *args: str) -> None:
        """Run a git command that signs."""
        git(folder, *self.options, *args, env={"GNUPGHOME": self.home} if self.home else None)


def pgp(folder: Path, who: str, born: str = "now", expires: str = "never") -> Signer:
    """A new OpenPGP key; with ``born``, one that was made and signs at another time."""
    folder.mkdir(mode=0o700)
    program = folder / "gpg"
    program.write_text(f'#!/bin/sh\nexec gpg {"" if born == "now" else f"--faked-system-time {born}"} "$@"\n')
    program.chmod(0o755)
    gpg = [str(program), "--homedir", str(folder), "--batch", "--quiet", "--passphrase", ""]
    subprocess.run([*gpg, "--quick-gen-key", who, "ed25519", "sign", expires], check=True, capture_output=True)
    public = subprocess.run([*gpg, "--armor", "--export", who], check=True, capture_output=True).stdout
    return Signer(("-c", f"user.signingKey={who}", "-c", f"gpg.program={program}"), public, str(folder))


def ssh(folder: Path, who: str) -> Signer:
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    public = (folder / "key.pub").read_bytes().split()
    return Signer(
        ("-c", "gpg.format=ssh", "-c", f"user.signingKey={folder / 'key'}"),
        who.encode() + b' namespaces="git" ' + b" ".join(public[:2]) + b"\n",
    )


@pytest.fixture(params=["pgp", "ssh"])
def signers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Signer, Signer]]:
    """Whose keys the keyring holds, and somebody else's of the same kind."""
    make = pgp if request.param == "pgp" else ssh
    # gpg's agent listens on a socket in its home, and a socket's path is short.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        yield make(Path(short) / "a", "releaser@example.org"), make(Path(short) / "b", "mallory@example.org")
        for name in ("a", "b"):
            subprocess.run(["gpgconf", "--homedir", f"{short}/{name}", "--kill", "gpg-agent"], capture_output=True)


def trust(patchq: Patchq, *signers: Signer) -> None:
    (patchq.root / "keys").mkdir(exist_ok=True)
    (patchq.root / "keys/up").write_bytes(b"".join(s.public for s in signers))
    text = patchq.layout.lock.read_text()
    assert "[upstreams.up]" in text
    patchq.layout.lock.write_text(text.replace("[upstreams.up]\n", '[upstreams.up]\nkeyring = "keys/up"\n', 1))


def configure(lines: str) -> None:
    """Add to the git configuration of whoever runs patchq."""
    path = Path.home() / ".gitconfig"
    path.write_text(path.read_text() + lines)


def test_a_signed_tag_is_pinned_and_fetched(
    patchq: Patchq, upstream: Path, signers: tuple[Signer, Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = signers
    ours.sign(upstream, "tag", "-s", "v2", "-m", "two")
    trust(patchq, ours)
    assert "tag signed by " in (said := patchq.ok("pin", "up", "--ref", "v2"))
    assert "releaser@example.org" in said
    assert "tag signed by " in patchq.ok("fetch")
    assert "tag signed by " not in patchq.ok("fetch")  # once is enough
    upstream.rename(upstream.with_name("gone"))
    patchq.ok("apply")
    (patchq.root / "keys/up").write_bytes(ours.public + b"\n")  # another keyring is another question
    assert "tag signed by " in patchq.ok("fetch")
    upstream.with_name("gone").rename(upstream)
    out = patchq.fails(1, "pin", "--check", "up")  # for v1, which nobody signed
    assert f"up v1 signature: the commit {git(upstream, 'rev-parse', 'v1')} of v1 is not signed" in out
    assert "up v2 signature: tag signed by" in out
    # The keyring of whoever runs it, their agent and their git settings have no say.
    monkeypatch.setenv("GNUPGHOME", "/nowhere")
    configure('[gpg]\n\tprogram = true\n[gpg "ssh"]\n\tprogram = true\n')
    assert "tag signed by " in patchq.ok("pin", "up", "--ref", "v2")


def test_a_signed_commit_will_do(patchq: Patchq, upstream: Path, signers: tuple[Signer, Signer]) -> None:
    ours, _ = signers
    commit_files(upstream, {"c.txt": b"c\n"})
    ours.sign(upstream, "commit", "-q", "-S", "--amend", "--no-edit")
    git(upstream, "tag", "v2")
    trust(patchq, ours)
    assert "commit signed by " in patchq.ok("pin", "up", "--ref", "v2")


def test_an_unsigned_branch_is_called_no_tag(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    git(upstream, "branch", "stable", "v1")
    trust(patchq, ssh(tmp_path / "a", "releaser@example.org"))
    said = patchq.fails(1, "pin", "up", "--ref", "stable")
    assert f"error: the commit {git(upstream, 'rev-parse', 'v1')} of stable is not signed\n" in said
    assert "tag" not in said


def unsigned(upstream: Path, ours: Signer, other: Signer) -> str:
    git(upstream, "tag", "v2")
    return f"the commit {git(upstream, 'rev-parse', 'v2')} of v2 is not signed\n"


def an_unsigned_tag(upstream: Path, ours: Signer, other: Signer) -> str:
    """Anybody who may push can put a tag on what somebody else signed: it says nothing of who released it."""
    commit_files(upstream, {"c.txt": b"c\n"})
    ours.sign(upstream, "commit", "-q", "-S", "--amend", "--no-edit")
    git(upstream, "tag", "-a", "v2", "-m", "two")
    return "the tag v2 is not signed"


def by_somebody_else(upstream: Path, ours: Signer, other: Signer) -> str:
    other.sign(upstream, "tag", "-s", "v2", "-m", "two")
    return "the signing key is not in the keyring"


def altered(upstream: Path, ours: Signer, other: Signer) -> str:
    ours.sign(upstream, "tag", "-s", "v2", "-m", "two")
    raw = subprocess.run(["git", "cat-file", "tag", "v2"], cwd=upstream, capture_output=True, check=True).stdout
    made = git(upstream, "hash-object", "-t", "tag", "-w", "--stdin", data=raw.replace(b"\ntwo\n", b"\n2 !\n"))
    git(upstream, "update-ref", "refs/tags/v2", made)
    return "has no valid signature"


def of_an_older_release(upstream: Path, ours: Signer, other: Signer) -> str:
    """The right key's signature, of the release before: a server that hands out what had a hole in it."""
    ours.sign(upstream, "tag", "-s", "v1.5", "-m", "before")
    git(upstream, "update-ref", "refs/tags/v2", git(upstream, "rev-parse", "v1.5"))
    return "the tag object of v2 belongs to a tag named 'v1.5'"


@pytest.mark.parametrize(
    "attack", [unsigned, an_unsigned_tag, by_somebody_else, altered, of_an_older_release], ids=lambda f: f.__name__
)
def test_what_is_not_signed_by_the_keyring_is_refused(
    patchq: Patchq, upstream: Path, signers: tuple[Signer, Signer], attack: object
) -> None:
    said = attack(upstream, *signers)  # type: ignore[operator]
    patchq.ok("pin", "up", "--ref", "v2", "--set", "before")  # without a keyring nobody asks
    trust(patchq, signers[0])
    before = patchq.layout.lock.read_bytes()
    assert said in patchq.fails(1, "pin", "up", "--ref", "v2")
    assert patchq.layout.lock.read_bytes() == before
    assert said in patchq.fails(1, "fetch", "--set", "before")
    assert said in patchq.fails(1, "apply", "--set", "before")
    assert "refs/patchq/base/git/up/v2" not in git(patchq.layout.store, "for-each-ref")
    answer = json.loads(patchq.fails(1, "pin", "--check", "up", "--json"))
    assert [c["ok"] for c in answer["checked"] if c["source"] == "signature"] == [False, False]


def test_an_expired_and_a_revoked_key(patchq: Patchq, upstream: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        expiring = pgp(Path(short) / "a", "a@example.org", "20200101T000000", "1y")
        revoked = pgp(Path(short) / "b", "b@example.org")
        expiring.sign(upstream, "tag", "-s", "v2", "-m", "two")
        revoked.sign(upstream, "tag", "-s", "v3", "-m", "three")
        gpg = ["gpg", "--homedir", revoked.home, "--batch", "--yes", "--quiet"]
        (certificate,) = (Path(revoked.home) / "openpgp-revocs.d").iterdir()
        # gpg disarms what it made for the day of need: a colon stands before the armour.
        subprocess.run(
            [*gpg, "--import"], input=certificate.read_text().replace(":-----", "-----"), text=True, check=True
        )
        public = subprocess.run([*gpg, "--armor", "--export"], capture_output=True, check=True).stdout
        trust(patchq, expiring, Signer((), public))
        assert "the signing key has expired" in patchq.fails(1, "pin", "up", "--ref", "v2")
        assert "the signing key was revoked" in patchq.fails(1, "pin", "up", "--ref", "v3")
        for home in (expiring.home, revoked.home):
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], capture_output=True)


def test_a_key_of_one_kind_says_nothing_of_the_other(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """A keyring of SSH keys, a tag signed by OpenPGP: the key in the user's own ring must not count."""
    theirs = ssh(tmp_path / "b", "mallory@example.org")
    ours = ssh(tmp_path / "a", "releaser@example.org")
    theirs.sign(upstream, "tag", "-s", "v2", "-m", "two")
    trust(patchq, ours)
    configure(f'[gpg "ssh"]\n\tallowedSignersFile = {tmp_path / "theirs"}\n')
    (tmp_path / "theirs").write_bytes(theirs.public)
    assert "not in the keyring" in patchq.fails(1, "pin", "up", "--ref", "v2")


@pytest.mark.parametrize("content", [None, b"", b"\0\xff nonsense", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nno\n"])
def test_a_keyring_that_is_none(patchq: Patchq, upstream: Path, tmp_path: Path, content: bytes | None) -> None:
    ssh(tmp_path / "a", "releaser@example.org").sign(upstream, "tag", "-s", "v2", "-m", "two")
    trust(patchq)
    if content is None:
        (patchq.root / "keys/up").unlink()
    else:
        (patchq.root / "keys/up").write_bytes(content)
    assert "keyring" in patchq.fails(1, "pin", "up", "--ref", "v2")


def test_what_is_applied_already_is_asked_too(stack: Patchq, tmp_path: Path) -> None:
    """A keyring that comes later: the remembered base is no way around it."""
    trust(stack, ssh(tmp_path / "a", "releaser@example.org"))
    assert "of v1 is not signed\n" in stack.fails(1, "apply")


def test_a_keyring_lies_in_the_project(patchq: Patchq) -> None:
    text = patchq.layout.lock.read_text().replace("[upstreams.up]\n", '[upstreams.up]\nkeyring = "../keys"\n', 1)
    patchq.layout.lock.write_text(text)
    assert "is not a relative path inside its folder" in patchq.fails(1, "fetch")


def test_pin_says_what_moved(patchq: Patchq, upstream: Path) -> None:
    old = git(upstream, "rev-parse", "v1")
    assert "moved" not in patchq.ok("pin", "up", "--ref", "v1")
    new = commit_files(upstream, {"c.txt": b"c\n"})
    git(upstream, "tag", "-f", "v1")
    out = patchq.ok("pin", "up", "--ref", "v1")
    assert f"moved: commit was {old}, is {new}" in out
    git(upstream, "tag", "v2")
    answer = json.loads(patchq.ok("pin", "up", "--ref", "v2", "--json"))
    assert answer["moved"] == [{"what": "the ref of default", "old": "v1", "new": "v2"}]


def test_a_bundle_carries_what_a_keyring_asks_for(
    patchq: Patchq, upstream: Path, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    ours, other = signers
    ours.sign(upstream, "tag", "-s", "v2", "-m", "two")
    trust(patchq, ours)
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("apply")
    bundle = tmp_path / "all.bundle"
    patchq.ok("bundle", str(bundle))
    upstream.rename(tmp_path / "gone")
    site = Patchq(tmp_path / "site")
    said = site.ok("apply", "--from-bundle", str(bundle))
    assert "tag signed by " in said
    assert (site.root / "keys/up").read_bytes() == ours.public
    # The same, on a site that has another opinion of who may sign.
    shutil.rmtree(site.layout.private)
    (site.root / "keys/up").write_bytes(other.public)
    assert "no valid signature" in site.fails(1, "apply", "--from-bundle", str(bundle))
