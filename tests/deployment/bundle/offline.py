"""Uses a bundle as an installation does, in a place without a network: `offline.py ROOT BUNDLE DIRECTORY URL`.

It prints the content that it got. It ends with an error if the URL can be reached, or if a program needs the network.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from deployment.bundle import use


def run(words: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def must_be_cut_off(url: str) -> None:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5).close()
    except OSError:
        return
    sys.exit(f"{url} can be reached")


def debs(opened: "use.Bundle", root: Path, away: Path) -> list[str]:
    from deployment.bundle import packages

    host = away.with_name("host")
    shutil.copytree(root / "packages" / "ubuntu-22.04", host)
    sources = opened.sources("ubuntu-22.04", str(host))
    options = packages.private_apt(away, sources, "amd64")
    run(["apt-get", *options, "update"])
    names = ["nfs-common", "nvidia-container-toolkit=1.20.0-1"]
    run(
        [
            "apt-get",
            *options,
            "-y",
            "-o",
            "Debug::NoLocking=1",
            "--no-install-recommends",
            "--download-only",
            "install",
            *names,
        ]
    )
    listed = run(["apt-get", *options, "-s", "--no-install-recommends", "install", *names])
    return sorted(line.split()[1] for line in listed.splitlines() if line.startswith("Inst "))


def main() -> None:
    top, root, away, url = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    must_be_cut_off(url)
    sys.path.insert(0, str(top))
    from deployment.bundle import use
    from deployment.bundle.trust import Trust
    from deployment.digest import sha256_of
    from orchestrator.progress import Reporter

    trust = Trust(sha256_of(root / "manifest.json"))
    opened = use.open_bundle(root, "here", trust, Reporter(lambda text: None))
    environment = opened.environment()
    found: dict[str, object] = {"debs": debs(opened, root, away / "apt"), "variables": opened.variables()}
    run([sys.executable, "-m", "venv", away / "pip"])
    pip: list[str | Path] = [away / "pip/bin/python", "-m", "pip", "--isolated", "install", "--no-index"]
    run(
        [
            *pip,
            "--find-links",
            root / "wheels",
            "--target",
            away / "python",
            "ansible==1.0",
            "netaddr",
            "click",
        ]
    )
    found["pip"] = sorted(
        each.name
        for each in (away / "python").iterdir()
        if each.is_dir() and "." not in each.name and each.name != "bin"
    )
    clone = away / "deepops"
    run(["git", "clone", "-q", "https://github.com/NVIDIA/deepops", clone], environment)
    run(["git", "-C", clone, "checkout", "-q", "26.07"], environment)
    run(["git", "-C", clone, "submodule", "update", "-q", "--init"], environment)
    found["commit"] = run(["git", "-C", clone, "rev-parse", "HEAD"]).strip()
    found["submodule"] = run(["git", "-C", clone / "submodules/kubespray", "rev-parse", "HEAD"]).strip()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
