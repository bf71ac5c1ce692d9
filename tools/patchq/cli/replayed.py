"""Text for the outcomes of the steps in replayed scripts and Dockerfiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from patchq.names import sh
from patchq.replay.outcomes import Account, Reason, StepStatus, short

_SENTENCES = {
    Reason.FAILED: "it failed with exit code {code}: {message}",
    Reason.TOO_LONG: "it was stopped at the time limit of a step, {words}",
    Reason.CHANGES_NOTHING: "it changes nothing in the package",
    Reason.PARTLY_NOTHING: "this part of the step changes nothing: {words}",
    Reason.NETWORK: "it needs the network, which a replay doesn't have: {words}",
    Reason.NO_PROGRAM: "{words} is not installed on this machine",
    Reason.OTHER_VERSION: "{words} is not the pinned version",
    Reason.REINSTALLS: "{words} installs the package again, without the edits before it",
    Reason.UNINSTALLS: "it uninstalls {words}",
    Reason.DEPENDENCIES: "pip may install another version of the package for {words}",
    Reason.UNKNOWN_INSTALL: "{words} may contain the package",
    Reason.MISSING_SOURCE: "the build context has no {words}",
    Reason.OTHER_IMAGE: "it copies files of {words}, which isn't a stage of this Dockerfile",
    Reason.OTHER_STAGE: "its stage is not part of the last stage",
    Reason.UNSET_VARIABLE: "the variable {words} has no value here",
    Reason.AT_START: "it runs when the container starts, not when the image is built",
    Reason.NOT_OF_SOURCE: "it changes files of the wheel that are missing or different in the source: {paths}",
    Reason.NO_WHEEL: "the release's wheel is not available here, so changes of compiled files can't be detected",
    Reason.NEXT_TO_IT: "it changes files that don't belong to the package: {paths}",
    Reason.SHADOWS: "it makes Python import another copy of the package: {paths}",
    Reason.UNKNOWN: "patchq does not support the instruction {words}",
}
_NEW = "make the edit in the worktree and run `patchq new {upstream} my-edit`"
_COMPARE = "`patchq import {upstream} --image` with the built image compares its files"
_HINTS = {
    Reason.FAILED: f"{_NEW}, or {_COMPARE}",
    Reason.TOO_LONG: f"{_NEW}, or {_COMPARE}",
    Reason.CHANGES_NOTHING: "remove the step, or correct the text that it searches for",
    Reason.PARTLY_NOTHING: "remove this part, or correct the text that it searches for",
    Reason.NETWORK: f"download the file into the build context, or {_COMPARE}",
    Reason.NO_PROGRAM: f"{_NEW}, or {_COMPARE}",
    Reason.OTHER_VERSION: "pin the installed version: `patchq pin {upstream} --archive {words} --ref {version}`",
    Reason.REINSTALLS: f"move the step before the edits, or {_COMPARE}",
    Reason.UNINSTALLS: f"move the step before the edits, or {_COMPARE}",
    Reason.DEPENDENCIES: "add `--no-deps`, or check the image with `patchq verify-image`",
    Reason.UNKNOWN_INSTALL: _COMPARE,
    Reason.MISSING_SOURCE: "name the folder of the build context with --context",
    Reason.OTHER_IMAGE: _COMPARE,
    Reason.UNSET_VARIABLE: "give the variable a value with `--build-arg {words}=`",
    Reason.AT_START: _COMPARE,
    Reason.NOT_OF_SOURCE: "change the code that generates them",
    Reason.NO_WHEEL: f"`--most-download 2G` allows a larger download, or {_COMPARE}",
    Reason.UNKNOWN: _COMPARE,
}


def sentence(account: Account) -> str:
    """Return the reason why a step was not turned into a patch."""
    if account.reason is None:
        return ""
    # `set -x` prints each command after a plus sign.
    printed = [line for line in account.message.strip().splitlines() if not re.match(r"\++ ", line)]
    message = printed[-1] if printed else ""
    text = _SENTENCES[account.reason].format(
        code=account.code, message=message or "no message", words=", ".join(account.words), paths=_shown(account.paths)
    )
    if message and account.reason is Reason.CHANGES_NOTHING:
        return f"{text}: {message}"
    return text


def hint(account: Account, upstream: str) -> str:
    """Return the command that helps with a step that was not turned into a patch; empty if there is none."""
    text = ""
    if account.reason and account.status is not StepStatus.UNRELATED:
        text = _HINTS.get(account.reason, "")
    version = sh(account.words[-1].rpartition("==")[2]) if account.words else ""
    return text.format(upstream=upstream, words=", ".join(map(sh, account.words)), version=version)


def lines(accounts: Sequence[Account], upstream: str, *statuses: StepStatus) -> Iterator[str]:
    """Yield a line for each step with one of these statuses, followed by a line with its hint."""
    for account in accounts:
        if account.status not in statuses or account.reason is None:
            continue
        yield f"{account.where}: {account.status.value}: `{short(account.text)}`: {sentence(account)}"
        if typed := hint(account, upstream):
            yield f"    {typed}"


def as_answer(account: Account, upstream: str) -> dict[str, object]:
    """Return the outcome of a step as JSON data."""
    return {
        "where": account.where,
        "text": account.text,
        "status": account.status.value,
        "reason": account.reason.value if account.reason else "",
        "paths": list(account.paths),
        "words": list(account.words),
        "message": sentence(account),
        "hint": hint(account, upstream),
    }


def _shown(paths: Sequence[str]) -> str:
    more = ""
    if len(paths) > 5:
        more = f" and {len(paths) - 5} more"
    return ", ".join(paths[:5]) + more
