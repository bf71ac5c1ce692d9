from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("fetch")
@click.argument("names", nargs=-1)
@set_option
@click.option("--all", "every", is_flag=True, help="Every pin of the lock, not just a set's.")
@click.option("--source", type=click.Choice(["git", "archive"]), help="Only from there.")
@click.option("--history", is_flag=True, help="Also upstream's history, which `forecast` and `rebase` judge by.")
@offline_option
@json_option
def command(
    names: tuple[str, ...], set_name: str, every: bool, source: str | None, history: bool, offline: bool, as_json: bool
) -> None:
    """Fetch the pins into the store.

    From git, by commit; from the release archive where the git host can't be reached.
    """
    from patchq.store.pinning import fetch
    from patchq.upstream.history import fetch as fetch_history

    project = open_project(as_json)
    bases = fetch(project, names, set_name=set_name, every=every, source=source or "", offline=offline)
    said = [fetch_history(project, name) for name in dict.fromkeys(b.pin.upstream for b in bases)] if history else []
    if as_json:
        emit(
            "fetch",
            {
                "pins": [
                    {"upstream": b.pin.upstream, "ref": b.pin.ref, "source": b.source, "base": b.commit} for b in bases
                ],
                "history": said,
            },
        )
        return
    for b in bases:
        echo(f"{b.pin.upstream:<12} {b.pin.ref:<10} {b.source:<8} {b.commit}")
    for line in said:
        echo(line)
