"""The stage deepops: Kubernetes by the kubespray that a release of DeepOps pins."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from deployment import addresses, matrix, proxy, upstream
from deployment.effects import effects
from deployment.site import Finding, Site
from deployment.stages import container_toolkit, device_plugin, dra, networks, served
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.runtime import container_runtime
from deployment.stages.steps import Step, version_of
from deployment.stages.words import count
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import Transport

_NO_WAY_BACK: Final = "objects are stored in the newer form; the way back is the etcd snapshot of before"


_FULL: Final = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")
"""A release of Kubernetes as kubespray names it."""


class Deepops(StageDefinition):
    """The stage that installs Kubernetes on all hosts. It runs on the controller, in its own Python environment."""

    name: ClassVar[str] = "deepops"
    needs: ClassVar[tuple[str, ...]] = ("versions", "deepops")
    host_group: ClassVar[str] = "cluster"
    changes_cluster: ClassVar[bool] = True
    is_upgraded_by_install: ClassVar[bool] = True

    def problems(self, site: Site) -> Iterator[Finding]:
        if not self.is_in(site):
            return
        for role in ("control_plane", "etcd"):
            if not any(role in host["roles"] for host in site.hosts.values()):
                yield Finding(
                    ("hosts",) if site.hosts else ("versions", "deepops"),
                    f"versions.deepops installs Kubernetes, and no host has the role {role}: give it to one or three",
                )
        if not any(addresses.malformed(site)):
            yield from networks.problems(site, str(self.value(site, "deepops_network_plugin")))
        yield from served.problems(site)

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        yield from _of_release(site) if self.is_in(site) else ()
        runtime, kubernetes = site.get("kubernetes", "container_runtime"), site.versions["kubernetes"]
        rows = [row for row in matrix.tables()["runtimes"] if row["runtime"] == runtime]
        if runtime and not any(matrix.within(kubernetes, row["kubernetes"]) for row in rows):
            place = ("kubernetes", "container_runtime")
            yield Finding(place, f"Kubernetes {kubernetes} does not run on {runtime}")

    def variables(self, site: Site) -> Variables:
        deepops = site.get("deepops", default={})
        row = matrix.deepops_row(site.versions.get("deepops", "")) or {}
        through = proxy.environment(site)
        return {
            "deepops_release": site.versions.get("deepops"),
            "deepops_commit": deepops.get("commit", row.get("commit")),
            "deepops_repository": deepops.get("repository"),
            "deepops_python": deepops.get("python"),
            "deepops_python_releases": row.get("python"),
            "deepops_kubernetes": site.versions["kubernetes"],
            "deepops_runtime": container_runtime(site),
            "deepops_docker_version": site.versions.get("docker"),
            "deepops_nvidia_runtime": container_runtime(site) == "containerd"
            and container_toolkit.STAGE.is_in(site),
            "deepops_network_plugin": site.get("kubernetes", "network_plugin"),
            "deepops_pod_subnet": site.get("kubernetes", "pod_subnet"),
            "deepops_service_subnet": site.get("kubernetes", "service_subnet"),
            "deepops_upstream_dns": site.get("kubernetes", "upstream_dns"),
            "deepops_batch": upgrade_batch(site),
            "deepops_drain_seconds": site.get("upgrade", "drain_seconds"),
            "deepops_http_proxy": through.get("http_proxy"),
            "deepops_https_proxy": through.get("https_proxy"),
            "deepops_no_proxy": through.get("no_proxy"),
            "deepops_served": served.variables(site) or None,
            "deepops_gpu_operator_enabled": deepops.get("gpu_operator", False),
        }

    def host_variables(self, host: dict[str, Any]) -> Variables:
        return {"deepops_node_address": host.get("node_address")}

    def sentence(self, site: Site) -> str:
        plugin = self.value(site, "deepops_network_plugin")
        if self.value(site, "deepops_gpu_operator_enabled"):
            devices = (
                "the GPU operator announces the GPUs. ON THE CONTROL PLANE, DeepOps' playbook for it installs the "
                "package openshift of PyPI in the newest version, and EPEL on RHEL"
            )
        elif dra.comes(site):
            devices = "the stage dra announces the GPUs"
        elif device_plugin.comes(site):
            devices = "the stage device_plugin announces the GPUs"
        else:
            devices = "nothing announces GPUs"
        kubernetes = f"Kubernetes {site.versions['kubernetes']} with {container_runtime(site)} and {plugin}"
        return (
            f"the kubespray of DeepOps {site.versions['deepops']}, in its own Python environment, installs "
            f"{kubernetes} on {count(len(site.hosts), 'host')}{served.words(site)}; {devices}. "
            f"ON EACH HOST: {_changes()}"
        )

    def joining_sentence(self, site: Site, joining: Sequence[str]) -> str:
        old = [name for name, host in site.hosts.items() if {"control_plane", "etcd"} & set(host["roles"])]
        return (
            f"kubespray's scale.yml joins {', '.join(joining)} to the cluster. On {', '.join(old)} its facts.yml reads "
            f"facts, and the first one creates a token and certificates. ON EACH JOINING HOST: {_changes()}"
        )

    def removal_sentence(self, site: Site) -> str:
        if self.value(site, "deepops_reset_nodes"):
            return "KUBERNETES IS RESET ON EVERY HOST, as deepops_reset_nodes says"
        return "Kubernetes stays on the hosts"

    def missing_requirements(self, site: Site, variables: Mapping[str, Any]) -> Iterator[Finding]:
        speaks_ssh = any(host.get("connection", "ssh") == "ssh" for host in site.hosts.values())
        packages = {"git": "git", **({"ssh": "openssh-client"} if speaks_ssh else {})}
        for program, package in packages.items():
            if shutil.which(program) is None:
                yield Finding(
                    ("versions",),
                    f"the stage deepops needs {program} on this machine, and it is not there: install the package "
                    f"{package}",
                )

    async def installed(self, transport: Transport, site: Site) -> dict[str, str]:
        """Return the kubelets' releases, by host."""
        nodes = await transport.get(NODES.path())
        return {
            node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"].lstrip("v")
            for node in nodes["items"]
            if node["metadata"]["name"] in site.hosts and node.get("status", {}).get("nodeInfo")
        }

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        goal = site.versions["kubernetes"]
        releases = sorted({release for release in installed.values() if release != goal}, key=version_of)
        if not releases:
            return
        oldest, newest, target = version_of(releases[0]), version_of(releases[-1]), version_of(goal)
        problem = ""
        if target.release[:2] < newest.release[:2]:
            problem = (
                f"Kubernetes goes from {releases[-1]} up by one minor release at a time and never back to {goal}. "
                "Name the running release in versions.kubernetes, or restore the etcd snapshot (docs/how-to/restore.md)"
            )
        elif target.major != oldest.major or target.minor - oldest.minor > 1:
            following = f"{oldest.major}.{oldest.minor + 1}"
            way = (
                f"name {following} in versions.kubernetes first, and the next when that runs"
                if _installs(following)
                else f"no DeepOps of the matrix installs {following}: install this site anew; the volumes stay"
            )
            problem = (
                f"Kubernetes goes from {releases[0]} up by one minor release at a time, not to {goal}: {way}"
            )
        irreversible = _NO_WAY_BACK if target.release[:2] > oldest.release[:2] else ""
        before = ", ".join(releases)
        yield Step(self.name, "Kubernetes", before, goal, irreversible, problem, ("versions", "kubernetes"))


