"""The double of a kubelet's answers on ended containers, compared with a real kubelet."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from musterlab.realnodes import images
from tests.validation.witness.kubelet_outputs import ENDINGS, NAMESPACE, Ending, ended_pod
from validation.witness.causes import cause_of
from validation.witness.outputs import ended, main_container, ran_ms, read_last_line
from validation.witness.reader import ReadFailed, connect

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NODE = "dgx1-real-1"
WAIT = "--timeout=180s"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    running = start("outputs", nodes=0, real_nodes=1, detach=False, state_dir=tmp_path_factory.mktemp("labs"))
    try:
        yield running
    finally:
        running.stop()


def kubectl(lab: Lab, *arguments: str, given: str | None = None) -> str:
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def create(
    lab: Lab, name: str, script: str, *, pull_policy: str = "IfNotPresent", image: str = images.SHELL
) -> None:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["sh", "-c", script],
    }
    spec = {"nodeName": NODE, "restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl(lab, "create", "-f", "-", given=json.dumps(pod))


def said_otherwise(double: Any, real: Any) -> list[str]:
    """Return the fields of the double that the real object lacks or has with another type."""
    if isinstance(double, dict):
        missing = [name for name in double if name not in real]
        return missing + [
            line for name in double if name in real for line in said_otherwise(double[name], real[name])
        ]
    if isinstance(double, list):
        return said_otherwise(double[0], real[0])
    return [] if type(double) is type(real) else [f"{double!r} and {real!r}"]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_a_container_that_ended_is_as_the_double_has_it(lab: Lab, ending: Ending) -> None:
    create(lab, ending.name, ending.script)
    kubectl(lab, "wait", f"--for=jsonpath={{.status.phase}}={ending.phase}", f"pod/{ending.name}", WAIT)
    pod = json.loads(kubectl(lab, "get", "pod", ending.name, "-o", "json"))
    assert said_otherwise(ended_pod(ending)["status"], pod["status"]) == []
    assert main_container(pod) == "main"
    terminated = ended(pod, "main")
    assert terminated["exitCode"] == ending.exit_code
    assert terminated["imageID"].partition("@")[2].startswith("sha256:")
    assert ran_ms(terminated) >= 0
    assert read_last_line(connect(lab.kubeconfig), NAMESPACE, ending.name, "main") == ending.line


def test_a_container_that_never_started_and_a_pod_that_is_not_there_have_no_line(lab: Lab) -> None:
    create(lab, "waiting", "true", pull_policy="Never", image="nowhere/none:1")
    reason = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImageNeverPull"
    kubectl(lab, "wait", reason, "pod/waiting", WAIT)
    cause = cause_of(json.loads(kubectl(lab, "get", "pod", "waiting", "-o", "json")))
    assert cause is not None
    assert (cause.source, cause.reason) == ("container main", "ErrImageNeverPull")
    assert "nowhere/none:1" in cause.message
    client = connect(lab.kubeconfig)
    with pytest.raises(ReadFailed, match="400 Bad Request"):
        read_last_line(client, NAMESPACE, "waiting", "main")
    with pytest.raises(ReadFailed, match="404 Not Found"):
        read_last_line(client, NAMESPACE, "gone", "main")
