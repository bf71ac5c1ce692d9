"""Stands in for ``vllm serve``: a server that streams as many tokens as it is asked for.

``STUB_FAILS`` says how it fails: ``start`` (ends at once), ``hang`` (never answers), ``short`` (ends streams early),
``child`` (has a child that outlives it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAILS = os.environ.get("STUB_FAILS", "")


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted, prompt = asked["max_tokens"], asked["prompt"]
        tokens = [(sum(prompt) + n) % 97 + 2 for n in range(wanted)]
        words = [f" t{token}" for token in tokens]
        self.send_response(200)
        self.end_headers()
        usage = {"prompt_tokens": len(prompt), "completion_tokens": wanted}
        if not asked.get("stream"):
            self.wfile.write(json.dumps({"choices": [{"text": "".join(words), "token_ids": tokens}]}).encode())
            return
        for word, token in zip(words[: wanted // 2 if FAILS == "short" else wanted], tokens, strict=False):
            self._event({"choices": [{"text": word, "token_ids": [token]}]})
        if FAILS == "short":
            return
        if asked.get("stream_options"):
            self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())


def main() -> None:
    arguments = sys.argv[1:]
    print("serving", arguments, {k: v for k, v in os.environ.items() if k.startswith("VLLM_")}, flush=True)
    if FAILS == "start":
        sys.exit("no memory")
    if FAILS == "hang":
        time.sleep(1000)
    if FAILS == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", f"outlives {os.environ['STUB_MARK']}"])
    server = ThreadingHTTPServer(("127.0.0.1", int(arguments[arguments.index("--port") + 1])), Handler)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("ended cleanly", flush=True)


if __name__ == "__main__":
    main()
