"""Shell completion of patches, upstreams, sets and refs. The kind of values depends on the name of the parameter."""

from __future__ import annotations

import functools
from pathlib import Path

import click
from click.shell_completion import CompletionItem

#: Kind of values by parameter name, unless _OTHERWISE has an entry.
_KINDS = {
    "patch": "patches",
    "patches": "patches",
    "amend": "patches",
    "to": "patches",
    "before": "patches",
    "after": "patches",
    "only": "patches",
    "name": "upstreams",
    "names": "upstreams",
    "upstream": "upstreams",
    "set_name": "sets",
    "new_set": "sets",
    "ref": "refs",
    "refs": "refs",
    "onto": "refs",
    "old": "refs",
    "new": "refs",
}
_OTHERWISE = {("new", "name"): "", ("drift", "to"): "refs", ("move", "after"): "patches", ("pr", "name"): ""}


def attach(verb: str, command: click.Command) -> click.Command:
    """Add completions to a command's parameters, and return the command. Call this only for shell completion."""
    for param in command.params:
        kind = _OTHERWISE.get((verb, param.name or ""), _KINDS.get(param.name or "", ""))
        if kind and not isinstance(param.type, (click.Path, click.Choice)):
            param.shell_complete = functools.partial(_complete, kind)  # type: ignore[method-assign]
    return command


def _complete(kind: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    for word in _words(ctx, kind):
        if word.startswith(incomplete):
            found.append(CompletionItem(word))
    return found


def _words(ctx: click.Context, kind: str) -> list[str]:
    """Return the possible values of a parameter; an empty list if the project can't be read."""
    from patchq.errors import PatchqError
    from patchq.project.project import Project

    try:
        project = Project.find(Path(ctx.find_root().params.get("project") or "."))
        lock = project.lock
        if kind == "upstreams":
            return list(lock.upstreams)
        if kind == "sets":
            return list(lock.sets)
        if kind == "refs":
            words: set[str] = set()
            for upstream in lock.upstreams.values():
                words.update(upstream.pins)
            return sorted(words)
        stacks = project.stacks(project.choose_set(str(ctx.params.get("set_name") or "")))
        names = []
        for stack in stacks:
            for name in stack.names:
                names.append(name)
        full = []
        for stack in stacks:
            for name in stack.names:
                full.append(f"{stack.pin.upstream}/{name}")
        return [*(n for n in names if names.count(n) == 1), *full]
    except (PatchqError, OSError):
        return []
