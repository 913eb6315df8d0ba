"""The facts of other projects, read in one form from two sources.

The source `facts` is the folder that `MUSTER_FACTS` names. The source `trees` are the checkouts in the folder that
`MUSTER_UPSTREAM` names; the program `extract` in the folder of facts reads them.

With the variable `MUSTER_NEWEST` the one source is `newest`: of each project the newest checkout, or else the newest
file of facts. `tests.upstream.releases` sets it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version


class Unreadable(Exception):
    """A checkout does not have the files that `extract` reads."""


FACTS_VARIABLE = "MUSTER_FACTS"
TREES_VARIABLE = "MUSTER_UPSTREAM"
NEWEST_VARIABLE = "MUSTER_NEWEST"
NEWEST = "newest"
RELEASES = "releases.json"
"""File in the folder of facts with newest releases of software without other facts, such as {"driver": "595.91.07"}."""

_EXTRACT = """
import json, sys
from pathlib import Path
facts, function, checkouts, checkout, known = sys.argv[1:]
sys.path.insert(0, facts + "/extract")
import projects
root = Path(checkouts) / checkout
source = projects.source(known)
if checkout == known and function == "trident":  # releases without a checkout are those of the facts
    found = projects.trident(root.parent, json.loads(Path(facts, "trident.json").read_text()))
elif function == "trident":
    found = json.loads(Path(facts, "trident.json").read_text())
    release = checkout.removeprefix("trident-")
    found["releases"][release] = projects.trident_release(root)
    found["sources"] = {release: projects.trident_sources(root)}
else:
    found = getattr(projects, function)(root)
if checkout != known:  # `projects` has the commits of the known release alone
    source["commit"] = None
    if "release" in found:
        found["release"] = checkout.rpartition("-")[2]
    if "pinned" in found:
        found["pinned"] = {}
json.dump({**found, "source": source}, sys.stdout, default=str)
"""


@dataclass(frozen=True)
class Project:
    """A project whose names muster uses."""

    file: str
    """Name of the file in the folder of facts."""
    checkout: str
    """Name of the folder with the checkout."""
    function: str
    """Function of `extract/projects.py` that reads a checkout."""
    part: str = ""
    """Key of the project in its file of facts, if the file has several projects."""


PROJECTS = {
    "deepops": Project("deepops-26.07.json", "deepops-26.07", "deepops"),
    "kubespray": Project("kubespray-v2.31.0.json", "kubespray-v2.31.0", "kubespray"),
    "trident": Project("trident.json", "trident-26.06.0", "trident"),
    "dra_driver": Project("nvidia.json", "dra-driver-nvidia-gpu-9593204", "nvidia_driver", "dra_driver"),
    "device_plugin": Project("nvidia.json", "k8s-device-plugin-1b826ac", "device_plugin", "device_plugin"),
    "mock_nvml": Project("nvidia.json", "k8s-test-infra-3b2b865", "test_infrastructure", "mock_nvml"),
    "jobset": Project("jobset.json", "jobset-08dfbdf", "jobset"),
}


def sources() -> tuple[str, ...]:
    """Return the sources that the tests compare muster with."""
    return (NEWEST,) if os.environ.get(NEWEST_VARIABLE) else ("facts", "trees")


def folder(variable: str) -> Path | None:
    """Return the folder that the environment variable names, or None."""
    value = os.environ.get(variable, "")
    return Path(value).absolute() if value else None


def release_text(path: Path) -> str:
    """Return the release in the name of a checkout or file, such as 2.31.0 of kubespray-v2.31.0, or an empty text."""
    found = re.fullmatch(r"v?(\d+(?:\.\d+)+)", path.name.removesuffix(".json").rpartition("-")[2])
    return found[1] if found else ""


def newest(directory: Path, known: str) -> Path:
    """Return the newest checkout or file of a project. `known` is a name such as kubespray-v2.31.0, also returned if
    there is none.
    """
    prefix, suffix = known.rpartition("-")[0], Path(known).suffix if known.endswith(".json") else ""
    found = [
        path for path in directory.glob(f"{prefix}-*{suffix}") if prefix and path.is_dir() == (not suffix)
    ]
    return max(
        found,
        key=lambda path: (Version(release_text(path) or "0"), path.name != known, path.name),
        default=directory / known,
    )


def place(source: str, project: str) -> Path | None:
    """Return the checkout or file of a project in a source, or None if the variable of the source is not set."""
    named, facts, trees = PROJECTS[project], folder(FACTS_VARIABLE), folder(TREES_VARIABLE)
    if source == NEWEST:
        checkout = place("trees", project)
        return checkout if checkout and checkout.is_dir() else place("facts", project)
    directory, known = (trees, named.checkout) if source == "trees" else (facts, named.file)
    if directory is None:
        return None
    return newest(directory, known) if sources() == (NEWEST,) else directory / known


def checkout(project: str) -> Path:
    """Return the checkout of a project, which must exist."""
    found = place("trees", project)
    assert found is not None, f"{TREES_VARIABLE} names no folder"
    return found


def missing(source: str, projects: Iterable[str]) -> list[str]:
    """Return the paths that a source needs and that are missing, and its environment variables that are not set."""
    facts, trees = folder(FACTS_VARIABLE), folder(TREES_VARIABLE)
    # the program that reads checkouts is in the folder of facts
    needed = [facts / "extract" if source == "trees" else facts] if facts else []
    needed += [path for name in projects if facts and (path := place(source, name))]
    absent = [] if facts else [FACTS_VARIABLE]
    absent += [TREES_VARIABLE] if source == "trees" and not trees else []
    return absent + sorted({str(path) for path in needed if not path.exists()})


@cache
def read(source: str, project: str) -> dict[str, Any]:
    """Return the facts of a project from a source, whose paths must exist. Raises Unreadable."""
    facts, named, path = folder(FACTS_VARIABLE), PROJECTS[project], place(source, project)
    assert facts is not None, f"{FACTS_VARIABLE} names no folder"
    assert path is not None, f"{TREES_VARIABLE} names no folder"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return dict(found[named.part]) if named.part else found
    command = [sys.executable, "-c", _EXTRACT, str(facts), named.function, str(path.parent), path.name]
    done = subprocess.run(
        [*command, named.checkout], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise Unreadable(f"{path}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    found = json.loads(done.stdout)
    if path.name != named.checkout and (path / ".git").exists():
        found["source"]["commit"] = _git(path, "rev-parse", "HEAD")
        found["pinned"] = {
            name: _git(path, "rev-parse", f"HEAD:{name}") for name in found.get("submodules", ())
        }
    return found


def _git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def observed(name: str) -> str:
    """Return the text of a file in the folder `observed` of the facts."""
    facts = folder(FACTS_VARIABLE)
    assert facts is not None, f"{FACTS_VARIABLE} names no folder"
    return (facts / "observed" / name).read_text()
