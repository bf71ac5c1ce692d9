from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("fetch")
@click.argument("names", nargs=-1)
@set_option
@click.option("--all", "every", is_flag=True, help="Fetch every pin of the lock, not only those of a set.")
@click.option("--source", type=click.Choice(["git", "archive"]), help="Fetch only from this source.")
@click.option("--history", is_flag=True, help="Also fetch upstream's history, for `forecast` and `rebase`.")
@offline_option
@json_option
def command(
    names: tuple[str, ...], set_name: str, every: bool, source: str | None, history: bool, offline: bool, as_json: bool
) -> None:
    """Fetch the pins into the store.

    Fetches from git by commit, or from the release archive if the git host can't be reached.
    """
    from patchq.store.pinning import fetch
    from patchq.upstream.history import fetch as fetch_history

    project = open_project(as_json)
    bases = fetch(project, names, set_name=set_name, every=every, source=source or "", offline=offline)
    message = []
    if history:
        for name in dict.fromkeys(b.pin.upstream for b in bases):
            message.append(fetch_history(project, name))
    if as_json:
        emit(
            "fetch",
            {
                "pins": [
                    {"upstream": b.pin.upstream, "ref": b.pin.ref, "source": b.source, "base": b.commit} for b in bases
                ],
                "history": message,
            },
        )
        return
    for b in bases:
        echo(f"{b.pin.upstream:<12} {b.pin.ref:<10} {b.source:<8} {b.commit}")
    for line in message:
        echo(line)
