#!/usr/bin/env python3
"""A `kubectl` that knows `exec … -- tridentctl …` alone, and in it the Trident of before 21.04, without an ONTAP.

Backends are kept in a file beside it. One whose password is not the one in `login` is refused as ONTAP refuses it.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    words = sys.argv[1:]
    with (HERE / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if (
        "--" not in words
        or words[words.index("--") + 1] != "tridentctl"
        or "deployment/trident-csi" not in words
    ):
        sys.exit("error: unknown command")
    if (HERE / "starting").exists():
        sys.exit('error: unable to upgrade connection: container not found ("trident-main")')
    command = [word for word in words[words.index("--") + 2 :] if word not in {"-s", "127.0.0.1:8000"}]
    kept = HERE / "backends.json"
    backends = json.loads(kept.read_text()) if kept.exists() else {}
    if command[:2] == ["get", "backend"]:
        items = [{"name": name, "state": each["state"]} for name, each in backends.items()]
        sys.stdout.write(json.dumps({"items": items}) + "\n")
        return
    if command[1] != "backend" or command[-2:] != ["-f", "-"] or command[0] not in {"create", "update"}:
        sys.exit(f"Error: unknown command {command}")
    config = json.loads(sys.stdin.read())
    if command[0] == "update" and command[2] not in backends:
        sys.exit(f"Error: could not update backend {command[2]}: backend not found (404 Not Found)")
    if config["password"] != (HERE / "login").read_text():
        sys.exit(
            f"Error: could not {command[0]} backend: problem initializing storage driver 'ontap-nas': error "
            "reading SVM details: API status: failed, Reason: not authorized, Code: 13003 (400 Bad Request)"
        )
    backends[config["backendName"]] = {"state": "online", "config": config}
    kept.write_text(json.dumps(backends))


if __name__ == "__main__":
    main()
