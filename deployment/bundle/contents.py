"""The contents of a bundle, derived from the site file, the compatibility matrix and the roles' variables.

This module has no list of its own. It takes URLs and package names from the roles' variables, with the values of the
site.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deployment import inventory, matrix, playbook
from deployment.bundle import registry
from deployment.bundle import wheels as pip
from deployment.bundle.git import Checkout
from deployment.bundle.packages import PackageSet, Source, source
from deployment.content import Content
from deployment.errors import BundleError
from deployment.site import Site
from deployment.stages import deepops, orchestrator, trident
from deployment.stages.runtime import container_runtime
from orchestrator.bounded_yaml import fast_yaml


@dataclass(frozen=True)
class Chart:
    """A chart at the URL of its repository, and the role variable that names it."""

    repository: str
    name: str
    version: str
    variable: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Download:
    """One file. `variable` is the role variable that names it. `fix` says where a missing SHA-256 must be written."""

    url: str
    variable: str = ""
    sha256: str = ""
    fix: str = ""


@dataclass
class Contents:
    """Everything to fetch into a bundle. `gaps` are needs that a bundle does not cover, each a sentence."""

    packages: list[PackageSet] = field(default_factory=list)
    wheels: dict[pip.Target, list[pip.Wheel]] = field(default_factory=dict)
    checkouts: list[Checkout] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    files: list[Download] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


class Derivation:
    """Derives the contents of the bundle of one site. Raises BundleError or ConfigurationError."""

    def __init__(self, site: Site, content: Content, lock: Path) -> None:
        self.site = site
        self._content = content
        self._lock = lock
        self._inventory = inventory.build(site)
        groups = inventory.groups(self._inventory)
        self._stages = {
            stage.name for stage in playbook.read(content) if not playbook.not_applicable(stage, site, groups)
        }

    def contents(self) -> Contents:
        """Return everything that the stages of the site fetch."""
        contents = Contents(images=list(self.site.get("bundle", "images", default=[])))
        for entry in self.site.get("bundle", "files", default=[]):
            url, _, digest = entry.partition("#sha256=")
            contents.files.append(Download(url, sha256=digest))
        contents.charts += [Chart(**entry) for entry in self.site.get("bundle", "charts", default=[])]
        self._packages(contents)
        self._wheels(contents)
        self._deepops(contents)
        self._trident(contents)
        self._helm(contents)
        self._device_plugin(contents)
        self._dra(contents)
        self._orchestrator(contents)
        return contents

    def _role(self, role: str) -> dict[str, Any]:
        """Return the variables of a role for a run: the defaults of the role, overridden by the values of the site."""
        values: dict[str, Any] = {}
        for part in ("vars", "defaults"):
            path = self._content.roles / role / part / "main.yml"
            if path.is_file():
                values |= fast_yaml(path.read_text()) or {}
        values.update(self._inventory["all"]["vars"])
        return values

    def _text(self, role: str, name: str) -> str:
        """Return a variable as text. Values of the site file are data; only texts of the roles are templates."""
        site_values = self._inventory["all"]["vars"]
        text = str(self._role(role).get(name, ""))
        if name not in site_values and "{{" in text:
            environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
            try:
                text = environment.from_string(text).render(self._role(role))
            except jinja2.TemplateError as error:
                raise BundleError(
                    f"{name} of the role {role} cannot be known before the run: {error}"
                ) from error
        if "{{" in text or "{%" in text:
            raise BundleError(
                f"{name} of the role {role} is `{text}`: a bundle does not evaluate templates of the site file; "
                "write the value itself"
            )
        return text

    def _packages(self, contents: Contents) -> None:
        for system in sorted({host["os"] for host in self.site.hosts.values()}):
            more = self.site.get("bundle", "packages", system, default=[])
            choices = [tuple(sorted({*choice, *more})) for choice in self._choices(system)]
            lines = [
                f"deb [signed-by={row['keyring']}] {line}"
                for row in matrix.tables()["repositories"]
                if system in row["os"]
                for line in row["sources"]
            ]
            lines = self.site.get("bundle", "repositories", system, default=lines)
            if not any(choices):
                continue
            if not lines:
                names = ", ".join(sorted({name for choice in choices for name in choice}))
                contents.gaps.append(f"packages of {system}: no repository is known for it; provide {names}")
                continue
            sources = [*map(source, lines), *self._toolkit_source()]
            contents.packages.append(PackageSet(system, tuple(sources), tuple(sorted(set(choices)))))

    def _choices(self, system: str) -> Iterator[list[str]]:
        """Yield lists of packages for hosts of the system: the common ones, and a list for each possible driver."""
        hosts = [host for host in self.site.hosts.values() if host["os"] == system]
        common = []
        if "docker" in self._stages:
            own = self._role("docker")
            common += own.get("docker_packages") or own.get("__docker_packages_of", {}).get("Debian", [])
        if "nfs_client" in self._stages:
            own = self._role("nfs_client")
            common += own.get("nfs_client_packages") or own["__nfs_client_packages_of"]["Debian"]
        gpus = [host for host in hosts if "gpu" in host["roles"]]
        if gpus and "container_toolkit" in self._stages:
            own = self._role("container_toolkit")
            pin = f"{own['container_toolkit_version']}-{own['container_toolkit_package_revision']}"
            common += [f"{name}={pin}" for name in own["__container_toolkit_packages"]]
        yield common
        if gpus and "driver" in self._stages and not system.startswith("rhel"):
            for host in gpus:
                yield from ([*common, *names] for names in self._drivers(host))

    def _drivers(self, host: dict[str, Any]) -> Iterator[list[str]]:
        own = self._role("driver")
        row, model = own["__driver_table"][host["os"]], own["__driver_models"][host["model"]]
        names = (
            row["packages"]
            + (row["nvswitch"] if model["nvswitch"] else [])
            + (["nvlsm"] if model.get("nvlink_5") else [])
            + own["driver_extra_packages"]
        )
        suffixes = {"open": ["-open"], "proprietary": [""]}.get(
            str(own["driver_kernel_modules"]), ["", "-open"]
        )
        may_be_open = (
            row["open"]
            and not model["volta"]
            and int(own["driver_branch"]) >= own["__driver_first_open_branch"]
        )
        for suffix in suffixes if may_be_open else [""]:
            filled = [
                name.replace("{branch}", str(own["driver_branch"])).replace("{open}", suffix)
                for name in names
            ]
            yield [name for name in filled if name not in own["driver_skip_packages"]]

    def _toolkit_source(self) -> list[Source]:
        if "container_toolkit" not in self._stages:
            return []
        base = self._text("container_toolkit", "container_toolkit_repository")
        key = self._text("container_toolkit", "container_toolkit_key_url")
        digest = self._text("container_toolkit", "container_toolkit_key_sha256")
        line = f"deb [signed-by={key}#sha256={digest}] {base}/deb/amd64 /"
        return [replace(source(line), variable="container_toolkit_repository")]

    def _wheels(self, contents: Contents) -> None:
        default = [".".join(map(str, sys.version_info[:2]))]
        for python in self.site.get("bundle", "python", default=default):
            target = pip.Target((3, int(python.partition(".")[2])))
            contents.wheels[target] = pip.of_uv_lock(self._lock, target)
            if "deepops" in self._stages:
                lock = (
                    self._content.roles
                    / "deepops"
                    / "files"
                    / f"requirements-{self.site.versions['deepops']}.txt"
                )
                row = matrix.deepops_row(self.site.versions["deepops"]) or {}
                if python not in row.get("python", [python]):
                    contents.gaps.append(
                        f"the Python environment of DeepOps {row['release']}: it runs on {', '.join(row['python'])}, "
                        f"and this bundle is for {python}"
                    )
                elif lock.is_file():
                    contents.wheels[target] += pip.of_requirements(lock, target)
                else:
                    contents.gaps.append(f"the Python environment of DeepOps: there is no lock {lock.name}")

    def _deepops(self, contents: Contents) -> None:
        if "deepops" not in self._stages:
            return
        url, commit = self._text("deepops", "deepops_repository"), self._text("deepops", "deepops_commit")
        contents.checkouts.append(
            Checkout("deepops", url, self.site.versions["deepops"], commit, "deepops_repository")
        )
        self._kubespray(contents)
        if self.site.get("deepops", "gpu_operator"):
            contents.gaps.append(
                "the downloads of DeepOps' playbook of the GPU operator on the first control plane host. Copy NVIDIA's "
                "charts to a server of the site, and name it in gpu_operator_helm_repo under "
                "vars.deepops_extra_variables. Name the images of the charts in bundle.images. Give pip there an index "
                "with the package openshift. The device plugin needs none of these"
            )

    def _kubespray(self, contents: Contents) -> None:
        """Add the files and images that kubespray fetches, or a gap if the matrix does not list them."""
        chosen = {
            "deepops": self.site.versions["deepops"],
            "kubernetes": self.site.versions["kubernetes"],
            "runtime": container_runtime(self.site),
            "network_plugin": deepops.STAGE.value(self.site, "deepops_network_plugin"),
        }
        rows = [row for row in matrix.tables()["downloads"] if chosen.items() <= row.items()]
        if not rows:
            known = ", ".join(row["kubernetes"] for row in matrix.tables()["downloads"])
            contents.gaps.append(
                "the downloads of kubespray (kubeadm, kubelet, etcd, CNI plugins, their images): the matrix lists them "
                f"for Kubernetes {known} with containerd and Calico. Create others with kubespray's contrib/offline, "
                "and name them under bundle.files and bundle.images"
            )
        for row in rows:
            files = (entry.partition("#sha256=") for entry in row["files"])
            contents.files += [Download(url, sha256=digest) for url, _, digest in files]
            contents.images += row["images"]

    def _trident(self, contents: Contents) -> None:
        if "trident" not in self._stages:
            return
        checksum = self._text("trident", "trident_checksum").removeprefix("sha256:")
        archive = self._text("trident", "trident_archive")
        if "://" in archive:
            contents.files.append(
                Download(
                    archive,
                    "trident_archive",
                    checksum,
                    f"name its SHA-256 in storage.trident.sha256; {trident.HINT_OF_CHECKSUM}",
                )
            )
        release = self.site.versions["trident"]
        images = matrix.images_of("trident", release)
        if not images:
            contents.gaps.append(
                f"the images of Trident {release}: the matrix does not know them; name under bundle.images those that "
                "`tridentctl images` prints"
            )
        contents.images += images

    def _helm(self, contents: Contents) -> None:
        archive = self._text("helm", "helm_archive")
        if (
            {"device_plugin", "dra"} & self._stages
            and not self._text("helm", "helm_program")
            and "://" in archive
        ):
            contents.files.append(Download(archive, "helm_archive", self._text("helm", "helm_sha256")))

    def _device_plugin(self, contents: Contents) -> None:
        if "device_plugin" not in self._stages:
            return
        chart, version = (
            self._text("device_plugin", f"device_plugin_{part}") for part in ("chart", "version")
        )
        if "://" in chart:
            repository, _, file = chart.rpartition("/")
            sha256 = self._text("device_plugin", "device_plugin_sha256")
            name = file.removesuffix(f"-{version}.tgz")
            contents.charts.append(Chart(repository, name, version, "device_plugin_chart", sha256))
        contents.images += matrix.images_of("device_plugin", version)

    def _dra(self, contents: Contents) -> None:
        if "dra" not in self._stages:
            return
        chart, version = self._text("dra", "dra_chart"), self._text("dra", "dra_version")
        if "://" in chart:
            repository, _, name = chart.rpartition("/")
            contents.charts.append(Chart(repository, name, version, "dra_chart"))

    def _orchestrator(self, contents: Contents) -> None:
        if "orchestrator" not in self._stages or self.site.get("orchestrator", "replicas") == 0:
            return
        image = self.site.get("orchestrator", "image")
        words = [
            *orchestrator.MUSTER,
            "operator-yaml",
            "--cluster",
            self.site.name,
            *(["--image", image] if image else []),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise BundleError(f"the orchestrator's YAML cannot be rendered: {done.stderr.strip()}")
        for document in yaml.safe_load_all(done.stdout):
            if document and document["kind"] == "Deployment":
                contents.images += [
                    container["image"] for container in document["spec"]["template"]["spec"]["containers"]
                ]


def is_oci(chart: Chart) -> bool:
    """Return whether the chart is in a registry."""
    return chart.repository.startswith("oci://")


def chart_reference(chart: Chart) -> registry.Reference:
    """Return the chart's name in its registry."""
    return registry.parse_reference(f"{chart.repository}/{chart.name}", chart.version)
