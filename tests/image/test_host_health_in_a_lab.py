"""The pod of the agent's DaemonSet reads the kernel's log of the machine, by the capability SYSLOG."""

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from musterlab.gpus.models import Gpus
from orchestrator import names
from tests.cluster.waiting import poll
from tests.control.operators import must
from tests.musterlab.gpu_pods import kube_scheduler_of, kubectl, read

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NODE = "dgx1-real-1"
AGENT = ("-n", names.AGENT_NAMESPACE)
KERNEL_LOG = Path("/dev/kmsg")
METRICS = (
    "import os, urllib.request; "
    "print(urllib.request.urlopen(f'http://{os.environ[\"POD_IP\"]}:9410/metrics').read().decode())"
)


@pytest.fixture(scope="module")
def lab(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("h")
    with ExitStack() as stack:
        lab = start(
            "health", nodes=0, real_nodes=1, detach=False, state_dir=folder / "l", image_archives=[archive],
            gpus=Gpus("v100", 8, "device-plugin"),
        )  # fmt: skip
        stack.callback(lab.stop)
        kubectl(lab, "label", "node", NODE, "nvidia.com/gpu.present=true")  # as the installer does
        stack.enter_context(kube_scheduler_of(lab, folder))
        yield lab


def rendered(lab: Lab) -> str:
    text: str = must(lab.kubeconfig, "operator-yaml", "--cluster", "lab", "--replicas=0", "--agent")
    return text


def wait_until_rolled_out(lab: Lab) -> None:
    kubectl(lab, "rollout", "status", *AGENT, f"daemonset/{names.AGENT_ACCOUNT}", "--timeout=120s")


def condition(lab: Lab) -> dict[str, Any]:
    conditions = read(lab, "node", NODE)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == names.HOST_FAULT_CONDITION), {})


def metrics(lab: Lab) -> str:
    pods = read(lab, "pods", *AGENT, "--field-selector", "status.phase=Running")["items"]
    name = next(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return kubectl(lab, "exec", *AGENT, name, "--", "python3", "-c", METRICS)


def unknown_lines(lab: Lab) -> int:
    """Return the number of lines of hardware that the agent does not know; -1 before its first reading."""
    page = metrics(lab)
    if 'muster_host_fact_read{fact="kernel-log"} 1' not in page:
        return -1
    found = re.search(r"^muster_host_unknown_kernel_lines_total (\d+)", page, re.MULTILINE)
    assert found, page
    return int(found[1])


def test_the_pod_of_the_daemon_set_reads_the_kernels_log_of_the_machine(lab: Lab) -> None:
    kubectl(lab, "apply", "-f", "-", given=rendered(lab))
    wait_until_rolled_out(lab)
    poll(lambda: condition(lab).get("message"), "the agent writes the condition")
    message = condition(lab)["message"]
    assert "not read: kernel-log" not in message, message
    before = unknown_lines(lab)
    assert before >= 0, metrics(lab)
    # this line names no device of the machine, and muster does not know its words
    KERNEL_LOG.write_text(f"mlx5_core 0000:00:00.0: muster's own test {secrets.token_hex(4)}\n")
    kubectl(lab, "delete", "pod", *AGENT, "--all")  # a new agent reads at its start
    wait_until_rolled_out(lab)
    poll(lambda: unknown_lines(lab) == before + 1, "the agent counts the line in the kernel's log")


def test_without_the_capability_the_agent_names_the_log_that_it_cannot_read(lab: Lab) -> None:
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("the kernel of this machine lets every process read its log: kernel.dmesg_restrict is 0")
    text = rendered(lab)
    assert text.count("add: [SYSLOG]") == 1
    kubectl(lab, "apply", "-f", "-", given=text.replace("add: [SYSLOG]", "add: []"))
    refused = "not read: kernel-log: Operation not permitted"
    poll(lambda: refused in condition(lab)["message"], "the agent names the log that it cannot read")
    assert condition(lab)["status"] != "False"
