"""A host is drained before a change and uncordoned after it, on a real API server with a node object."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import musterlab.cluster
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import JOBS, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.deployment.running import Result, play

pytestmark = [pytest.mark.lab, pytest.mark.rare]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    running = musterlab.cluster.start("drained", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield running.kubeconfig
    running.stop()


def call(kubeconfig: Path, verb: str, path: str, *arguments: Any, **more: Any) -> Any:
    async def speak() -> Any:
        async with Transport(load_access(kubeconfig)) as transport:
            return await getattr(transport, verb)(path, *arguments, **more)

    return asyncio.run(speak())


def work(folder: Path, kubeconfig: Path, node: str) -> Result:
    """Run the tasks of a stage in an upgrade: drain the host, change it, uncordon it."""
    roles = [{"role": "drain"}, {"role": "drain", "tasks_from": "uncordon"}]
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.include_role": {"name": each["role"], "tasks_from": each.get("tasks_from", "main")}}
        for each in roles
    ]
    change = {
        "name": "Look at the node", "kubernetes.core.k8s_info": {"kind": "Node", "name": node},
        "delegate_to": "controller",
    }  # fmt: skip
    playbook, inventory = folder / "play.yml", folder / "inventory.yml"
    playbook.write_text(yaml.safe_dump([{
        "hosts": "gpu", "gather_facts": False, "tasks": [tasks[0], change, tasks[1]],
        "module_defaults": {"group/kubernetes.core.k8s": {"kubeconfig": str(kubeconfig)}},
    }]))  # fmt: skip
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(yaml.safe_dump({"all": {
        "hosts": {"controller": local, node: local}, "children": {"gpu": {"hosts": {node: {}}}},
        "vars": {"drain_hosts": True, "drain_seconds": 300},
    }}))  # fmt: skip
    return play(playbook, folder, "-i", str(inventory))


def test_a_host_is_emptied_and_given_back_unless_it_was_closed_before(
    kubeconfig: Path, tmp_path: Path
) -> None:
    node = call(kubeconfig, "get", NODES.path())["items"][0]["metadata"]["name"]
    template = {"restartPolicy": "Never", "nodeName": node, "containers": [{"name": "a", "image": "a"}]}
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": template}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": template}},
    }
    call(kubeconfig, "create", PODS.path("default"), bare)
    call(kubeconfig, "create", JOBS.path("default"), job)

    refused = work(tmp_path, kubeconfig, node)
    assert refused.code == 2
    assert any(
        "could not be emptied: Pod deletion errors: cannot delete Pods not managed" in said
        for said in refused.failures
    ), refused.output
    call(kubeconfig, "delete", PODS.path("default", "bare"), grace_seconds=0)

    done = work(tmp_path, kubeconfig, node)
    assert done.code == 0, done.output
    (seen,) = [result for name, _, result in done.tasks if name == "Look at the node"]
    assert seen["resources"][0]["spec"]["unschedulable"] is True
    metadata, spec = (call(kubeconfig, "get", NODES.path(None, node))[key] for key in ("metadata", "spec"))
    assert not spec.get("unschedulable")
    assert "muster.dev/drained" not in metadata["annotations"]

    call(kubeconfig, "patch", NODES.path(None, node), {"spec": {"unschedulable": True}})
    again = work(tmp_path, kubeconfig, node)
    assert again.code == 0, again.output
    assert call(kubeconfig, "get", NODES.path(None, node))["spec"]["unschedulable"] is True
