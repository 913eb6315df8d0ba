"""Checks before hosts join or leave an installed site, and the jobs that a removal interrupts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deployment import reachability, site_file
from deployment.cluster_record import call_api_server
from deployment.errors import InstallError
from deployment.fleet import INDISPENSABLE, KUBERNETES
from deployment.inventory import directory_of
from deployment.journal import Journal
from deployment.plan import RUN, StagePlan
from deployment.site import Finding, Site
from deployment.stages import deepops
from deployment.stages.words import count
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.names import WORKLOAD_LABEL
from orchestrator.progress import Reporter

LOST: Final = "deepops_lost=true"
"""The variable for the removal of a lost host: its node is deleted, and the host is not reset."""


def entry(directory: Path, state_dir: Path | None, host: str) -> tuple[str, str]:
    """Return the file and line of a host, and the time of its removal ("" if it was not removed).

    Raises UsageError for an unknown host.
    """
    site = site_file.load(directory)
    at = Journal(directory_of(site.name, state_dir)).removed_hosts().get(host, "")
    if not at and host not in site.hosts:
        raise UsageError(
            f"{host}: {site.document.path} has no such host; there are {', '.join(site.hosts) or 'none'}. An entry is "
            "deleted after the host was removed"
        )
    return f"{site.document.path}:{site.document.line(('hosts', host))}", at


def refused_added(site: Site, names: Sequence[str], decisions: Sequence[StagePlan]) -> list[Finding]:
    """Return a finding for each added host of the control plane or etcd, which cannot be added alone.

    Raises UsageError if Kubernetes is due on other hosts too.
    """
    if not set(names) <= site.hosts.keys():
        raise UsageError(
            f"--add is a list of hosts of {site.document.path}, separated by commas; no patterns and groups"
        )
    found = list(_indispensable(site, names, "run `muster install` without --add, which changes all hosts"))
    for decision in decisions:
        if not found and decision.stage.name == KUBERNETES and decision.verb == RUN and decision.due is None:
            raise UsageError(
                f"--add {','.join(names)}: the stage {KUBERNETES} is due on every host ({decision.reason}): run "
                "`muster install` without --add, or without the new hosts and changes first"
            )
    return found


def refused_removal(site: Site, host: str) -> Iterator[Finding]:
    """Yield the reasons why a host cannot leave the site."""
    if not deepops.STAGE.is_in(site):
        yield Finding(
            ("versions",),
            f"muster has not installed Kubernetes at this site: remove the node {host} with the tools of its cluster, "
            "then delete the entry of the host",
        )
    yield from _indispensable(site, [host], "muster removes hosts of neither role")
    with_gpus = [
        name
        for name, values in site.hosts.items()
        if "gpu" in values["roles"] and "maintenance" not in values
    ]
    if with_gpus == [host]:
        yield Finding(
            ("hosts", host, "roles"),
            f"{host} is the last host with the role gpu in service, and a site without GPUs cannot be verified. Add "
            "another host first, or remove the whole site with `muster teardown`",
        )


def _indispensable(site: Site, names: Sequence[str], remedy: str) -> Iterator[Finding]:
    for name in names:
        roles = [role for role in INDISPENSABLE if role in site.hosts[name]["roles"]]
        if roles and deepops.STAGE.is_in(site):
            yield Finding(
                ("hosts", name, "roles"),
                f"{name} has the role {' and '.join(roles)}, and the other hosts have such a host in their "
                f"configuration: {remedy}",
            )


def still_named(site: Site, removed: Mapping[str, str], present: str) -> Iterator[Finding]:
    """Yield the removed hosts that the site file still names, except `present`, the host of this run."""
    for host, at in removed.items():
        if host in site.hosts and host != present:
            yield Finding(
                ("hosts", host),
                f"{host} was removed from the cluster {at}: delete its entry, or install it again with "
                f"`muster install --add {host}`",
            )


def check_reached(host: str, values: dict[str, Any], progress: Reporter, *, lost: bool) -> None:
    """Raise InstallError for a host that is not ready, and UsageError for a lost host that answers."""
    found = reachability.problems({host: values}, progress)
    if found and not lost:
        raise InstallError(
            f"{host}: not ready; nothing was changed. Repair it; if that is impossible, remove it with --lost"
        )
    if lost and not found:
        raise UsageError(f"{host} is not lost, it answers: remove it without --lost")


def jobs_on(kubeconfig: Path, context: str, host: str) -> list[str]:
    """Return the jobs with pods on a node, each with the number of these pods. Raises ConfigurationError."""
    pods: Counter[str] = Counter()

    async def read(transport: Transport) -> None:
        page = await transport.list(
            PODS.path(), dict[str, Any], params={"fieldSelector": f"spec.nodeName={host}"}
        )
        for pod in page.items:
            metadata = pod["metadata"]
            owners = metadata.get("ownerReferences") or [{"kind": "", "name": metadata["name"]}]
            is_bound = owners[0]["kind"] in {"DaemonSet", "Node"}  # ends with its node
            if not is_bound and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                name = metadata.get("labels", {}).get(WORKLOAD_LABEL, owners[0]["name"])
                pods[f"{metadata['namespace']}/{name}"] += 1

    problem = call_api_server(kubeconfig, context, read)
    if problem:
        raise ConfigurationError(f"the jobs on {host} cannot be read ({problem}); nothing was changed")
    return [f"{name} ({count(number, 'pod')})" for name, number in sorted(pods.items())]
