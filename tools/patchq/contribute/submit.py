"""Remote operations for pull requests and issues: push, open and refresh the status."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from patchq.contribute.bugreport import Report, title
from patchq.contribute.bugreport import folder_of as report_folder
from patchq.contribute.dossier import folder_of
from patchq.contribute.proposal import Owner, Proposal, repository_of
from patchq.errors import SourceError, UserError
from patchq.git import person
from patchq.names import sh
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.edit import set_upstream_status
from patchq.system import fsio, runner

VERSION = 1
_URL = re.compile(r"https?://[^\s\[\]]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Pushed branch of a pull request, and the pull request's URL once it is open."""

    remote: str = ""
    branch: str = ""
    commit: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitState:
    """Status of a pull request at the upstream's git host.

    :ivar refs: refs of the stacks whose ``Upstream-Status:`` changed.
    """

    patches: tuple[str, ...]
    url: str
    status: str
    refs: tuple[str, ...]


def _sent_path(project: Project, slug: str) -> Path:
    return folder_of(project, slug) / "sent.json"


def sent(project: Project, slug: str) -> Sent:
    """Return a pull request's pushed branch and URL. A field is empty if the branch or URL doesn't exist yet."""
    path = _sent_path(project, slug)
    data = fsio.read_or_none(path)
    if data is None:
        return Sent()
    raw = fsio.load_state(data, path, VERSION)
    raw.pop("version")
    return Sent(**raw)


def _save(project: Project, slug: str, what: Sent) -> None:
    fsio.write_atomic(_sent_path(project, slug), fsio.dump_json({"version": VERSION, **asdict(what)}))


def push(project: Project, proposal: Proposal, remote: str) -> Sent:
    """Push the branch to a fork. Replace the previously pushed branch only if its commit is unchanged.

    :param remote: URL of the fork, or the name of a remote of the project's repository.
    :raises UserError: if the pull request has problems, or if its base comes from an archive.
    :raises SourceError: with the message of git or the remote.
    """
    if proposal.problems:
        raise UserError(
            "not ready to be sent: " + "; ".join(proposal.problems),
            hint=f"{folder_of(project, proposal.slug)}/dossier.md lists what to fix",
        )
    if proposal.source != "git":
        raise UserError(
            f"the branch starts at an import of {proposal.onto}'s archive, a commit that exists on no git host",
            hint="run `patchq pr` again when the git host answers, or apply the mails with `git am --keep-non-patch`",
        )
    before = sent(project, proposal.slug)
    to = person.find_remote(project.layout.root, remote)
    expected = None
    if (before.remote, before.branch) == (to.url, proposal.branch):
        expected = before.commit
    person.push(project.store, project.layout.root, to, proposal.tip, proposal.branch, expected=expected)
    found = Sent(remote=to.url, branch=proposal.branch, commit=proposal.tip, url=before.url)
    _save(project, proposal.slug, found)
    return found


def ready_to_open(project: Project, proposal: Proposal) -> list[str]:
    """Return the ``gh`` command that opens a pull request.

    :raises UserError: if the owner is incomplete, the branch isn't pushed, the repository is
        unknown, or the pull request is already open.
    """
    folder = folder_of(project, proposal.slug)
    _answered(proposal.owner, folder)
    pushed = sent(project, proposal.slug)
    if pushed.commit != proposal.tip:
        raise UserError("the branch is not pushed yet", hint="push the branch to your fork with --push")
    if pushed.url:
        raise UserError(
            f"the pull request is already open: {pushed.url}",
            hint="`patchq pr --status` shows the pull request's state",
        )
    if not proposal.repository:
        raise UserError(
            f"{proposal.url!r} is not the URL of a git host",
            hint="open the pull request by hand, with title.txt and body.md",
        )
    fork = re.search(r"[:/]([^/:]+)/[^/:]+?(?:\.git)?/?$", pushed.remote)
    if fork:
        head = f"{fork[1]}:{pushed.branch}"
    else:
        head = pushed.branch
    return [
        "gh",
        "pr",
        "create",
        "--repo",
        proposal.repository,
        "--head",
        head,
        "--title",
        proposal.title,
        "--body-file",
        str(folder / "body.md"),
    ]


