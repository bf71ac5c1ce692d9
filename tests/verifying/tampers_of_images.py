"""Tampers of an image itself: labels, evidence, and layers whose members are read in more than one way."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

from verifying.images import layer_of, member, resolved, unpack
from verifying.project import Built
from verifying.rootfs import Environment
from verifying.tampering import Change, tamper
from verifying.verbs import FILES, Verb

IMAGE = (Verb.LAYOUT,)
OTHER = b"def answer():\n    return 13\n"
Members = list[tuple[tarfile.TarInfo, bytes]]


def unpacked(environment: Environment) -> str:
    """Return the package's module after the image's layers were unpacked."""
    root = environment.root.with_name("unpacked")
    environment.relocated(root)
    for data in environment.layers:
        unpack(root, data)
    path = resolved(root, f"{environment.site}/lib/core.py")
    return path.read_text() if path.is_file() else f"{path.name}: no file"


def layer(claim: str = "") -> Callable[[Callable[[str], Members]], Change]:
    """Register a tamper that is one more layer; the function gets the module's name in it."""

    def register(members: Callable[[str], Members]) -> Change:
        def change(environment: Environment, built: Built) -> None:
            environment.layers.append(layer_of(members(f"{environment.site.lstrip('/')}/lib/core.py")))

        change.__name__ = f"layer_{members.__name__}"
        return tamper(verbs=IMAGE, shows=unpacked, claim=claim)(change)

    return register


@layer()
def that_replaces(core: str) -> Members:
    return [member(core, OTHER)]


@layer()
def with_the_member_twice(core: str) -> Members:
    return [member(core, b"def answer():\n    # Nobody knows the question.\n    return 42\n"), member(core, OTHER)]


@layer()
def with_a_dot_in_front(core: str) -> Members:
    return [member(f"./{core}", OTHER)]


@layer()
def with_an_absolute_name(core: str) -> Members:
    return [member(f"/{core}", OTHER)]


@layer()
def with_two_slashes_in_front(core: str) -> Members:
    return [member(f"//{core}", OTHER)]


@layer()
def with_slashes_and_dots_inside(core: str) -> Members:
    return [member(core.replace("/lib/core.py", "//./lib/.//core.py"), OTHER)]


@layer()
def with_two_dots_inside(core: str) -> Members:
    return [member(core.replace("/lib/core.py", "/lib/../lib/core.py"), OTHER)]


@layer()
def with_two_dots_in_front(core: str) -> Members:
    return [member(f"../../{core}", OTHER)]


@layer(claim="Docker's reader makes a folder of it, Python's a file: the module is gone")
def with_a_slash_behind(core: str) -> Members:
    return [member(f"{core}/", OTHER)]


@layer()
def with_a_hard_link(core: str) -> Members:
    return [member("opt/more/core.py", OTHER), member(core, type=tarfile.LNKTYPE, linkname="opt/more/core.py")]


@layer()
def with_an_absolute_hard_link(core: str) -> Members:
    return [member("opt/more/core.py", OTHER), member(core, type=tarfile.LNKTYPE, linkname="/opt/more/core.py")]


@layer()
def with_a_symbolic_link(core: str) -> Members:
    return [member("opt/more/core.py", OTHER), member(core, type=tarfile.SYMTYPE, linkname="/opt/more/core.py")]


@layer()
def that_writes_through_a_link(core: str) -> Members:
    site = core.rsplit("/", 2)[0]
    link = member("srv/packages", type=tarfile.SYMTYPE, linkname=f"/{site}")
    return [link, member("srv/packages/lib/core.py", OTHER)]


@layer()
def that_writes_through_a_relative_link(core: str) -> Members:
    site = core.rsplit("/", 2)[0]
    link = member("srv/deep/packages", type=tarfile.SYMTYPE, linkname=f"../../{site}")
    return [link, member("srv/deep/packages/lib/core.py", OTHER)]


@layer()
def with_a_link_in_place_of_the_package(core: str) -> Members:
    folder = core.rsplit("/", 1)[0]
    init = b"from lib.core import answer\n"
    members = [member("opt/more/lib/core.py", OTHER), member("opt/more/lib/__init__.py", init)]
    return [*members, member(folder, type=tarfile.SYMTYPE, linkname="/opt/more/lib")]


@layer()
def with_a_link_in_place_of_site_packages(core: str) -> Members:
    site = core.rsplit("/", 2)[0]
    members = [
        member("opt/more/lib/core.py", OTHER),
        member("opt/more/lib/__init__.py", b"from lib.core import answer\n"),
    ]
    return [*members, member(site, type=tarfile.SYMTYPE, linkname="/opt/more")]


