"""The four programs of a lab: their command lines, and the files that they read."""

import base64
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musterlab import audit, pki, supervisor
from musterlab.ports import LOOPBACK

STAGES = Path(__file__).parent / "stages.yaml"
MANAGED_ANNOTATION = "muster.dev/lab-node"
KIND_LABEL = "muster.dev/lab-node"
"""Label of a node: `simulated` or `real`. In a lab with both kinds, simulated nodes have a taint with this key."""
PROGRAMS_ANNOTATION = "muster.dev/lab-programs"
"""Annotation of a real node: the program for each role that its GPUs need."""

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
KWOK = "kwok"
FOLLOWERS = (CONTROLLER_MANAGER, KWOK)
"""Processes that start only once the API server answers."""

_FIRST_WITH_CLAIMS_V1BETA1 = 32
_POD_ADDRESSES = "10.64.0.1/10"
_SERVICE_ADDRESSES = "10.96.0.0/12"


@dataclass(frozen=True)
class Ports:
    """Ports on loopback."""

    api_server: int
    etcd_client: int
    etcd_peer: int


def prepare(
    directory: Path,
    context: str,
    programs: Mapping[str, Path],
    ports: Ports,
    *,
    api_server_flags: Sequence[str] = (),
    more: Iterable[tuple[str, list[str]]] = (),
) -> None:
    """Write certificates, kubeconfigs, kwok's stages and the list of processes into an empty state directory.

    `more` are names and commands of further processes, which the supervisor starts on request.
    """
    certificates = directory / "pki"
    certificates.mkdir(mode=0o700)
    pki.create(certificates)
    (directory / supervisor.LOGS).mkdir(mode=0o700)
    server = f"https://{LOOPBACK}:{ports.api_server}"
    write_kubeconfig(directory / "kubeconfig", certificates, "admin", server, context)
    for name in FOLLOWERS:
        user = name.removeprefix("kube-")
        write_kubeconfig(directory / f"{name}.kubeconfig", certificates, user, server, context)
    shutil.copyfile(STAGES, directory / STAGES.name)
    commands = {
        ETCD: _etcd(directory, ports),
        API_SERVER: _merged(_api_server(certificates, ports), [*api_server_flags, *audit.flags(directory)]),
        CONTROLLER_MANAGER: _controller_manager(directory),
        KWOK: _kwok(directory),
    }
    processes = [
        {"name": name, "command": [str(programs[name]), *arguments], "autostart": name not in FOLLOWERS}
        for name, arguments in commands.items()
    ]
    processes += [{"name": name, "command": command, "autostart": False} for name, command in more]
    (directory / supervisor.PROCESSES).write_text(json.dumps(processes))


def _merged(flags: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return all flags. A flag of `others` replaces a flag with the same name in `flags`.

    Example: `_merged(["--v=1", "--port=80"], ["--v=4"])` returns `['--v=4', '--port=80']`.
    """
    return list({flag.partition("=")[0]: flag for flag in (*flags, *others)}.values())


def write_kubeconfig(path: Path, certificates: Path, user: str, server: str, context: str) -> None:
    """Write a kubeconfig that contains the certificate and key of `user`. Only the owner can read the file."""

    def encoded(name: str) -> str:
        return base64.b64encode((certificates / name).read_bytes()).decode()

    client = {
        "client-certificate-data": encoded(f"{user}.crt"),
        "client-key-data": encoded(f"{user}.key"),
    }
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": server, "certificate-authority-data": encoded("ca.crt")}}
        ],
        "users": [{"name": context, "user": client}],
        "contexts": [
            {"name": context, "context": {"cluster": context, "user": context, "namespace": "default"}}
        ],
        "current-context": context,
    }
    # JSON is valid YAML for kubectl
    pki.write_private(path, (json.dumps(config, indent=2) + "\n").encode())


def _etcd(directory: Path, ports: Ports) -> list[str]:
    client = f"https://{LOOPBACK}:{ports.etcd_client}"
    peer = f"https://{LOOPBACK}:{ports.etcd_peer}"
    certificates = directory / "pki"
    return [
        "--name=lab",
        f"--data-dir={directory / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--cert-file={certificates / 'etcd.crt'}",
        f"--key-file={certificates / 'etcd.key'}",
        "--client-cert-auth",
        f"--trusted-ca-file={certificates / 'etcd-ca.crt'}",
        f"--peer-cert-file={certificates / 'etcd.crt'}",
        f"--peer-key-file={certificates / 'etcd.key'}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={certificates / 'etcd-ca.crt'}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def claim_flags(kubernetes_minor: int | None) -> list[str]:
    """Return the API server's flags that serve ResourceClaims in v1beta1, as Google Distributed Cloud does.

    A release before 1.32 does not know v1beta1, and does not start with these flags. None means the newest release.
    """
    known = kubernetes_minor is None or kubernetes_minor >= _FIRST_WITH_CLAIMS_V1BETA1
    return ["--runtime-config=resource.k8s.io/v1beta1=true"] if known else []


def _api_server(certificates: Path, ports: Ports) -> list[str]:
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.api_server}",
        # the `kubernetes` service has no use without kube-proxy, and an endpoint must not be on loopback
        "--endpoint-reconciler-type=none",
        f"--etcd-servers=https://{LOOPBACK}:{ports.etcd_client}",
        f"--etcd-cafile={certificates / 'etcd-ca.crt'}",
        f"--etcd-certfile={certificates / 'etcd-client.crt'}",
        f"--etcd-keyfile={certificates / 'etcd-client.key'}",
        f"--tls-cert-file={certificates / 'apiserver.crt'}",
        f"--tls-private-key-file={certificates / 'apiserver.key'}",
        f"--client-ca-file={certificates / 'ca.crt'}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificates / 'service-account.pub'}",
        f"--service-account-signing-key-file={certificates / 'service-account.key'}",
        f"--service-cluster-ip-range={_SERVICE_ADDRESSES}",
        "--profiling=true",  # lets benchmarks start the server's garbage collection between two rounds
    ]


def _controller_manager(directory: Path) -> list[str]:
    certificates = directory / "pki"
    return [
        f"--kubeconfig={directory / (CONTROLLER_MANAGER + '.kubeconfig')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={certificates / 'service-account.key'}",
        f"--root-ca-file={certificates / 'ca.crt'}",
        f"--cluster-signing-cert-file={certificates / 'ca.crt'}",
        f"--cluster-signing-key-file={certificates / 'ca.key'}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-job-syncs=20",
        "--concurrent-statefulset-syncs=20",
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
        # on a machine under load, leases of simulated nodes can be renewed late
        "--node-monitor-grace-period=2m",
        "--profiling=false",
    ]


def _kwok(directory: Path) -> list[str]:
    return [
        f"--kubeconfig={directory / (KWOK + '.kubeconfig')}",
        f"--config={directory / STAGES.name}",
        f"--manage-nodes-with-annotation-selector={MANAGED_ANNOTATION}",
        "--node-lease-duration-seconds=40",
        f"--cidr={_POD_ADDRESSES}",
        f"--node-ip={LOOPBACK}",
    ]
