"""JobSet's own controller for tests in a lab: a Go module like the lab's other programs, built once into the cache.

`jobset/go.mod` pins its version, and `go.sum` the versions of its dependencies. The controller listens on loopback
only. It needs a certificate for its webhooks to start, but no webhook is registered: the API server sets the defaults
of the CRD, and the tests set all others.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab import binaries
from musterlab.build import Part, Recipe
from musterlab.errors import BinariesError
from musterlab.ports import choose
from orchestrator.progress import Reporter
from tests.cluster.certificates import Authority
from tests.cluster.waiting import DEADLINE_SECONDS

MODULE = Path(__file__).parent / "jobset"
PACKAGE = "sigs.k8s.io/jobset"
RECIPE = Recipe(
    subject="JobSet's controller",
    prefix="jobset-",
    programs=("jobset",),
    parts=(Part(MODULE, ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="2 to 4 minutes",
)


def program() -> Path:
    """Return the path of the controller, or skip the test if it cannot be built or downloaded."""
    try:
        return binaries.find(Reporter(lambda _line: None), RECIPE).paths["jobset"]
    except BinariesError as error:
        pytest.skip(f"JobSet's controller is not at hand: {error}")


def definition() -> dict[str, Any]:
    """Return the CRD of JobSets in the module's version, or skip the test if the module cannot be downloaded."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("the definition of JobSets is in a Go module, and there is no 'go' on PATH")
    command = [go, "mod", "download", "-json", PACKAGE]
    done = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.skip(f"the definition of JobSets cannot be downloaded: {done.stderr.strip()}")
    folder = Path(json.loads(done.stdout)["Dir"]) / "config" / "components" / "crd" / "bases"
    read: dict[str, Any] = yaml.safe_load((folder / "jobset.x-k8s.io_jobsets.yaml").read_text())
    return read


@contextmanager
def running(kubeconfig: Path, folder: Path) -> Iterator[None]:
    """Run the controller. `folder` gets its configuration, certificate and log."""
    certificate, key = Authority().issue("jobset", host="127.0.0.1")
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    metrics, health, webhook = choose(3)
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}", "certDir": str(folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    (folder / "jobset.yaml").write_text(yaml.safe_dump(configuration))
    command = [str(program()), f"--config={folder / 'jobset.yaml'}", f"--kubeconfig={kubeconfig}"]
    with (folder / "jobset.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_SECONDS)
