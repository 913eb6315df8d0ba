"""The last steps of a rehearsal with faults: driver and Kubernetes are upgraded under running jobs; all is removed."""

import json
import re
from collections.abc import Iterable
from typing import Final

from tests.rehearsal import machines, recipes, site
from tests.rehearsal.chain import MUSTER, Chain, Step, StepFailed, wait_for_gpus, write_site

_PROJECT: Final = "upgraded"
_IMAGE: Final = ("--image", "docker.io/library/busybox:latest", "--image-pull-policy", "IfNotPresent")
_WORK: Final = ("--", "sh", "-c", "trap 'exit 143' TERM; while :; do sleep 1; done")
_JOBS: Final = {
    "single": ("-g", "1"),
    "gang": ("-g", "2", "--parallelism", "2", "--completions", "2", "--min-member", "2"),
}
"""A job on one GPU, and two pods with two GPUs each that run only together."""
_REMOVALS: Final = "  deepops_reset_nodes: true\n  teardown_hosts: true\n"
_PODS: Final = {"single": 1, "gang": 2}
_AGAIN_SECONDS: Final = 300
_MAY_STAY: Final = re.compile(
    r"/etc/(group|gshadow|passwd|shadow|pam\.d/|rc\w\.d/|sgml/|xml/|apparmor\.d/|ssl/certs/|systemd/user/)"
    r"|/etc/systemd/system/\w[\w-]*\.target\.wants/apparmor\.service$"
    r"|/usr/(lib/python3/|lib/modules/|share/doc/|share/man/)"
    r"|/var/(cache|log)/|/var/lib/(apt|dpkg|pam|sgml-base|systemd|xml-core|PackageKit)/"
    r"|/etc/containerd/|/etc/systemd/logind\.conf\.d/99-kubelet\.conf$|/etc/systemd/system/swap\.target$"
    r"|/(etc/systemd/system/multi-user\.target\.wants|usr/lib/systemd/system)/containerd\.service$"
    r"|/opt/cni/bin/|/usr/bin/(containerd[\w-]*|ctr|runc|fs-idmap|memfd-bind|pidfd-kill|remap-rootfs)$|/usr/sbin/runc$"
    r"|/usr/local/bin/etcdutl$|/var/backups/etcd-"
    r"|/var/lib/muster/snapshots/"
    r"|/srv/processors\.on$"
)
"""Files that a teardown may leave: of Debian's packages, of kubespray's reset, snapshots of etcd, and of the rehearsal.

docs/reference/rehearsal.md has the list.
"""


def start_jobs(chain: Chain) -> None:
    """Start the jobs, and wait until all their pods run."""
    chain.call("project", *MUSTER, "project", "create", _PROJECT, "--gpu", "8")
    for name, options in _JOBS.items():
        chain.call(f"submit-{name}", *MUSTER, "submit", name, "-p", _PROJECT, *options, *_IMAGE, *_WORK)
    _wait_for_jobs(chain)


def upgrade(chain: Chain) -> None:
    """Upgrade driver and Kubernetes under the jobs; afterwards the hosts have both, and every pod runs again."""
    write_site(chain, site.NEWEST)
    chain.muster("upgrade", "upgrade")
    nodes = json.loads(chain.kubectl("get", "nodes", "-o", "json"))["items"]
    releases = {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes}
    closed = [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]
    if releases != {f"v{recipes.KUBERNETES}"} or closed:
        raise StepFailed(
            f"after the upgrade the kubelets are {releases}, and the nodes {closed} are cordoned"
        )
    wait_for_gpus(chain)
    _wait_for_jobs(chain)


def end_jobs(chain: Chain) -> None:
    """See that a teardown is refused under the running jobs; then delete them with their project."""
    said = chain.muster("refused-teardown", "teardown", "--yes", allowed=(1,))
    if "pods run that the orchestrator has placed" not in " ".join(said.split()):
        raise StepFailed("teardown does not refuse under running jobs; see refused-teardown.log")
    chain.call("delete-project", *MUSTER, "project", "delete", _PROJECT, "--force")


def remove(chain: Chain) -> None:
    """Remove the site. Raises StepFailed for a file on a host that is not in the list of what may stay."""
    document = chain.folder / "site" / "site.yml"
    text = document.read_text()
    if _REMOVALS not in text:
        document.write_text(text.replace("vars:\n", f"vars:\n{_REMOVALS}"))
    chain.muster("teardown", "teardown", "--yes")
    check_leftovers(machines.load(chain.folder / "hosts"))


def check_leftovers(hosts: Iterable[machines.Machine]) -> None:
    """Print the packages that the hosts have besides, and raise StepFailed for a file that may not stay."""
    for host in hosts:
        packages, files = host.left()
        print(f"{host.name}: teardown leaves {len(packages)} packages: {' '.join(sorted(packages))}")
        unknown = sorted(file for file in files if not _MAY_STAY.match(file))
        if unknown:
            raise StepFailed(f"teardown leaves on {host.name}: {' '.join(unknown)}")


def _wait_for_jobs(chain: Chain) -> None:
    for name, pods in _PODS.items():
        chain.kubectl(
            "wait", f"job/{name}", "-n", f"muster-{_PROJECT}", f"--for=jsonpath={{.status.ready}}={pods}",
            f"--timeout={_AGAIN_SECONDS}s",
        )  # fmt: skip


UPGRADE: Final = (
    Step("jobs", start_jobs),
    Step("muster upgrade", upgrade),
    Step("muster verify after the upgrade", lambda chain: print(chain.muster("upgraded", "verify"))),
    Step("the jobs end", end_jobs),
)
REMOVAL: Final = (Step("muster teardown", remove),)
