"""File system that replaces an image's file system in a replay.

It contains the package at the package's path in the image, and files that the Dockerfile adds.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import UserError
from patchq.names import CommitId, show_path
from patchq.replay._shims import FOLDER, read_log, write_shims
from patchq.replay.package import SitePackages
from patchq.system.sandbox import BESIDE, ROOT_FOLDERS, Limits, Mount, Ran, Root, python_program, run_isolated

#: Folder in which a step sees the files of another stage.
STAGE = "/.stage"
#: Folder of this machine's ``/usr`` in the sandbox.
_HOST = "/.host"
_PATH = f"{FOLDER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Result of a command that ran in a container.

    :ivar calls: recorded calls of replacement programs, such as ``pip``.
    """

    ran: Ran
    calls: tuple[tuple[str, ...], ...]


class Container:
    """File system made of folders of this machine, in which commands can be run.

    ``image`` is the root folder. Below ``/usr``, commands can read this machine's files, but can't change them.
    Commands can add files there only in the folders of ``over``, which contain links to this machine's files.

    :ivar place: path of the site-packages folder.
    :ivar context: folder of the build context, or None.
    """

    def __init__(self, folder: Path, site: SitePackages, place: str, context: Path | None) -> None:
        self.folder, self.site, self.place, self.context = folder, site, place, context
        self.image, self.over, self.tools = folder / "image", folder / "over", folder / "tools"
        self._opened: set[str] = set()

    def create(self, tip: CommitId) -> None:
        """Write the files of a base image in which the package is installed."""
        self.image.mkdir(parents=True)
        self.over.mkdir()
        for name in (*ROOT_FOLDERS, FOLDER[1:], STAGE[1:], BESIDE[1:], "root", "opt", "home"):
            (self.image / name).mkdir(parents=True, exist_ok=True)
        outside = python_program().rpartition("/bin/")[0].lstrip("/")
        (self.image / outside).mkdir(parents=True, exist_ok=True)
        (self.image / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        for name in ("ld.so.cache", "alternatives"):
            source = Path("/etc", name)
            if source.is_dir():
                shutil.copytree(source, self.image / "etc" / name, symlinks=True)
            elif source.exists():
                shutil.copy2(source, self.image / "etc" / name)
        package = self.site.package
        write_shims(
            self.tools,
            python_program(),
            site=self.place,
            tops=sorted(top.removesuffix(".py") for top in package.tops),
            distribution=package.distribution,
            version=package.version,
        )
        self.make_point("/usr/local/bin")
        self.make_point(self.place)
        self._write_python()
        self.site.fill(tip)

    def _write_python(self) -> None:
        """Create ``bin/python`` next to the library folder that contains the package."""
        prefix, _, rest = self.place.partition("/lib")
        if not rest.startswith(("/python", "64/python")) or not prefix.startswith("/"):
            return
        self.make_point(f"{prefix}/bin")
        programs = self._real(f"{prefix}/bin")
        if not programs.is_dir():
            return  # this machine's /usr/bin
        version = rest.partition("python")[2].partition("/")[0]
        for name in ("python", "python3", f"python{version}", "pip", "pip3"):
            link = programs / name
            link.unlink(missing_ok=True)
            link.symlink_to(f"{FOLDER}/bin/{'pip3' if name.startswith('pip') else 'python3'}")
        if prefix not in ("/usr", "/usr/local"):
            (programs / "activate").write_text(f'export VIRTUAL_ENV={prefix} PATH="{prefix}/bin:$PATH"\n')

    def copy_to(self, folder: Path) -> Container:
        """Copy the container to ``folder``, for a build stage that starts from this container's stage."""
        for name in ("image", "over", "tools", "site"):
            shutil.copytree(self.folder / name, folder / name, symlinks=True)
        new = Container(folder, self.site.copy_to(folder / "site"), self.place, self.context)
        new._opened = set(self._opened)
        return new

    def _real(self, path: str) -> Path:
        """Return the folder of this machine that stores ``path``, a writable folder of the container."""
        for top in self._opened:
            if path == top or path.startswith(top + "/"):
                return self.over / path.lstrip("/")
        return self.image / path.lstrip("/")

    def make_point(self, path: str) -> None:
        """Create a folder in the container, to which commands can write, or on which a folder can be mounted.

        :raises UserError: if a command has replaced one of its parent folders by a link.
        """
        path = posixpath.normpath(path)
        if path.startswith("/usr/"):
            self._open_up(path)
        _make_folder(self.image, path)

    def _open_up(self, path: str) -> None:
        """Make a folder below ``/usr`` writable."""
        if path == self.place and os.path.isdir(path) and not path.startswith("/usr/local/"):
            return  # site-packages is mounted over this machine's
        existing = "/usr/local"
        if not path.startswith("/usr/local/"):
            existing = path
        while not os.path.isdir(existing):
            existing = posixpath.dirname(existing)
        if existing in ("/usr", "/usr/bin", "/usr/lib", "/usr/sbin") and path == existing:
            return
        covered = any(existing == top or existing.startswith(top + "/") for top in self._opened)
        if not covered:
            self._fill(existing)
            for below in [top for top in self._opened if top.startswith(existing + "/")]:
                self._descend(existing, below)
            self._opened.add(existing)
        top = next(top for top in self._opened if existing == top or existing.startswith(top + "/"))
        self._descend(top, path)

    def _descend(self, top: str, path: str) -> None:
        """Replace the links from ``top`` down to ``path`` by folders."""
        at = top
        for part in path[len(top) :].strip("/").split("/"):
            at = f"{at}/{part}".rstrip("/")
            here = self.over / at.lstrip("/")
            if here.is_symlink() and os.readlink(here) == _HOST + at:
                here.unlink()
            if here.is_symlink():
                raise _replaced(path)
            if not os.path.lexists(here) and at != top:
                self._fill(at)

    def _fill(self, path: str) -> None:
        """Create a folder whose entries are links to the entries of the same folder on this machine."""
        here = self.over / path.lstrip("/")
        here.mkdir(parents=True, exist_ok=True)
        _make_folder(self.image, path)
        if not os.path.isdir(path):
            return
        for name in os.listdir(path):
            if not os.path.lexists(here / name):
                (here / name).symlink_to(f"{_HOST}{path}/{name}")

    def run(
        self,
        argv: Sequence[str],
        script: str,
        env: Mapping[str, str],
        *,
        limits: Limits,
        mounts: Iterable[Mount] = (),
        stage: Container | None = None,
    ) -> CommandResult:
        """Run a script.

        :param argv: command to which the script's path is appended.
        :param mounts: additional folders to mount for this command.
        :param stage: container of another build stage, whose files are mounted at :data:`STAGE`.
        """
        (self.tools / "script").write_text(script, encoding="utf-8", errors="surrogateescape")
        (self.tools / "log").write_bytes(b"")
        places = [
            *self._mounts(),
            Mount(source=self.tools, target=FOLDER),
            Mount(source=self.tools / "log", target=f"{FOLDER}/log", writable=True),
            *mounts,
        ]
        if stage:
            # Mount points of the other stage may exist only as its mounts, not in its image.
            places.append(Mount(source=stage.image, target=STAGE))
            for mount in stage._mounts():
                places.append(Mount(source=mount.source, target=STAGE + mount.target))
        path = env.get("PATH", "")
        own = {
            "HOME": "/root",
            "TMPDIR": "/tmp",
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
            "PATH": f"{FOLDER}/bin:{path}" if path else _PATH,
            "PYTHONPATH": ":".join(filter(None, (f"{FOLDER}/lib", env.get("PYTHONPATH", ""), self.place))),
        }
        root = Root(folder=self.image, mounts=tuple(places))
        ran = run_isolated(
            [*argv, f"{FOLDER}/script"], self.folder, context=self.context, env=own, limits=limits, root=root
        )
        return CommandResult(ran=ran, calls=tuple(read_log((self.tools / "log").read_bytes())))

    def _mounts(self) -> list[Mount]:
        found = []
        for path in sorted(self._opened):
            found.append(Mount(source=self.over / path.lstrip("/"), target=path, writable=True))
        found.append(Mount(source=self.site.folder, target=self.place, writable=True))
        return found


def _make_folder(root: Path, path: str) -> None:
    at = root
    for part in path.strip("/").split("/"):
        at = at / part
        if at.is_symlink() or (os.path.lexists(at) and not at.is_dir()):
            raise _replaced(path)
        at.mkdir(exist_ok=True)


def _replaced(path: str) -> UserError:
    shown = show_path(os.fsencode(path))
    return UserError(f"{shown} was a folder, and a command replaced it by a file or link", hint="nothing was adopted")
