from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from patchq.cli.common import as_dicts, emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted, sh

if TYPE_CHECKING:
    from patchq.build.build import BuildResult
    from patchq.build.dist import Built
    from patchq.build.job import Unpatched
    from patchq.project.project import Project
    from patchq.thin.build import ThinWheel


@click.command("build")
@click.argument("names", nargs=-1)
@click.option("--profile", type=click.Choice(["overlay", "source", "empty"]), help="[default: the lock's]")
@click.option(
    "--platform",
    default="",
    metavar="NAMES",
    help="Platforms to build for, such as aarch64,x86_64.  [default: this machine's]",
)
@click.option(
    "--wheel",
    "wheel_tag",
    default="",
    metavar="TEXT",
    help="Word in the file name of the release wheel to use.",
)
@click.option(
    "--kernels",
    "arch",
    default="",
    metavar="ARCH",
    help="Compile the upstream's kernels ahead for this architecture, such as sm_121f.",
)
@click.option(
    "--only", multiple=True, metavar="TEXT", help="With --kernels: word in the names of the modules to compile."
)
@click.option(
    "--jobs", type=click.IntRange(1), help="With --kernels: number of compilers.  [default: the number of cores]"
)
@click.option(
    "--memory",
    type=click.FloatRange(0.5),
    metavar="GIB",
    help="With --kernels: memory for all compilers.  [default: free memory]",
)
@click.option(
    "--thin",
    is_flag=True,
    help="Build small wheels with only the patched files, to install next to the unchanged release.",
)
@click.option("--no-isolation", is_flag=True, help="Build with the packages that are installed in this environment.")
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...],
    profile: str | None,
    platform: str,
    wheel_tag: str,
    arch: str,
    only: tuple[str, ...],
    jobs: int | None,
    memory: float | None,
    thin: bool,
    no_isolation: bool,
    set_name: str,
    offline: bool,
    as_json: bool,
) -> None:
    """Build wheels of the applied stacks into dist/SET.

    With --kernels, builds a wheel for one architecture. It contains the kernels that the upstream would otherwise
    compile at first use. Compiled kernels are reused.

    With --thin: builds into dist/SET/thin. A thin wheel is installed next to the release, and contains only the patched
    files; Python then imports these files instead of the release's files. `python WHEEL/_patchq_thin_PACKAGE` writes
    the patched files over the release instead.

    An upstream without patches is not built, because its own release has the same content.
    """
    from patchq.build import platforms
    from patchq.build.build import build
    from patchq.errors import UserError

    if platform and wheel_tag:
        raise UserError("--platform and --wheel both choose the release wheel", hint="use only one of these options")
    project = open_project(as_json)
    if arch:
        if len(names) != 1 or profile or wheel_tag:
            raise UserError(
                "--kernels takes one upstream, and no profile", hint=f"patchq build flashinfer --kernels {arch}"
            )
        _kernels(
            project,
            names[0],
            arch,
            platforms.parse(platform),
            as_json,
            set_name=set_name,
            jobs=jobs or 0,
            gib=memory or 0.0,
            only=only,
            isolation=not no_isolation,
            offline=offline,
        )
        return
    if only or jobs or memory:
        raise UserError("--only, --jobs and --memory need --kernels", hint="patchq build flashinfer --kernels sm_121f")
    if thin:
        if profile:
            raise UserError("--thin and --profile exclude each other", hint="--thin uses the profile in the lock")
        _thin(
            project,
            names,
            as_json,
            set_name=set_name,
            wheel_tag=wheel_tag,
            isolation=not no_isolation,
            offline=offline,
            platforms=platforms.parse(platform),
        )
        return
    done = build(
        project,
        names,
        set_name=set_name,
        profile=profile or "",
        wheel_tag=wheel_tag,
        isolation=not no_isolation,
        offline=offline,
        platforms=platforms.parse(platform),
    )
    if as_json:
        emit("build", _body(done))
    else:
        _show(project, done, set_name)


def _body(done: BuildResult) -> dict[str, object]:
    """Return the result as JSON data."""
    wheels = []
    for built in done.wheels:
        wheels.append(
            {
                "upstream": built.upstream,
                "distribution": built.distribution,
                "version": built.version,
                "profile": built.profile,
                "path": str(built.path),
                "sha256": built.sha256,
                "stack_id": built.stack_id,
                "fresh": built.fresh,
                "notes": built.notes,
                "platform": built.platform,
            }
        )
    return {"wheels": wheels, "unpatched": as_dicts(done.unpatched)}