@layer()
def with_a_whiteout(core: str) -> Members:
    return [member(core.replace("core.py", ".wh.core.py"))]


@layer()
def with_an_opaque_whiteout(core: str) -> Members:
    return [member(core.replace("core.py", ".wh..wh..opq")), member(core, OTHER)]


@layer()
def with_a_whiteout_of_the_package(core: str) -> Members:
    folder, package = core.rsplit("/", 2)[:2]
    return [member(f"{folder}/.wh.{package}")]


@layer()
def with_a_whiteout_through_a_link(core: str) -> Members:
    site = core.rsplit("/", 2)[0]
    link = member("srv/packages", type=tarfile.SYMTYPE, linkname=f"/{site}")
    return [link, member("srv/packages/lib/.wh.core.py")]


@layer()
def with_its_name_in_a_pax_header(core: str) -> Members:
    return [member("harmless", OTHER, pax_headers={"path": core})]


@layer()
def with_its_name_as_a_sparse_file(core: str) -> Members:
    headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": core,
        "GNU.sparse.realsize": str(len(OTHER)),
    }  # fmt: skip
    data = f"1\n0\n{len(OTHER)}\n".encode().ljust(512, b"\0") + OTHER
    return [member("GNUSparseFile.0/harmless", data, pax_headers=headers)]


@layer(claim="the module is a device, and no import reads it")
def with_a_device(core: str) -> Members:
    return [member(core, type=tarfile.CHRTYPE, devmajor=1, devminor=3)]


@tamper(verbs=IMAGE, claim="Docker's reader ignores a global path, Python's gives it to each member")
def layer_with_a_global_path(environment: Environment, built: Built) -> None:
    core = f"{environment.site.lstrip('/')}/lib/core.py"
    environment.layers.append(layer_of([member(core, OTHER)], {"path": "harmless"}))


@tamper(verbs=IMAGE, claim="Docker's reader ignores a global size, Python's skips by it what comes next")
def layer_with_a_global_size(environment: Environment, built: Built) -> None:
    core = f"{environment.site.lstrip('/')}/lib/core.py"
    first = member("harmless", b"x" * 10)
    environment.layers.append(layer_of([first, member(core, OTHER)], {"size": "2048"}))


@tamper(verbs=IMAGE, shows=unpacked)
def layer_with_a_long_name(environment: Environment, built: Built) -> None:
    core = f"{environment.site.lstrip('/')}/{'./' * 60}lib/core.py"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        info, data = member(core, OTHER)
        tar.addfile(info, io.BytesIO(data))
    environment.layers.append(out.getvalue())


@tamper(verbs=IMAGE, shows=unpacked)
def layer_behind_an_end_of_archive(environment: Environment, built: Built) -> None:
    """The replaced module is in the layer after one whose archive ends early, with bytes behind the end."""
    core = f"{environment.site.lstrip('/')}/lib/core.py"
    environment.layers.append(layer_of([member("harmless", b"x")]) + b"\1" * 512)
    environment.layers.append(layer_of([member(core, OTHER)]))


# Labels and evidence.


@tamper(verbs=IMAGE, claim="the label names another stack than is in the image")
def label_of_another_stack(environment: Environment, built: Built) -> None:
    environment.labels["patchq.stack"] = "0" * 64


@tamper(verbs=IMAGE, claim="the label names another lock than the project's")
def label_of_another_lock(environment: Environment, built: Built) -> None:
    environment.labels["patchq.lock"] = "0" * 64


@tamper(verbs=IMAGE, claim="the label names another set")
def label_of_another_set(environment: Environment, built: Built) -> None:
    environment.labels["patchq.set"] = "stock"


@tamper(verbs=IMAGE, claim="nothing outside of the files says which stack it is")
def labels_missing(environment: Environment, built: Built) -> None:
    environment.labels.clear()


@tamper(verbs=FILES, claim="the attestation isn't the one of these wheels")
def attestation_changed(environment: Environment, built: Built) -> None:
    environment.replace("/usr/share/patchq/provenance.json", "answer", "security")


@tamper(verbs=FILES, claim="the image has no attestation")
def attestation_removed(environment: Environment, built: Built) -> None:
    environment.path("/usr/share/patchq/provenance.json").unlink()


@tamper(verbs=FILES, claim="the bill of materials isn't the one of these wheels")
def bill_of_materials_changed(environment: Environment, built: Built) -> None:
    environment.replace("/usr/share/patchq/patchq.cdx.json", "answer", "security")


@tamper(verbs=FILES, claim="the image has no bill of materials")
def bill_of_materials_removed(environment: Environment, built: Built) -> None:
    environment.path("/usr/share/patchq/patchq.cdx.json").unlink()