def open_pull_request(project: Project, proposal: Proposal, command: list[str]) -> SubmitState:
    """Open a pull request with ``gh``, and set the status of its patches to ``Submitted``.

    :raises SourceError: if ``gh`` is not installed or fails.
    """
    by_hand = f"`patchq pr {sh(f'{proposal.upstream}/{proposal.members[0].patch}')} --status --url` with its URL"
    url = _URL.search(_gh(command, by_hand))
    if not url:
        raise SourceError("gh printed no URL", hint=f"record the pull request with {by_hand}")
    before = sent(project, proposal.slug)
    _save(project, proposal.slug, Sent(remote=before.remote, branch=before.branch, commit=before.commit, url=url[0]))
    names = tuple(m.patch for m in proposal.members if not m.absent)
    return record(project, proposal.upstream, names, url[0], "OPEN", "")


def open_issue(project: Project, report: Report) -> str:
    """Open an issue with ``gh``, and return its URL.

    :raises UserError: if the owner is incomplete.
    :raises SourceError: if ``gh`` is not installed or fails.
    """
    folder = report_folder(project, report.patch)
    _answered(report.owner, folder)
    argv = [
        "gh",
        "issue",
        "create",
        "--repo",
        repository_of(report.url),
        "--title",
        title(report),
        "--body-file",
        str(folder / "body.md"),
    ]
    url = _URL.search(_gh(argv))
    if url:
        return url[0]
    return ""


def _answered(owner: Owner, folder: Path) -> None:
    if not owner.complete:
        raise UserError(
            "no responsible owner: name, email or statement is empty",
            hint=f"fill in {folder}/owner.toml, and run the command again",
        )


def refresh(project: Project, upstream: str, names: tuple[str, ...], url: str) -> SubmitState:
    """Fetch the state of a pull request with ``gh``, and record it in the patches.

    :raises SourceError: if ``gh`` is not installed, fails or prints unexpected output.
    """
    message = _gh(["gh", "pr", "view", url, "--json", "state,url,mergeCommit"])
    try:
        raw = json.loads(message)
        state, merge = str(raw["state"]), str((raw.get("mergeCommit") or {}).get("oid", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"gh's output can't be read: {error}", hint=f"`gh pr view {sh(url)}`") from None
    return record(project, upstream, names, url, state, merge)


def record(project: Project, upstream: str, names: tuple[str, ...], url: str, state: str, merge: str) -> SubmitState:
    """Set the ``Upstream-Status:`` trailer of patches in each stack that contains them.

    :param state: ``OPEN``, ``MERGED`` or ``CLOSED``.
    :param merge: merge commit; empty if there is none.
    :raises UserError: if ``url`` isn't a URL.
    :raises SourceError: if ``gh`` reported an unknown state, or a merge commit that isn't a commit id.
    """
    if not _URL.fullmatch(url):
        raise UserError(f"{url!r} is not a URL", hint="a URL starts with https://")
    if merge and not re.fullmatch(r"[0-9a-f]{7,64}", merge):
        raise SourceError(
            f"gh reports {merge!r} as the merge commit of {url}, which is not a commit id",
            hint=f"`gh pr view {sh(url)}`",
        )
    words = {"OPEN": f"Submitted [{url}]", "MERGED": f"Accepted [{merge or url}]", "CLOSED": f"Denied [{url}]"}
    if state not in words:
        raise SourceError(f"gh reports the unknown state {state!r}", hint=f"`gh pr view {sh(url)}`")
    refs = set_upstream_status(project, upstream, names, words[state])
    return SubmitState(patches=tuple(f"{upstream}/{n}" for n in names), url=url, status=words[state], refs=tuple(refs))


def submitted(project: Project) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the patches with the status ``Submitted``, by upstream and URL."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for upstream in project.lock.upstreams.values():
        for pin in upstream.pins.values():
            for name, header in load_stack(project.layout, pin).headers():
                word, _, rest = header.value("Upstream-Status").partition(" ")
                url = _URL.search(rest)
                if word == "Submitted" and url:
                    found.setdefault((upstream.name, url[0]), {})[name] = None
    return {key: tuple(names) for key, names in found.items()}


def _gh(command: list[str], by_hand: str = "") -> str:
    """Run ``gh`` and return its output.

    :param by_hand: command for the hint. The command records a pull request that the user has opened without ``gh``.
    """
    try:
        # Not in the project: gh runs git, which could run commands from its configuration.
        return runner.run(command, cwd=Path("/")).stdout.decode("utf-8", "replace")
    except runner.CommandError as error:
        if error.code == 127:
            hint = "install gh, from https://cli.github.com"
            if by_hand:
                hint = f"open the pull request by hand, then record it with {by_hand}"
            raise SourceError("the command gh is not installed", hint=hint) from None
        raise SourceError(f"gh: {error.output}", hint="`gh auth status`") from None