def upgrade_batch(site: Site) -> str:
    """Maximum number of hosts that an upgrade takes out of service at the same time: a number, or a portion such as
    20%.
    """
    return str(site.get("upgrade", "batch", default=STAGE.default("deepops_batch")))


def _changes() -> str:
    """Return the changes of kubespray on a host, in a line."""
    return ", ".join(effect.summary for effect in effects())


def _of_release(site: Site) -> Iterator[Finding]:
    release, kubernetes = site.versions["deepops"], site.versions["kubernetes"]
    row = matrix.deepops_row(release)
    if row is None:
        known = ", ".join(row["release"] for row in matrix.tables()["deepops"])
        yield Finding(("versions", "deepops"), f"DeepOps {release} is not in the matrix: take one of {known}")
        return
    commit = site.get("deepops", "commit", default=row["commit"])
    if commit != row["commit"] and site.get("deepops", "repository") is None:
        yield Finding(
            ("deepops", "commit"),
            f"deepops.commit is another one than the matrix has checked ({row['commit']}): remove it, or name your own "
            "repository in deepops.repository",
        )
    docker = site.versions.get("docker")
    if docker and docker not in upstream.names()["docker"]:
        known = ", ".join(upstream.names()["docker"])
        yield Finding(
            ("versions", "docker"), f"kubespray does not install Docker {docker}: take one of {known}"
        )
    if not _FULL.fullmatch(kubernetes):
        known = " or ".join(row["kubernetes"])
        yield Finding(
            ("versions", "kubernetes"),
            f"kubespray has checksums of whole releases, and {kubernetes} is none: write three numbers without "
            f"leading zeros, of {known}",
        )
    elif not any(matrix.within(kubernetes, minor) for minor in row["kubernetes"]):
        known = " or ".join(row["kubernetes"])
        yield Finding(
            ("versions", "kubernetes"),
            f"DeepOps {release} does not install Kubernetes {kubernetes}, but {known} ({row['source']})",
        )
    for name, host in site.hosts.items():
        if host["os"] not in row["os"]:
            systems = ", ".join(row["os"])
            yield Finding(
                ("hosts", name, "os"), f"DeepOps {release} does not install on {host['os']}, but on {systems}"
            )


def _installs(minor: str) -> bool:
    """Return whether a DeepOps release of the matrix installs any patch release of a Kubernetes minor such as 1.34."""
    return any(f">={minor}." in ranges for row in matrix.tables()["deepops"] for ranges in row["kubernetes"])


STAGE: Final = Deepops()