def _show(project: Project, done: BuildResult, set_name: str) -> None:
    """Print the wheels, and the commands that install and verify them."""
    from patchq.build import platforms

    folder = f"dist/{project.choose_set(set_name)}"
    for built in done.wheels:
        echo(f"{built.upstream}: {'built' if built.fresh else 'up to date:'} {folder}/{built.path.name}")
        for note in built.notes:
            echo(f"    {note}")
    for unpatched in done.unpatched:
        echo(f"{unpatched.upstream}: no applied patch changes it, so nothing is built; {_install_release(unpatched)}")
    if done.wheels:
        echo(_install(done.wheels, folder))
        if {built.platform for built in done.wheels} <= {platforms.ANY, platforms.here()}:
            echo(f"verify: patchq verify-installed --python python{project.set_option(set_name)}")


def _install_release(item: Unpatched) -> str:
    if item.version:
        return f"install upstream's own release: python -m pip install {item.distribution}=={item.version}"
    return f"install upstream's own {item.distribution}"


def _install(built: Sequence[Built], folder: str) -> str:
    """Return a line with the command that installs the wheels. For other platforms, the line names the platform."""
    from patchq.build import platforms

    if any(b.profile == "empty" for b in built):
        made = " ".join(sh(f"{folder}/{b.path.name}") for b in built)
        return f"install: python -m pip install --no-deps {made}"
    where = sorted({b.platform for b in built} - {platforms.ANY})
    line = f"python -m pip install --no-deps -r {sh(folder)}/requirements.txt"
    if not where or where == [platforms.here()]:
        return f"install: {line}"
    return f"to install, copy {folder} to an {' or '.join(where)} machine and run: {line}"


def _thin(project: Project, names: Sequence[str], as_json: bool, **options: Any) -> None:
    """Build thin wheels, and print the results."""
    from patchq.build import platforms
    from patchq.thin.build import build_thin

    made, unpatched = build_thin(project, names, **options)
    if as_json:
        emit(
            "build",
            {
                "wheels": [
                    {
                        "upstream": one.upstream,
                        "distribution": one.distribution,
                        "version": one.version,
                        "profile": "thin",
                        "path": str(one.path),
                        "sha256": one.sha256,
                        "stack_id": one.stack_id,
                        "fresh": True,
                        "notes": (),
                        "platform": platforms.of_wheel(one.path.name),
                        "package": one.package,
                        "release": one.release,
                        "patches": one.patches,
                        "left_out": one.left_out,
                        "files": one.files,
                        "size": one.size,
                    }
                    for one in made
                ],
                "unpatched": as_dicts(unpatched),
            },
        )
        return
    for one in made:
        _show_thin(one)
    if made:
        folder = sh(f"dist/{made[0].path.parent.parent.name}/thin")
        echo(f"install, next to the releases: python -m pip install --no-deps -r {folder}/requirements.txt")
        for one in made:
            echo(f"or write over an installed release: python {folder}/{sh(one.path.name)}/{one.package}")


def _show_thin(one: ThinWheel) -> None:
    count = f"{len(one.patches)} of {len(one.patches) + len(one.left_out)} patches"
    echo(
        f"{one.upstream}: {one.path.name}: {count}, {counted(one.files, 'file')}, {one.size} bytes; needs {one.release}"
    )
    for name in one.left_out:
        echo(f"    left out, as it must be compiled: {name}")


def _kernels(project: Project, upstream: str, arch: str, names: Sequence[str], as_json: bool, **options: Any) -> None:
    """Build kernels for each platform, and print the results."""
    from patchq.kernels.ahead import build_kernels

    done = [build_kernels(project, upstream, arch, platform=name, **options) for name in names or ("",)]
    if as_json:
        emit(
            "build",
            {
                "wheels": [
                    {
                        "upstream": d.built.upstream,
                        "distribution": d.built.distribution,
                        "version": d.built.version,
                        "profile": d.built.profile,
                        "path": str(d.built.path),
                        "sha256": d.built.sha256,
                        "stack_id": d.built.stack_id,
                        "fresh": d.built.fresh,
                        "notes": (),
                        "platform": d.built.platform,
                        "modules": d.modules,
                        "compiled": d.compiled,
                        "found": d.found,
                        "seconds": round(d.seconds, 1),
                        "largest_process_gib": round(d.largest, 2),
                    }
                    for d in done
                ],
                "unpatched": [],
            },
        )
        return
    for d in done:
        folder = f"dist/{d.built.path.parent.name}"
        took = f"{d.compiled} units compiled, {d.found} found, {d.seconds:.0f} s, at most {d.largest:.1f} GiB a process"
        echo(f"{upstream}: {counted(d.modules, 'module')}, {took}")
        size = d.built.path.stat().st_size
        echo(f"{'built' if d.built.fresh else 'up to date:'} {folder}/{d.built.path.name}, {size} bytes")
        tail = f"python -m pip install --no-deps -r {sh(folder)}/requirements-{arch.replace('_', '')}.txt"
        echo(f"to install, copy {folder} to an {d.built.platform} machine and run: {tail}")
