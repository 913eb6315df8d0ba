"""The owner of a process, from its cgroups as runtimes and the kubelet name them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.cgroups import owner_of, parse_cgroup
from orchestrator.agent.model import Owner

UID = "8d9d9b5e-6a4f-4e0b-9d7a-0c2f8a1b3c4d"
DOWN = UID.replace("-", "_")
STATIC = "d4b7c1e0a9f84f6f8f2c5d1b7e3a6c90"
ID = "0f3a" * 16
OURS = Owner(UID, ID)
KUBE = "/kubepods.slice"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        pytest.param(f"0::{KUBE}/kubepods-burstable.slice/kubepods-burstable-pod{DOWN}.slice/cri-containerd-{ID}.scope",
                     OURS, id="containerd, systemd, version 2"),
        pytest.param(f"0::{KUBE}/kubepods-pod{DOWN}.slice/cri-containerd-{ID}.scope", OURS, id="the class Guaranteed"),
        pytest.param(f"0::{KUBE}/kubepods-besteffort.slice/kubepods-besteffort-pod{DOWN}.slice/crio-{ID}.scope/x",
                     OURS, id="CRI-O, version 2"),
        pytest.param(f"0::{KUBE}/kubepods-burstable.slice/kubepods-burstable-pod{DOWN}.slice/crio-conmon-{ID}.scope",
                     OURS, id="the monitor of CRI-O"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID}", OURS, id="containerd, cgroupfs, version 2"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}/init.scope", OURS, id="a container's own folder"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/crio-{ID}", OURS, id="CRI-O, cgroupfs"),
        pytest.param("\n".join(f"{number}:{controller}:/kubepods/besteffort/pod{UID}/{ID}"
                               for number, controller in ((12, "memory"), (3, "cpu,cpuacct"), (1, "name=systemd"))),
                     OURS, id="version 1, a line for each controller"),
        pytest.param(f"5:rdma:/\n4:memory:{KUBE}/kubepods-pod{DOWN}.slice/docker-{ID}.scope\n0::/", OURS,
                     id="some controllers only, and both versions"),
        pytest.param(f"0::/system.slice/containerd.service/kubepods-burstable-pod{DOWN}.slice:cri-containerd:{ID}",
                     OURS, id="a runtime and a kubelet of two minds"),
        pytest.param(f"0::/../../kubepods-burstable-pod{DOWN}.slice/cri-containerd-{ID}.scope", OURS,
                     id="seen from a cgroup namespace, systemd"),
        pytest.param(f"0::/../../pod{UID}/{ID}", OURS, id="seen from a cgroup namespace, cgroupfs"),
        pytest.param(f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{DOWN}.slice/x",
                     Owner(), id="a folder that only ends like the kubelet's"),
        pytest.param(f"0::/docker/{'a' * 64}/kubepods/pod{UID}/{ID}", OURS, id="a node in a container"),
        pytest.param(f"0::/kubepods/burstable/pod{STATIC}/{ID}", Owner(STATIC, ID), id="a static pod"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}", Owner(UID, ""), id="a pod's own folder"),
        pytest.param("0::/system.slice/sshd.service", Owner(), id="the node's own"),
        pytest.param(f"0::/docker/{ID}", Owner("", ID), id="a container of nobody's pod"),
        pytest.param(f"4:memory:/k8s.io/{ID}", Owner("", ID), id="a kubelet without folders of pods"),
        pytest.param(f"0::/user.slice/pod{UID}/{ID}", Owner("", ID), id="somebody's folder of that name"),
        pytest.param("", Owner(), id="nothing"),
    ],
)  # fmt: skip
def test_the_pod_and_the_container_are_read_of_the_path(text: str, owner: Owner) -> None:
    assert parse_cgroup(text) == owner


@given(st.text(max_size=400))
def test_no_text_is_too_odd(text: str) -> None:
    owner = parse_cgroup(text)
    assert owner.pod_uid or owner.container_id or owner == Owner()


def test_an_ended_process_belongs_to_no_pod(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text(f"0::/kubepods/pod{UID}/{ID}\n")
    assert owner_of(42, tmp_path) == OURS
    assert owner_of(43, tmp_path) == Owner()
