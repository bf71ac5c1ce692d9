"""Words for the outcomes of replayed scripts and Dockerfiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchq.names import sh
from patchq.replay.outcomes import Account, Fate, Reason, short


def sentence(account: Account) -> str:
    """Return the reason why a step isn't taken."""
    names, paths = ", ".join(account.words), _shown(account.paths)
    said = f": {account.said.strip()}" if account.said.strip() else ""
    match account.reason:
        case Reason.FAILED:
            return f"it ended with {account.code}{said or ': no message'}"
        case Reason.CHANGES_NOTHING:
            return f"it changes nothing in the package{said}"
        case Reason.NETWORK:
            return f"it needs the network, which a replay doesn't have: {names}"
        case Reason.NO_PROGRAM:
            return f"this machine doesn't have {names}"
        case Reason.OTHER_VERSION:
            return f"{names} is not the pinned version"
        case Reason.REINSTALLS:
            return f"{names} installs the package again, without the edits before it"
        case Reason.UNINSTALLS:
            return f"it uninstalls {names}"
        case Reason.DEPENDENCIES:
            return f"pip may install another version of the package for {names}"
        case Reason.UNKNOWN_INSTALL:
            return f"{names} may contain the package"
        case Reason.MISSING_SOURCE:
            return f"the build context has no {names}"
        case Reason.OTHER_IMAGE:
            return f"it copies files of {names}, which isn't a stage of this Dockerfile"
        case Reason.OTHER_STAGE:
            return "its stage is not part of the last stage"
        case Reason.UNSET_VARIABLE:
            return f"the variable {names} has no value here"
        case Reason.AT_START:
            return "it runs when the container starts, not when the image is built"
        case Reason.NOT_OF_SOURCE:
            return f"it changes files that the wheel has and the source doesn't have in this form: {paths}"
        case Reason.NEXT_TO_IT:
            return f"it changes files that don't belong to the package: {paths}"
        case Reason.SHADOWS:
            return f"it puts another copy of the package first: {paths}"
        case Reason.UNKNOWN:
            return f"{names} is not an instruction that patchq knows"
    return ""


def hint(account: Account, upstream: str) -> str:
    """Return what to type for a step that isn't taken; empty if there is nothing to do."""
    new = f"make the edit in the worktree and run `patchq new {upstream} NAME`"
    match account.reason:
        case Reason.FAILED | Reason.NO_PROGRAM:
            return f"{new}, or `patchq import {upstream} --image IMAGE` with the built image"
        case Reason.CHANGES_NOTHING:
            return "remove it, or correct the text that it looks for"
        case Reason.NETWORK:
            return f"download the file into the build context, or `patchq import {upstream} --image IMAGE`"
        case Reason.OTHER_VERSION:
            version = account.words[0].rpartition("==")[2] if account.words else "VERSION"
            return f"`patchq pin {upstream} --archive PROJECT=={version}`"
        case Reason.REINSTALLS | Reason.UNINSTALLS:
            return f"move it before the edits, or `patchq import {upstream} --image IMAGE` with the built image"
        case Reason.DEPENDENCIES:
            return "add `--no-deps`, or check the image with `patchq verify-image`"
        case Reason.UNKNOWN_INSTALL | Reason.OTHER_IMAGE | Reason.AT_START | Reason.UNKNOWN:
            return f"`patchq import {upstream} --image IMAGE` compares the built image"
        case Reason.MISSING_SOURCE:
            return "`--context DIR` names the build context"
        case Reason.UNSET_VARIABLE:
            return f"`--build-arg {sh(account.words[0])}=VALUE`"
        case Reason.NOT_OF_SOURCE:
            return "change the code that generates them"
    return ""


def lines(accounts: Sequence[Account], upstream: str, *fates: Fate) -> Iterator[str]:
    """Yield a line for each outcome with one of these fates, and for what to type."""
    for account in accounts:
        if account.fate not in fates or account.reason is None:
            continue
        yield f"{account.where}: {account.fate.value}: `{short(account.text)}`: {sentence(account)}"
        if typed := hint(account, upstream):
            yield f"    {typed}"


def as_answer(account: Account, upstream: str) -> dict[str, object]:
    """Return an outcome for JSON."""
    return {
        "where": account.where,
        "text": account.text,
        "fate": account.fate.value,
        "reason": account.reason.value if account.reason else "",
        "paths": list(account.paths),
        "words": list(account.words),
        "message": sentence(account),
        "hint": hint(account, upstream),
    }


def _shown(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more
