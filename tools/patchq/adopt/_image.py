"""Import from a container image. The differences between the image's package and the release's wheel become a patch."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from patchq.adopt._replayed import convert
from patchq.adopt._wheels import package_of, release_wheel
from patchq.adopt.found import FoundPatch, ReplayOptions
from patchq.build.contents import WheelInfo
from patchq.build.reference import wheels_in
from patchq.environment.image import Image, read_image
from patchq.environment.inspect_image import find_installed
from patchq.environment.installed import InstalledEnvironment, WheelComparison, compare_with_wheel
from patchq.errors import UserError
from patchq.git.objects import blob_id
from patchq.git.repository import Git
from patchq.names import TreeId, sh, show_path
from patchq.project.project import Project
from patchq.replay.outcomes import Account, Reason, StepStatus
from patchq.replay.package import Package, SitePackages, index_line, with_lines
from patchq.stacks.edit import Loaded
from patchq.stacks.export import slug


def from_image(
    project: Project, loaded: Loaded, path: Path, options: ReplayOptions, *, platform: str = ""
) -> list[FoundPatch]:
    """Return the edits of a package in a container image as one patch.

    The import fails if it finds changed files that the source tree doesn't contain, such as compiled files.

    :raises UserError: if the image can't be read, if it doesn't contain the package or contains another version, or if
        the release has no wheel to compare with.
    """
    pin = loaded.stack.pin
    build = project.lock.upstreams[pin.upstream].build
    if build:
        distribution = build.distribution
    else:
        distribution = pin.upstream
    image = read_image(path, platform)
    environment = _environment(image, distribution)
    endings = tuple(f"-{tag}.whl" for tag in _tags(environment, distribution))

    def chosen(names: Sequence[str]) -> str:
        fitting = []
        for name in names:
            if name.endswith(endings):
                fitting.append(name)
        return sorted(fitting or names)[0]

    info = release_wheel(project, pin, offline=options.offline, most=options.most_download, chosen=chosen)
    if info is None:
        raise UserError(
            f"there is no wheel of {pin.upstream} {pin.ref} to compare with",
            hint=f"record the release's wheels with `patchq pin {pin.upstream} --archive PROJECT==VERSION --ref "
            f"{sh(pin.ref)}`; if the wheel is too large to download, raise --most-download SIZE",
        )
    _check_version(environment, distribution, info, pin.upstream)
    references, _ = wheels_in(info.path.parent)
    reference = next(one for one in references if one.name.endswith(info.path.name))
    package = package_of(project, loaded, info)
    if build:
        name = build.package
    else:
        name = sorted(package.tops)[0]
    compared = compare_with_wheel(environment, distribution, name, reference)
    edited = compared.changed | compared.added
    if edited:
        wanted = [posixpath.join(compared.root, name) for name in edited]
        image = read_image(path, platform, keep=wanted)
    base = project.store.tree_of([loaded.state.base])[0]
    tree, left = _adopt(project.store, base, package, image, compared)
    where = str(path)
    found = []
    if tree != base:
        notes = (
            f"{len(compared.changed)} changed, {len(compared.added)} added and {len(compared.missing)} removed files"
        )
        found.append(
            FoundPatch(
                name=f"{slug(distribution)}-as-in-image",
                where=where,
                author=None,
                message=f"Edit {distribution} as in {show_path(os.fsencode(path.name))}\n",
                trees=(base, tree),
                origin=f"{distribution} {info.version} in {path.name}",
                notes=(f"{where}: {notes}, compared with {info.path.name}",),
            )
        )
    if left:
        account = Account(
            where=where, text=path.name, status=StepStatus.REFUSED, reason=Reason.NOT_OF_SOURCE, paths=tuple(left)
        )
        found += convert(project, [account])
    if not found:
        raise UserError(
            f"{distribution} in {path.name} contains exactly the files of the release",
            hint="give the image whose files were edited",
        )
    return found


def _environment(image: Image, distribution: str) -> InstalledEnvironment:
    found = find_installed(image, distribution)
    if not found:
        raise UserError(f"{image.name} has no {distribution}", hint="give the image whose files were edited")
    if len(found) > 1:
        roots: list[str] = []
        for environment in found:
            roots += [one.root for one in environment.named(distribution)]
        places = ", ".join(sorted(roots))
        raise UserError(
            f"{image.name} has {distribution} in several places: {places}",
            hint="copy one of these folders out of the image, and import it with --from-site-packages DIR",
        )
    return found[0]


def _tags(environment: InstalledEnvironment, distribution: str) -> list[str]:
    """Return the wheel tags in the metadata of an installed distribution."""
    tags = []
    for one in environment.named(distribution):
        text = environment.files.text(f"{one.info}/WHEEL")
        tags += re.findall(r"^Tag: (\S+)$", text, re.MULTILINE)
    return tags


def _check_version(environment: InstalledEnvironment, distribution: str, info: WheelInfo, upstream: str) -> None:
    versions = sorted({one.version for one in environment.named(distribution)})
    if versions != [info.version]:
        shown = show_path(", ".join(versions).encode("utf-8", "replace"))
        raise UserError(
            f"the image has {distribution} {shown}, and the pinned release is {info.version}",
            hint=f"`patchq pin {upstream} --archive {sh(distribution)}==VERSION --ref REF`",
        )


def _adopt(
    store: Git, base: TreeId, package: Package, image: Image, compared: WheelComparison
) -> tuple[TreeId, list[str]]:
    """Return the tree with the image's edits, and the edited files that the source tree doesn't contain."""
    generated = SitePackages(store, package, base, Path(os.devnull)).generated
    known = store.list_tree(base)
    lines = []
    left = [*compared.unreadable]
    for name in sorted(compared.changed | compared.added | compared.missing):
        path = os.fsencode(package.tree_path(name))
        if name in compared.unreadable:
            continue
        if name in generated or not package.owns(name):
            left.append(name)
        elif name in compared.missing:
            lines.append(index_line(b"0", "0" * 40, os.fsdecode(path)))
        else:
            mode, data = b"100644", b""
            if name in compared.links:
                mode, data = b"120000", os.fsencode(compared.links[name])
            else:
                data = image.files.read(posixpath.join(compared.root, name))
                old = known.get(path)
                if old and old.mode != b"120000":
                    mode = old.mode
            store.run("hash-object", "-w", "--stdin", data=data)
            lines.append(index_line(mode, blob_id(data), os.fsdecode(path)))
    return with_lines(store, base, lines), sorted(map(show_path, map(os.fsencode, left)))
