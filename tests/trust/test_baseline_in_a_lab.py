"""Muster's policy for the level `baseline` decides as Kubernetes' own Pod Security admission does, on random pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cluster.errors import Forbidden, Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import PODS, ROLE_BINDINGS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.trust.objects import Body, account, pod, template
from tests.trust.test_rules_in_a_lab import DRY_RUN

if TYPE_CHECKING:
    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

THEIRS, OURS = "baseline-theirs", "baseline-ours"
NAMESPACES = {
    THEIRS: {"pod-security.kubernetes.io/enforce": "baseline"},
    OURS: {"muster.dev/project": "any"},
}

CONTEXTS = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "capabilities": st.fixed_dictionaries(
            {"add": st.lists(st.sampled_from(["KILL", "NET_RAW", "CHOWN", "SYS_ADMIN", "MKNOD"]), max_size=2)}
        ),
        "seccompProfile": st.sampled_from([{"type": "Unconfined"}, {"type": "RuntimeDefault"}]),
        "appArmorProfile": st.sampled_from([{"type": "Unconfined"}, {"type": "RuntimeDefault"}]),
        "seLinuxOptions": st.sampled_from(
            [{"type": "spc_t"}, {"type": "container_t"}, {"user": "u"}, {"level": "s0"}]
        ),
        "procMount": st.just("Default"),
    },
)
CONTAINERS = st.fixed_dictionaries(
    {},
    optional={
        "securityContext": CONTEXTS,
        "ports": st.sampled_from([[{"containerPort": 80}], [{"containerPort": 80, "hostPort": 81}]]),
        "livenessProbe": st.sampled_from([{"tcpSocket": {"host": h, "port": 1}} for h in ("", "10.0.0.1")]),
        "lifecycle": st.sampled_from([{"postStart": {"httpGet": {"host": h, "port": 1}}} for h in ("", "h")]),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINERS, max_size=1),
        "hostPID": st.booleans(),
        "hostIPC": st.booleans(),
        "securityContext": st.fixed_dictionaries(
            {},
            optional={
                "sysctls": st.lists(
                    st.sampled_from(
                        [
                            {"name": "net.ipv4.tcp_syncookies", "value": "1"},
                            {"name": "net.ipv4.tcp_rmem", "value": "1"},
                            {"name": "kernel.msgmax", "value": "1"},
                        ]
                    ),
                    max_size=1,
                ),
                "seccompProfile": st.sampled_from([{"type": "Unconfined"}, {"type": "RuntimeDefault"}]),
                "seLinuxOptions": st.sampled_from([{"type": "spc_t"}, {"role": "r"}]),
            },
        ),
    },
)


async def verdict(dev: Transport, namespace: str, body: Body) -> bool | None:
    """Return whether the user may create the pod in the namespace; None if the pod itself is invalid."""
    try:
        await dev.create(PODS.path(namespace), body, params=DRY_RUN)
    except (Forbidden, Invalid) as error:
        if f'Pod "{body["metadata"]["name"]}" is invalid' in str(error):
            return None
        if "rule" not in str(error) and "violates PodSecurity" not in str(error):
            raise
        return False
    return True


async def prepare(site: Site) -> None:
    """Make both namespaces, in which dev may create pods, and wait until both refuse a privileged pod."""
    group = "rbac.authorization.k8s.io"
    async with Transport(load_access(site.kubeconfigs["admin"])) as admin:
        for name, labels in NAMESPACES.items():
            metadata = {"name": name, "labels": labels}
            await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            binding = {
                "apiVersion": ROLE_BINDINGS.api_version,
                "kind": ROLE_BINDINGS.kind,
                "metadata": {"name": "dev", "namespace": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "User", "name": account("dev"), "apiGroup": group}],
            }
            await apply(admin, binding)
            account_body = {"apiVersion": "v1", "kind": "ServiceAccount"}
            await apply(admin, {**account_body, "metadata": {"name": "default", "namespace": name}})
    async with Transport(load_access(site.kubeconfigs["dev"])) as dev, asyncio.timeout(DEADLINE_SECONDS):
        bad, good = pod("x", template(hostPID=True)), pod("x", template())
        while True:
            try:
                answers = [await verdict(dev, name, body) for name in NAMESPACES for body in (bad, good)]
            except Forbidden:  # the API server does not know the role binding yet
                answers = []
            if answers == [False, True, False, True]:
                return
            await asyncio.sleep(0.05)


async def compare(site: Site, body: Body) -> None:
    async with Transport(load_access(site.kubeconfigs["dev"])) as dev:
        assert await verdict(dev, OURS, body) is await verdict(dev, THEIRS, body)


def test_our_baseline_is_kubernetes_own(site: Site) -> None:
    asyncio.run(prepare(site))

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(SPECS)
    def agree(spec: Body) -> None:
        for kind in ("containers", "initContainers"):
            for index, container in enumerate(spec.get(kind, ())):
                container.update(name=f"{kind.lower()}{index}", image="image")
                if kind == "initContainers":
                    container.pop("livenessProbe", None)
                    container.pop("lifecycle", None)
        asyncio.run(
            compare(site, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec})
        )

    agree()
