"""A person's git configuration, attributes and ignores, whatever they say: patchq's work is the same to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered

MAILS = Path(__file__).parent / "mails"
CONFIG = """
[user]
	name = Test Person
	email = test@example.org
[i18n]
	commitEncoding = ISO-8859-1
	logOutputEncoding = UTF-16
[mailinfo]
	scissors = true
	quotedCr = strip
[am]
	keepcr = false
	messageid = true
	threeWay = true
[apply]
	whitespace = fix
	ignoreWhitespace = change
[core]
	autocrlf = true
	eol = crlf
	safecrlf = true
	attributesFile = {home}/attributes
	excludesFile = {home}/ignore
	hooksPath = {home}/hooks
	fsmonitor = {home}/evil
	editor = {home}/evil
	pager = {home}/evil
	sshCommand = {home}/evil
	askPass = {home}/evil
	commentChar = auto
	quotePath = false
	abbrev = 4
	fileMode = false
	symlinks = false
	ignoreCase = true
	precomposeUnicode = true
	whitespace = -trailing-space,cr-at-eol,tabwidth=4
	logAllRefUpdates = always
	bigFileThreshold = 1
	looseCompression = 0
	sharedRepository = 0666
[diff]
	noprefix = true
	mnemonicPrefix = true
	external = {home}/evil
	algorithm = patience
	renames = false
	context = 7
	interHunkContext = 5
	orderFile = {home}/attributes
	suppressBlankEmpty = true
	submodule = log
	wsErrorHighlight = all
	colorMoved = zebra
	ignoreSubmodules = all
	relative = true
	srcPrefix = x/
	dstPrefix = y/
[diff "evil"]
	textconv = {home}/evil
	command = {home}/evil
	xfuncname = "^nothing"
[filter "evil"]
	clean = {home}/evil
	smudge = {home}/evil
	required = true
[format]
	signOff = true
	attach = true
	headers = "X-Evil: 1"
	from = true
	thread = deep
	coverLetter = true
	encodeEmailHeaders = false
	subjectPrefix = EVIL
	suffix = .evil
	notes = true
	numbered = true
	pretty = %H
	signature = evil
	useAutoBase = true
	forceInBodyFrom = true
	outputDirectory = {home}
[log]
	showSignature = true
	showRoot = false
	mailmap = true
	date = relative
	decorate = full
	follow = true
	diffMerges = separate
	excludeDecoration = x
[mailmap]
	file = {home}/mailmap
[gpg]
	program = {home}/evil
[commit]
	gpgSign = true
	cleanup = scissors
	template = {home}/attributes
[tag]
	gpgSign = true
[color]
	ui = always
	diff = always
[merge]
	conflictStyle = diff3
	renames = false
	directoryRenames = false
	renormalize = true
	ff = only
[merge "evil"]
	driver = {home}/evil
[rerere]
	enabled = true
	autoUpdate = true
[init]
	templateDir = {home}/hooks
	defaultObjectFormat = sha256
[transfer]
	fsckObjects = true
[fetch]
	prune = true
	parallel = 0
	negotiationAlgorithm = noop
	fsckObjects = true
[status]
	short = true
	branch = true
	showUntrackedFiles = no
	relativePaths = true
	submoduleSummary = true
[submodule]
	recurse = true
[extensions]
	worktreeConfig = true
[worktree]
	guessRemote = true
[trailer]
	separators = "#"
[pack]
	packSizeLimit = 1
[alias]
	log = !{home}/evil
	apply = !{home}/evil
[include]
	path = {home}/more
"""
ATTRIBUTES = "* text eol=crlf working-tree-encoding=UTF-16 filter=evil diff=evil merge=evil ident export-subst whitespace=trail -diff\n"


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home whose git configuration turns around all that it can; a script in it tells that it was run."""
    home = tmp_path / "hostile"
    (home / "xdg" / "git").mkdir(parents=True)
    (home / "hooks").mkdir()
    script = f'#!/bin/sh\necho "$0 $*" >> {home}/ran\nexit 1\n'
    for name in (
        "evil",
        "hooks/pre-commit",
        "hooks/post-checkout",
        "hooks/reference-transaction",
        "hooks/post-index-change",
    ):
        (home / name).write_text(script)
        (home / name).chmod(0o755)
    for where in (home / ".gitconfig", home / "xdg" / "git" / "config"):
        where.write_text(CONFIG.format(home=home))
    for where in (home / "attributes", home / "xdg" / "git" / "attributes"):
        where.write_text(ATTRIBUTES)
    for where in (home / "ignore", home / "xdg" / "git" / "ignore"):
        where.write_text("*\n")
    (home / "mailmap").write_text("Somebody Else <else@example.org> <ann@example.org>\n")
    (home / "more").write_text("[core]\n\tcommentChar = x\n")
    return home


def story(patchq: Patchq, upstream: Path) -> dict[str, bytes]:
    """Each way of adopting patches, and writing them again; all files and ids that come of it."""
    mails = sorted(p for folder in (MAILS, MAILS / "better") for p in folder.iterdir() if p.is_file())
    patchq.ok("apply")
    patchq.ok("import", "up", *(str(p) for p in mails if "no-date" not in p.name), "--author", "me")
    patchq.ok("import", "up", str(upstream), "--range", "v1..work")
    patchq.ok("apply")
    edit(patchq.tree() / "b.txt", 7)
    (patchq.tree() / "new.txt").write_bytes(b"new  \r\n$Id$\n")
    patchq.ok("new", "up", "mine", "-m", "Mine\n\nWhy, with ü.", "-s")
    edit(patchq.tree() / "b.txt", 9)
    patchq.ok("export", "up", "--amend", "mine")
    patchq.ok("move", "mine", "--first")
    patchq.ok("apply")
    assert "up to date" in patchq.ok("apply")
    assert "worktree clean" in patchq.ok("status")
    assert "nothing changed" in patchq.ok("export", "up")
    return {k: v for k, v in patchq.snapshot().items() if k != "lock"}


def test_the_same_bytes_under_any_configuration(
    patchq: Patchq, upstream: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git(upstream, "checkout", "-q", "-b", "work")
    commit_files(
        upstream,
        {"crlf.txt": b"a\r\nb\r\n", ".gitattributes": b"*.txt whitespace=cr-at-eol\n"},
        "Ünïcode  sübject\n\nWhy.",
    )
    commit_files(
        upstream,
        {"a.txt": numbered(40).replace(b"line 30\n", b"line thirty  \n")},
        "Thirty\n\n-- >8 --\nSubject: not this\n",
    )
    git(upstream, "checkout", "-q", "main")
    want = story(patchq, upstream)
    other = Patchq(tmp_path / "other")
    other.root.mkdir()
    monkeypatch.setenv("HOME", str(hostile))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hostile / "xdg"))
    other.ok("init", str(other.root))
    other.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    found = story(other, upstream)
    assert {k for k in want if found.get(k) != want[k]} == set()
    assert found.keys() == want.keys()
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()
