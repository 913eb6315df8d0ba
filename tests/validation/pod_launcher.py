"""Runs the program of group tests in the pod of a host, in place of `python3 -c "$P"` on the host.

The first argument is a folder with `launcher.json`: the command of kubectl, and pod and address of each host. Then the
name of the host and the arguments of `validation/layers/all_reduce.py`. The pods of a group end as soon as one fails.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.2


def main(directory: Path, host: str, number: str, *, index: str, hosts: str, port: str, seconds: int) -> int:
    """Return the exit code of the program, or 1 if the program of another host of the group failed."""
    known = json.loads((directory / "launcher.json").read_text())
    ours = directory / number
    ours.mkdir(exist_ok=True)
    if index == "0":
        (ours / "writing").write_text(known["hosts"][host]["address"])
        (ours / "writing").rename(ours / "root")
    deadline = time.monotonic() + seconds
    while not (ours / "root").exists():
        if time.monotonic() > deadline:
            return 1
        time.sleep(POLL_SECONDS)
    root = f"tcp://{(ours / 'root').read_text()}:{port}"
    command = [
        *known["kubectl"],
        "exec",
        known["hosts"][host]["pod"],
        "--",
        "python3",
        "-c",
        known["program"],
    ]
    running = subprocess.Popen([*command, root, index, hosts, str(seconds)])
    while running.poll() is None:
        if (ours / "failed").exists():
            running.terminate()
            running.wait()
            return 1
        time.sleep(POLL_SECONDS)
    if running.returncode:
        (ours / "failed").touch()
    return running.returncode


if __name__ == "__main__":
    folder, name, test, rank, size, _gpus, root_address, limit, _bytes = sys.argv[1:]
    root_port = root_address.rpartition(":")[2]
    sys.exit(main(Path(folder), name, test, index=rank, hosts=size, port=root_port, seconds=int(limit)))
