"""Compare ways to pack a built wheel: stored, Python's zlib, and the pinned compressor. Prints a table.

python benchmarks/wheel_size.py dist/flashinfer_python-*.whl [UPSTREAM_WHEEL]
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

from patchq.build import zipped


def main() -> None:
    path = Path(sys.argv[1])
    beside = Path(sys.argv[2]).stat().st_size if len(sys.argv) > 2 else 0
    with zipfile.ZipFile(path) as zf:
        files = {n: zf.read(n) for n in zf.namelist()}
    raw = sum(map(len, files.values()))
    print(f"{path.name}: {len(files)} files, {raw / 1e6:.0f} MB; {os.cpu_count()} cores\n")
    print("| how | wall s | CPU s | MB | of upstream's |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        target = Path(folder) / "out.whl"
        for how in ("stored", "libdeflate 6", "libdeflate 9", f"zlib {zlib.ZLIB_RUNTIME_VERSION} 6, one core"):
            start, used = time.perf_counter(), cpu()
            if how.startswith("zlib"):
                with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as zf:
                    for name, data in files.items():
                        zf.writestr(name, data)
            elif how == "stored":
                with zipfile.ZipFile(target, "w") as zf:
                    for name, data in files.items():
                        zf.writestr(name, data)
            else:
                zipped.LEVEL = int(how.split()[1])  # type: ignore[misc]
                zipped.write(target, files)
            size = target.stat().st_size
            share = f"{size / beside:.2f}" if beside else ""
            print(
                f"| {how} | {time.perf_counter() - start:.1f} | {cpu() - used:.1f} | {size / 1e6:.1f} | {share} |",
                flush=True,
            )


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
