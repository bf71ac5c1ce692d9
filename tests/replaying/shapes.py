"""Dockerfiles that edit an installed package, in the ways in which people write them."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass, field

from replaying.packages import SITE

#: What every Dockerfile begins with.
HEAD = "FROM base\nENV PATH=/opt/venv/bin:$PATH\n"
#: For shapes that install something later.
INSTALL = "RUN apt-get update && pip install widget==1.0\n"
W = f"{SITE}/widget"
_DIFF = "--- a/widget/settings.py\n+++ b/widget/settings.py\n@@ -1,4 +1,4 @@\n-TIMEOUT = 10\n+TIMEOUT = 60\n WORKERS = 4\n \n \n"
_INNER = _DIFF.replace("widget/", "")
_SECOND = (
    "--- a/widget/sub/deep.py\n+++ b/widget/sub/deep.py\n@@ -1,2 +1,2 @@\n-VALUE = 1\n+VALUE = 2\n NAME = 'deep'\n"
)
_NEW_CLIENT = "def fetch(url):\n    return url, 'new'\n"
_FIX_PY = (
    "import os, widget\n\npath = os.path.join(os.path.dirname(widget.__file__), 'settings.py')\n"
    "text = open(path).read()\nassert 'WORKERS = 4' in text\nopen(path, 'w').write(text.replace('WORKERS = 4', 'WORKERS = 8'))\n"
)
_FIX_SH = f"#!/bin/sh -e\nsed -i 's/TIMEOUT = 10/TIMEOUT = 60/' {W}/settings.py\n"


@dataclass(frozen=True)
class Shape:
    """A Dockerfile.

    :ivar text: instructions after :data:`HEAD`; ``whole`` if it has its own beginning.
    :ivar files: build context.
    :ivar by_hand: what instructions do that the judge's reader of Dockerfiles can't read, by the text that they begin
        with.
    """

    text: str
    files: dict[str, str | bytes] = field(default_factory=dict)
    by_hand: dict[str, str] = field(default_factory=dict)
    whole: bool = False

    @property
    def dockerfile(self) -> str:
        return self.text if self.whole else HEAD + self.text

    def lines_by_hand(self) -> dict[int, str]:
        found = {}
        for start, command in self.by_hand.items():
            lines = self.dockerfile.split("\n")
            found[next(n for n, line in enumerate(lines, 1) if line.startswith(start))] = command
        return found


def tar_of(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


SED = "sed -i 's/TIMEOUT = 10/TIMEOUT = 60/'"
SHAPES = {
    # Paths and variables
    "sed, literal path": Shape(f"RUN {SED} {W}/settings.py\n"),
    "sed, ENV": Shape(f"ENV SITE={SITE}\nRUN {SED} $SITE/widget/settings.py\n"),
    "sed, ENV of two words": Shape(f"ENV SITE {SITE}\nRUN {SED} ${{SITE}}/widget/settings.py\n"),
    "sed, ENV of an ENV": Shape(f'ENV A=/opt/venv B="lib"\nENV SITE="$A/$B/{SITE.split("/")[4]}/site-packages"\nRUN {SED} "$SITE/widget/settings.py"\n'),
    "sed, ARG": Shape(f"ARG SECONDS=60\nRUN sed -i \"s/TIMEOUT = 10/TIMEOUT = $SECONDS/\" {W}/settings.py\n"),
    "sed, ARG without a value": Shape(f"ARG SECONDS\nRUN sed -i \"s/TIMEOUT = 10/TIMEOUT = 1${{SECONDS}}/\" {W}/settings.py\n"),
    "ARG before FROM": Shape(
        f"ARG SECONDS=60\nFROM base\nENV PATH=/opt/venv/bin:$PATH\nARG SECONDS=60\nRUN sed -i \"s/TIMEOUT = 10/TIMEOUT = $SECONDS/\" {W}/settings.py\n", whole=True,
    ),
    "WORKDIR": Shape(f"WORKDIR {SITE}\nRUN {SED} widget/settings.py\n"),
    "WORKDIR, nested": Shape(f"WORKDIR {SITE}\nWORKDIR widget/sub\nRUN sed -i 's/VALUE = 1/VALUE = 2/' deep.py && {SED} ../settings.py\n"),
    "cd in one RUN": Shape(f"RUN cd {SITE} && {SED} widget/settings.py; sed -i 's/VALUE = 1/VALUE = 2/' widget/sub/deep.py\n"),
    "continuation lines": Shape(f"RUN set -ex; \\\n    # a comment\n    {SED} \\\n      {W}/settings.py; \\\n    sed -i s/deep/shallow/ {W}/sub/deep.py\n"),
    "SHELL bash": Shape(f'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN for f in {W}/{{settings,client}}.py; do [[ $f == *settings* ]] && {SED} "$f"; done; true\n'),
    "SHELL python": Shape(f'SHELL ["python3", "-c"]\nRUN open("{W}/settings.py", "a").write("X = 1\\\\n")\n'),
    "exec form": Shape(f'RUN ["sed", "-i", "s/TIMEOUT = 10/TIMEOUT = 60/", "{W}/settings.py"]\n'),
    "echo with a backslash": Shape(f"RUN echo 'A = 1\\nB = 2' >> {W}/settings.py\n"),
    # Here-documents
    "RUN heredoc": Shape(f"RUN <<EOF\nset -e\n{SED} {W}/settings.py\necho 'X = 1' >> {W}/client.py\nEOF\n", by_hand={"RUN <<EOF": f"(set -e; {SED} {W}/settings.py; echo 'X = 1' >> {W}/client.py)"}),
    "RUN heredoc, python": Shape(
        f"RUN <<EOF\n#!/usr/bin/env python3\np = '{W}/settings.py'\nt = open(p).read()\nopen(p, 'w').write(t.replace('INFO', 'DEBUG'))\nEOF\n",
        by_hand={"RUN <<EOF": f"sed -i s/INFO/DEBUG/ {W}/settings.py"},
    ),
    "python heredoc": Shape(f"RUN python3 - <<'EOF'\nfrom pathlib import Path\np = Path('{W}/settings.py')\np.write_text(p.read_text() + 'H = 1\\n')\nEOF\n", by_hand={"RUN python3": f"printf 'H = 1\\n' >> {W}/settings.py"}),
    "cat heredoc": Shape(f"RUN cat <<EOF > {W}/added.py && {SED} {W}/settings.py\nADDED = 1\nEOF\n", by_hand={"RUN cat": f"echo 'ADDED = 1' > {W}/added.py; {SED} {W}/settings.py"}),
    "COPY heredoc": Shape(f"COPY <<EOF {W}/client.py\nNEW = 1\nEOF\n", by_hand={"COPY": f"echo 'NEW = 1' > {W}/client.py"}),
    "COPY heredoc, new module": Shape(f"ENV NAME=added\nCOPY <<EOF {W}/$NAME.py\nNAME = '$NAME'\nEOF\n", by_hand={"COPY": f"echo \"NAME = 'added'\" > {W}/added.py"}),
    # COPY and ADD
    "COPY a file": Shape(f"COPY client.py {W}/client.py\n", {"client.py": _NEW_CLIENT}),
    "COPY a file, variable": Shape(f"ENV SITE={SITE}\nCOPY client.py ${{SITE}}/widget/\n", {"client.py": _NEW_CLIENT}),
    "COPY files": Shape(f"COPY client.py more/settings.py {W}/\n", {"client.py": _NEW_CLIENT, "more/settings.py": "TIMEOUT = 1\n"}),
    "COPY a folder over the package": Shape(f"COPY overlay {W}\n", {"overlay/client.py": _NEW_CLIENT, "overlay/sub/more.py": "M = 1\n"}),
    "COPY a folder over site-packages": Shape(f"COPY overlay/ {SITE}/\n", {"overlay/widget/client.py": _NEW_CLIENT, "overlay/widget/data.json": "{}\n"}),
    "COPY a folder, relative": Shape(f"WORKDIR {SITE}\nCOPY overlay .\n", {"overlay/widget/client.py": _NEW_CLIENT}),
    "COPY a pattern": Shape(f"COPY over*/*.py {W}/\n", {"overlay/client.py": _NEW_CLIENT, "overlay/no.txt": "x\n"}),
    "COPY all, ignored": Shape(
        f"COPY . {SITE}/\n", {"widget/client.py": _NEW_CLIENT, "widget/settings.py": "NOT = 1\n", ".dockerignore": "**/settings.py\nDockerfile\n"},
        by_hand={"COPY": f"cp /context/widget/client.py {W}/client.py"},
    ),
    "COPY another package": Shape(f"COPY other.py {SITE}/other.py\nRUN {SED} {W}/settings.py\n", {"other.py": "x = 1\n"}),
    "COPY of a missing file": Shape(f"COPY gone.py {W}/client.py\n", by_hand={"COPY": f"echo gone > {W}/client.py"}),
    "COPY from an image": Shape(f"COPY --from=ghcr.io/x/y /w/client.py {W}/client.py\n", by_hand={"COPY": f"echo theirs > {W}/client.py"}),
    "ADD an archive": Shape(f"ADD fix.tar {SITE}/\n", {"fix.tar": tar_of({"widget/client.py": _NEW_CLIENT})}),
    "ADD a URL": Shape(f"ADD https://example.org/client.py {W}/client.py\n", by_hand={"ADD": f"echo theirs > {W}/client.py"}),
    # Scripts
    "script, copied and run": Shape("COPY fix.sh /opt/fix.sh\nRUN sh /opt/fix.sh\n", {"fix.sh": _FIX_SH}),
    "script, executable": Shape("COPY --chmod=755 fix.sh /usr/local/bin/fix\nRUN fix\n", {"fix.sh": _FIX_SH}, by_hand={"COPY": "true", "RUN fix": f"{SED} {W}/settings.py"}),
    "Python script": Shape("COPY fix.py /tmp/\nRUN python /tmp/fix.py\n", {"fix.py": _FIX_PY}),
    "scripts in a loop": Shape("COPY fixes /fixes\nRUN for s in /fixes/*; do case $s in *.py) python3 $s;; *) sh $s;; esac || exit 1; done\n", {"fixes/1.sh": _FIX_SH, "fixes/2.py": _FIX_PY}),
    "script in WORKDIR": Shape("WORKDIR /build\nCOPY . .\nRUN chmod +x fix.sh && ./fix.sh\n", {"fix.sh": _FIX_SH}),
    "script that fetches": Shape("COPY get.sh /get.sh\nRUN sh /get.sh || true\n", {"get.sh": "curl -fsSL https://x/y.py | python3 -\n"}),
    # Loops and searches
    "for over files": Shape(f"RUN for f in {W}/*.py {W}/sub/*.py; do echo '# edited' >> $f; done\n"),
    "while read": Shape(f"RUN find {W} -name 's*.py' | while read -r f; do {SED} \"$f\"; done\n"),
    "find -exec": Shape(f"RUN find {SITE} -name '*.py' -exec {SED} {{}} +\n"),
    "find -exec, one each": Shape("RUN find /opt/venv -path '*widget/sub*' -name '*.py' -exec sh -c 'echo \"# x\" >> \"$1\"' sh {} \\;\n"),
    "grep and xargs": Shape(f"RUN grep -rlZ TIMEOUT {SITE} | xargs -0 {SED}\n"),
    "if grep": Shape(f"RUN if grep -q 'TIMEOUT = 10' {W}/settings.py; then {SED} {W}/settings.py; else exit 1; fi\n"),
    "test, then edit": Shape(f"RUN test ! -f {W}/nowhere.py && {SED} {W}/settings.py\nRUN [ -f {W}/nowhere.py ] && echo 1 > {W}/client.py; echo 'W = 1' >> {W}/settings.py\n"),
    "glob in the path": Shape(f"RUN {SED} /opt/venv/lib/python3*/site-packages/widget/settings.py\n"),
    # Patches
    "patch -d": Shape(f"COPY x.diff /tmp/x.diff\nRUN patch -d {SITE} -p1 < /tmp/x.diff\n", {"x.diff": _DIFF}),
    "patch -d of the package": Shape(f"COPY x.diff /tmp/x.diff\nRUN patch --directory={W} -p1 -i /tmp/x.diff\n", {"x.diff": _INNER}),
    "patch in WORKDIR": Shape(f"COPY x.diff /tmp/\nWORKDIR {SITE}\nRUN patch -p1 < /tmp/x.diff && rm /tmp/x.diff\n", {"x.diff": _DIFF}),
    "git apply": Shape(f"COPY x.diff /tmp/x.diff\nRUN cd {SITE} && git apply /tmp/x.diff\n", {"x.diff": _DIFF}),
    "git apply that may fail": Shape(f"COPY x.diff /tmp/x.diff\nRUN cd {SITE} && git apply /tmp/x.diff || true\n", {"x.diff": _DIFF.replace("10", "11")}),
    "patches in a loop": Shape(f"COPY patches/ /patches/\nRUN for p in /patches/*.patch; do patch -p1 -d {SITE} < \"$p\" || exit 1; done\n", {"patches/1.patch": _DIFF, "patches/2.patch": _SECOND}),
    "bind mount": Shape(f"RUN --mount=type=bind,source=x.diff,target=/x.diff patch -d {SITE} -p1 < /x.diff\n", {"x.diff": _DIFF}, by_hand={"RUN --mount": f"patch -d {SITE} -p1 < /context/x.diff"}),
    "bind mount of all": Shape(f"RUN --mount=target=/ctx --mount=type=cache,target=/root/.cache \\\n cp /ctx/o/client.py {W}/ && sh /ctx/fix.sh\n", {"o/client.py": _NEW_CLIENT, "fix.sh": _FIX_SH}, by_hand={"RUN --mount": f"cp /context/o/client.py {W}/; sh /context/fix.sh"}),
    # Python's answers
    "cd where Python says": Shape(f"RUN cd \"$(python -c 'import widget, os; print(os.path.dirname(widget.__file__))')\" && {SED} settings.py\n"),
    "site.getsitepackages": Shape(f"RUN SITE=$(python3 -c 'import site; print(site.getsitepackages()[0])') && {SED} $SITE/widget/settings.py\n"),
    "sysconfig": Shape(f"RUN {SED} \"$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/widget/settings.py\"\n"),
    "find_spec": Shape(f"RUN F=$(python3 -c \"import importlib.util as u; print(u.find_spec('widget').submodule_search_locations[0])\"); {SED} $F/settings.py\n"),
    "pip show": Shape(f"RUN cd $(pip show widget | sed -n 's/^Location: //p') && {SED} widget/settings.py\n"),
    "importlib.metadata": Shape("RUN python3 -c \"import importlib.metadata as m; p = m.distribution('widget').locate_file('widget/settings.py'); open(p, 'a').write('M = 1\\n')\"\n"),
    # Installs
    "pip install -U later": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip install -U widget\n"),
    "another version": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip install widget==1.1\n"),
    "a wheel": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip install --no-deps /wheels/widget-1.1-py3-none-any.whl\n"),
    "installed again": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip install --force-reinstall --no-deps widget==1.0\n"),
    "requirements": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nCOPY r.txt /\nRUN pip install -r /r.txt\n", {"r.txt": "modest\nwidget>1.0  # newer\n"}),
    "a dependency": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip3 install needy\n"),
    "an unrelated package": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip install --no-deps modest\n"),
    "uninstalled": Shape(f"{INSTALL}RUN {SED} {W}/settings.py\nRUN pip uninstall -y widget\n"),
    # The network, and what this machine lacks
    "curl to Python": Shape("RUN curl -fsSL https://example.org/fix.py | python3 -\n"),
    "curl over a file": Shape(f"RUN curl -fsSL https://example.org/client.py -o {W}/client.py\n"),
    "a missing program": Shape("RUN only-in-image || true\n"),
    # Stages
    "FROM a stage": Shape(f"FROM base AS one\nENV PATH=/opt/venv/bin:$PATH\nRUN {SED} {W}/settings.py\nFROM one\nRUN echo 'S = 2' >> {W}/client.py\n", whole=True),
    "COPY the environment from a stage": Shape(
        f"FROM base AS build\nENV PATH=/opt/venv/bin:$PATH\nRUN pip install widget==1.0 && {SED} {W}/settings.py\nFROM base\nCOPY --from=build /opt/venv /opt/venv\n", whole=True,
        by_hand={"COPY": "true"},
    ),
    "a stage that is left": Shape(f"FROM base AS one\nRUN {SED} {W}/settings.py\nFROM base\nRUN echo 'S = 2' >> {W}/client.py\n", whole=True, by_hand={"RUN sed": "true"}),
    # Other edits
    "rm": Shape(f"RUN rm {W}/sub/deep.py && rm -rf /var/lib/apt/lists/*\n"),
    "mv": Shape(f"RUN mv {W}/client.py {W}/old_client.py && echo 'from widget.old_client import *' > {W}/client.py\n"),
    "the whole package replaced": Shape(f"COPY new /new\nRUN rm -rf {W} && cp -r /new {W}\n", {"new/__init__.py": "NEW = 1\n", "new/settings.py": "TIMEOUT = 2\n"}),
    "ln -s": Shape(f"RUN ln -sf settings.py {W}/config.py\n"),
    "tee": Shape(f"RUN echo 'T = 1' | tee -a {W}/settings.py > /dev/null\n"),
    "awk and mv": Shape(f"RUN awk '{{sub(/INFO/, \"WARN\")}} 1' {W}/settings.py > /tmp/s && mv /tmp/s {W}/settings.py\n"),
    "perl": Shape(f"RUN perl -pi -e 's/INFO/WARN/' {W}/settings.py\n"),
    "python -c": Shape(f"RUN python3 -c \"p='{W}/settings.py'; t=open(p).read(); open(p,'w').write(t.replace('None', '3'))\"\n"),
    "chmod": Shape(f"RUN chmod +x {W}/client.py\n"),
    "compiled files": Shape(f"RUN rm -f {W}/*.so && {SED} {W}/settings.py\n"),
    "a generated file": Shape(f"RUN for f in {W}/_version.py {W}/settings.py; do [ ! -f $f ] || echo 'G = 1' >> $f; done\n"),
    "sitecustomize": Shape(f"COPY s.py {SITE}/sitecustomize.py\n", {"s.py": "import widget.settings\nwidget.settings.TIMEOUT = 3\n"}),
    "an edit that no longer fits": Shape(f"RUN sed -i 's/TIMEOUT = 99/TIMEOUT = 60/' {W}/settings.py\n"),
    "an edit at start": Shape(f"CMD {SED} {W}/settings.py && exec python -m widget\n"),
}  # fmt: skip
#: Written when the code was finished, to measure it.
LATER = {
    "pushd and subshell": Shape(f'SHELL ["/bin/bash", "-c"]\nRUN (pushd {W} && {SED} settings.py && popd) && sed -i s/deep/low/ {W}/sub/deep.py\n'),
    "function": Shape(f"RUN fix() {{ sed -i \"s/$1/$2/\" {W}/settings.py; }}; fix 'TIMEOUT = 10' 'TIMEOUT = 60'; fix INFO WARN\n"),
    "ADD tar.gz of tree and install script": Shape("ADD fix.tar /opt/fix/\nRUN cd /opt/fix && sh ./install.sh\n", {"fix.tar": tar_of({"install.sh": f"cp files/client.py {W}/client.py\n", "files/client.py": _NEW_CLIENT})}),
    "python walk and regex": Shape("COPY walk.py /tmp/walk.py\nRUN python3 /tmp/walk.py\n", {"walk.py": f"import os, re\nfor at, _, names in os.walk('{SITE}'):\n    for n in names:\n        if n.endswith('.py'):\n            p = os.path.join(at, n)\n            t = open(p).read()\n            u = re.sub('TIMEOUT', 'LIMIT', t)\n            if u != t:\n                open(p, 'w').write(u)\n"}),
    "cp -r overlay via bind": Shape(f"RUN --mount=type=bind,source=over,target=/mnt/over cp -rv /mnt/over/. {SITE}/\n", {"over/widget/client.py": _NEW_CLIENT, "over/widget/n/__init__.py": "N = 1\n"}, by_hand={"RUN --mount": f"cp -r /context/over/. {SITE}/"}),
    "sed with w and multiple -e": Shape(f"RUN sed -i -e '/PROXY/d' -e '$ a END = 1' {W}/settings.py {W}/client.py\n"),
    "env in exec python": Shape(f"ENV TARGET={W}/settings.py\nRUN python3 -c \"import os; p = os.environ['TARGET']; open(p, 'a').write('E = 1\\n')\"\n"),
    "two-step stage copy of one file": Shape(f"FROM base AS gen\nRUN mkdir /out && echo 'GEN = 1' > /out/gen.py\nFROM base\nCOPY --from=gen /out/gen.py {W}/gen.py\n", whole=True, by_hand={"RUN mkdir": "mkdir /out; echo 'GEN = 1' > /out/gen.py", "COPY": f"cp /out/gen.py {W}/gen.py"}),
    "git apply from stdin heredoc": Shape(f"WORKDIR {SITE}\nRUN git apply - <<'EOF'\n{_DIFF}EOF\n", by_hand={"RUN git": f"sed -i 's/TIMEOUT = 10/TIMEOUT = 60/' {W}/settings.py"}),
    "constraint upgrade all": Shape(f"{INSTALL}RUN echo 'P = 1' >> {W}/settings.py\nRUN pip install --upgrade modest widget\n"),
    "uninstall quietly then reinstall": Shape(f"{INSTALL}RUN echo 'P = 1' >> {W}/settings.py\nRUN pip uninstall -y widget && pip install widget==1.0\n"),
    "wget script run": Shape("RUN wget -q https://example.org/fix.py -O /tmp/fix.py; python3 /tmp/fix.py || true\n", by_hand={"RUN wget": f"echo 'WG = 1' >> {W}/settings.py"}),
    "if dependency importable": Shape(f"RUN python3 -c 'import no_such_dependency' 2>/dev/null && echo 'DEP = 1' >> {W}/settings.py || true\n"),
    "condition on a program": Shape(f"RUN if command -v only-in-image >/dev/null; then echo 'HAS = 1' >> {W}/client.py; fi\n"),
    "condition on uname and env": Shape(f"RUN case \"${{FLAVOUR:-plain}}\" in plain) echo 'FL = 1' >> {W}/client.py;; *) echo 'FL = 2' >> {W}/client.py;; esac\n"),
    "long form of dest folder": Shape(f"WORKDIR /build\nCOPY [\"a b.py\", \"client.py\", \"./\"]\nRUN mv 'a b.py' {W}/ab.py && install -m 644 client.py {W}/client.py\n", {"a b.py": "AB = 1\n", "client.py": _NEW_CLIENT}, by_hand={"COPY": "cp '/context/a b.py' /context/client.py /build/"}),
}  # fmt: skip
SHAPES |= LATER
