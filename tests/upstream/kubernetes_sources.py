"""The sources of Kubernetes: the Go modules of the lab, or a checkout in the folder that `MUSTER_UPSTREAM` names."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.upstream import facts

ROOT = Path(__file__).parents[2]
CHECKOUT = "kubernetes-v0.0.0"


def kubernetes_module(name: str) -> Path:
    """Return the folder of a Go module of the lab, or skip the test if the module cannot be downloaded."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("the sources of Kubernetes are in Go modules, and there is no 'go' on PATH")
    done = subprocess.run(
        [go, "mod", "download", "-json", name],
        cwd=ROOT / "musterlab",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"the sources of Kubernetes cannot be downloaded: {done.stderr.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def kubernetes_checkout(name: str) -> Path:
    """Return the folder of a Go module in the newest checkout of Kubernetes, or skip the test if there is none."""
    trees = facts.folder(facts.TREES_VARIABLE)
    root = facts.newest(trees, CHECKOUT) if trees else None
    if root is None or not root.is_dir():
        pytest.skip("not at hand: kubernetes-RELEASE")
    path = root if name == "k8s.io/kubernetes" else root / "staging" / "src" / name
    if not path.is_dir():
        pytest.skip(f"not at hand: {path}")
    return path
