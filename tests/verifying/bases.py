"""What environments are copies of: a root file system without the wheels, and the image that `compose` describes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from verifying.project import Built
from verifying.rootfs import HANG, VERSION, Base, Environment, copy_python, make_base, make_system

VENV = "/opt/venv"
SITE = f"{VENV}/lib/python{VERSION}/site-packages"


def add_evidence(environment: Environment, built: Built) -> None:
    """Put there what the Dockerfile copies from outside, and its labels and variables."""
    for name in ("provenance.json", "patchq.cdx.json"):
        environment.write(f"/usr/share/patchq/{name}", (built.dist / name).read_bytes())
    environment.write("/etc/patched-build", "verified\n")
    environment.labels.update(built.labels)
    environment.variables.update({"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", **built.variables})
    environment.command = ["lib", "serve"]


def bare(root: Path, built: Built) -> Environment:
    """Make a system with a Python in /usr/local, and no packages."""
    make_system(root)
    copy_python(root)
    environment = Environment(
        root=root, python="/usr/local/bin/python3", site=f"/usr/local/lib/python{VERSION}/site-packages"
    )
    environment.packages.mkdir(parents=True, exist_ok=True)
    add_evidence(environment, built)
    return environment


def add_venv(environment: Environment, *options: str) -> None:
    """Make a virtual environment, from now on the image's Python."""
    command = [
        str(environment.path(environment.python)),
        "-m",
        "venv",
        "--without-pip",
        *options,
        str(environment.path(VENV)),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG)
    environment.python, environment.site = f"{VENV}/bin/python", SITE


def compile_all(environment: Environment, *options: str) -> None:
    """Compile what is installed, as of the places that a container has."""
    root = str(environment.root)
    command = [sys.executable, "-m", "compileall", "-q", "-s", root, "-p", "/", *options, str(environment.packages)]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG)


def make_bases(folder: Path, built: Built) -> dict[str, Base]:
    """Make the bases."""
    without = make_base(bare(folder / "bare", built), folder / "bare moved")
    served = without.copy(folder / "served")
    add_venv(served)
    served.pip("--no-compile", *built.wheels.values())
    compile_all(served)
    served.base = None
    local = without.copy(folder / "local")
    local.pip("--no-compile", *built.wheels.values())
    local.base = None
    local.variables["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return {
        "bare": without,
        "served": make_base(served, folder / "served moved"),
        "local": make_base(local, folder / "local moved"),
    }
