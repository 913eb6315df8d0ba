"""The facts of other projects, read in one form from two sources.

The source `facts` is the folder that `MUSTER_FACTS` names. The source `trees` are the checkouts in the folder that
`MUSTER_UPSTREAM` names; the program `extract` in the folder of facts reads them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FACTS_VARIABLE = "MUSTER_FACTS"
TREES_VARIABLE = "MUSTER_UPSTREAM"
SOURCES = ("facts", "trees")

_EXTRACT = """
import json, sys
from pathlib import Path
facts, function, checkouts, checkout = sys.argv[1:]
sys.path.insert(0, facts + "/extract")
import projects
root = Path(checkouts) / checkout
if function == "trident":  # releases without a checkout are those of the facts
    found = projects.trident(root.parent, json.loads(Path(facts, "trident.json").read_text()))
else:
    found = getattr(projects, function)(root)
json.dump({"source": projects.source(checkout), **found}, sys.stdout, default=str)
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


def folder(variable: str) -> Path | None:
    """Return the folder that the environment variable names, or None."""
    value = os.environ.get(variable, "")
    return Path(value).absolute() if value else None


def checkout(project: str) -> Path:
    """Return the checkout of a project, which must exist."""
    trees = folder(TREES_VARIABLE)
    assert trees is not None, f"{TREES_VARIABLE} names no folder"
    return trees / PROJECTS[project].checkout


def missing(source: str, projects: Iterable[str]) -> list[str]:
    """Return the paths that a source needs and that are missing, and its environment variables that are not set."""
    facts, trees = folder(FACTS_VARIABLE), folder(TREES_VARIABLE)
    # the program that reads checkouts is in the folder of facts
    needed = [facts / "extract" if source == "trees" else facts] if facts else []
    for name in projects:
        if facts and source == "facts":
            needed.append(facts / PROJECTS[name].file)
        if trees and source == "trees":
            needed.append(trees / PROJECTS[name].checkout)
    absent = [] if facts else [FACTS_VARIABLE]
    absent += [TREES_VARIABLE] if source == "trees" and not trees else []
    return absent + sorted({str(path) for path in needed if not path.exists()})


@cache
def read(source: str, project: str) -> dict[str, Any]:
    """Return the facts of a project from a source, whose paths must exist."""
    facts, named = folder(FACTS_VARIABLE), PROJECTS[project]
    assert facts is not None, f"{FACTS_VARIABLE} names no folder"
    if source == "facts":
        found: dict[str, Any] = json.loads((facts / named.file).read_text())
        return dict(found[named.part]) if named.part else found
    root = checkout(project)
    command = [sys.executable, "-c", _EXTRACT, str(facts), named.function, str(root.parent), root.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def observed(name: str) -> str:
    """Return the text of a file in the folder `observed` of the facts."""
    facts = folder(FACTS_VARIABLE)
    assert facts is not None, f"{FACTS_VARIABLE} names no folder"
    return (facts / "observed" / name).read_text()
