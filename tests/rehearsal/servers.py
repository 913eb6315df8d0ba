"""The file server and the registry of the rehearsal: `python -m tests.rehearsal.servers FILES IMAGES`."""

import functools
import http.server
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final

from musterlab.realnodes import registry
from tests.rehearsal import namespace

FILES_PORT: Final = 8081
REGISTRY_PORT: Final = 5000
FILES_URL: Final = f"http://{namespace.CONTROLLER}:{FILES_PORT}"
REGISTRY_URL: Final = f"http://{namespace.CONTROLLER}:{REGISTRY_PORT}"


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log only requests for files that do not exist."""
        if len(args) > 1 and str(args[1]) == "404":
            sys.stderr.write(f"{format % args}\n")


def main(files: Path, images: Path) -> None:
    """Run both servers until the process ends."""
    handler = functools.partial(_Files, directory=str(files))
    server = http.server.ThreadingHTTPServer((namespace.CONTROLLER, FILES_PORT), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listening = socket.create_server((namespace.CONTROLLER, REGISTRY_PORT))
    registry.serve(listening, images)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
