"""The stage trident: NetApp's Trident with its backends and storage classes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from deployment import matrix
from deployment.site import Finding, Place, Site
from deployment.stages import mount_options, ontap
from deployment.stages.api import items
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.secrets import secret
from deployment.stages.steps import Step, component_steps
from orchestrator.cluster.resources import Resource
from orchestrator.cluster.transport import Transport

HINT_OF_CHECKSUM: Final = "the page of a release shows the SHA-256 beside trident-installer"

_NO_WAY_BACK: Final = "its definitions and their stored objects take the newer form"
_ORCHESTRATORS: Final = Resource(
    "trident.netapp.io", "v1", "tridentorchestrators", "TridentOrchestrator", namespaced=False
)
_PROVISIONERS: Final = Resource("trident.netapp.io", "v1", "tridentprovisioners", "TridentProvisioner")

_OVER_ISCSI: Final = frozenset({"ontap-san"})


class Trident(StageDefinition):
    """The stage that installs Trident by its operator, then backends, storage classes and the objects for volume
    snapshots.
    """

    name: ClassVar[str] = "trident"
    needs: ClassVar[tuple[str, ...]] = ("versions", "trident")
    on_cluster: ClassVar[bool] = True
    changes_cluster: ClassVar[bool] = True
    is_upgraded_by_install: ClassVar[bool] = True

    def problems(self, site: Site) -> Iterator[Finding]:
        yield from _of_classes(site)
        yield from _over_iscsi(site)
        yield from _unmade_interfaces(site)
        for index, backend in enumerate(site.get("storage", "backends", default=[])):
            if {"qosPolicy", "adaptiveQosPolicy"} <= set(backend.get("defaults", {})):
                yield Finding(
                    ("storage", "backends", index, "defaults"),
                    f"backend {backend['name']} has qosPolicy and adaptiveQosPolicy: Trident takes one of them",
                )
        for kind in ("backends", "classes"):
            names: set[str] = set()
            for index, entry in enumerate(site.get("storage", kind, default=[])):
                if entry["name"] in names:
                    place: Place = ("storage", kind, index)
                    yield Finding(place, f"storage.{kind} has {entry['name']} twice: rename one")
                names.add(entry["name"])

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        if not self.is_in(site):
            return
        release, kubernetes = site.versions["trident"], site.versions["kubernetes"]
        rows = matrix.tables()["trident"]
        row = next((row for row in rows if matrix.within(release, row["release"])), None)
        if row is None:
            known = ", ".join(row["release"] for row in rows)
            yield Finding(("versions", "trident"), f"Trident {release} is not in the matrix: {known} are")
            return
        if not matrix.within(kubernetes, row["kubernetes"]):
            yield Finding(
                ("versions", "trident"),
                f"Trident {release} does not run on Kubernetes {kubernetes}, but on {row['kubernetes']} "
                f"({row['source']})",
            )
        system = site.versions.get("ontap")
        if system and not matrix.within(system, row["ontap"]):
            yield Finding(
                ("versions", "ontap"), f"Trident {release} needs ONTAP {row['ontap']} ({row['source']})"
            )

    def variables(self, site: Site) -> Variables:
        release = site.versions.get("trident")
        if release is None:
            return {}
        system = site.get("storage", "ontap", default={})
        digest = site.get("storage", "trident", "sha256")
        return {
            "trident_version": release,
            "trident_archive": site.get("storage", "trident", "archive"),
            "trident_checksum": digest and f"sha256:{digest}",
            "trident_backends": site.get("storage", "backends"),
            "trident_classes": site.get("storage", "classes"),
            "trident_management_lif": system.get("svm_management_lif", {}).get(
                "address", system.get("management_lif")
            ),
            "trident_management_port": system.get("https_port"),
            "trident_svm": system.get("svm"),
            "trident_export_cidrs": system.get("export_cidrs"),
            "trident_username": system.get("trident_username"),
            "trident_password": secret(system.get("trident_password")),
        }

    def notes(self, site: Site) -> Iterator[str]:
        if not site.get("storage", "classes"):
            yield site.problem(
                ("versions", "trident"),
                "no claim gets a volume from Trident without storage.backends and storage.classes",
            )
        for storage_class in site.get("storage", "classes", default=[]):
            for question in mount_options.unknown(_options(storage_class)):
                yield f"class {storage_class['name']}: {question}"

    def sentence(self, site: Site) -> str:
        classes = [
            f"{storage_class['name']}{' (default)' if storage_class.get('default') else ''}"
            for storage_class in self.value(site, "trident_classes")
        ]
        backends = [
            f"{backend['name']} ({backend['driver']})" for backend in self.value(site, "trident_backends")
        ]
        storage = f"backends {', '.join(backends) or 'none'}, classes {', '.join(classes) or 'none'}"
        return f"Trident {site.versions['trident']}, {storage}"

    def missing_requirements(self, site: Site, variables: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield a finding if the archive must be fetched and its digest is unknown."""
        archive = str(variables.get("trident_archive", "the archive of the release"))
        is_local = "trident_archive" in variables and "://" not in archive
        if not is_local and not variables.get("trident_checksum"):
            yield Finding(
                ("versions", "trident"),
                f"storage.trident.sha256 is missing, and no other digest of {archive} is known; "
                + HINT_OF_CHECKSUM,
            )

    async def installed(self, transport: Transport, site: Site) -> dict[str, str]:
        namespace = str(self.value(site, "trident_namespace"))
        for path in (_ORCHESTRATORS.path(), _PROVISIONERS.path(namespace)):
            for entry in await items(transport, path):
                release = entry.get("status", {}).get("version", "")
                if release:
                    return {self.name: str(release).lstrip("v")}
        return {}

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        before, after = installed.get(self.name, ""), site.versions.get("trident", "")
        yield from component_steps(self.name, "Trident", before, after, no_way_back=_NO_WAY_BACK, minor=2)


def _of_classes(site: Site) -> Iterator[Finding]:
    """Yield classes without a backend, and classes with a version of NFS that the SVM does not serve.

    Also yield a finding unless exactly one class is the default.
    """
    backends = {entry["name"] for entry in site.get("storage", "backends", default=[])}
    classes = site.get("storage", "classes", default=[])
    served = ontap.nfs_versions(site)
    for index, storage_class in enumerate(classes):
        if storage_class["backend"] not in backends:
            backend: Place = ("storage", "classes", index, "backend")
            yield Finding(backend, f"there is no backend {storage_class['backend']} in storage.backends")
        place: Place = ("storage", "classes", index, "mount_options")
        for problem in mount_options.problems(_options(storage_class)):
            yield Finding(place, f"class {storage_class['name']}: mount option {problem}")
        for option in _options(storage_class):
            name, _, version = option.partition("=")
            if re.fullmatch(r"v[234](\.[0-9])?", option):
                name, version = "vers", option[1:]
            if name in {"vers", "nfsvers"} and version not in served:
                yield Finding(
                    place,
                    f"class {storage_class['name']} mounts with {option}, and storage.ontap.nfs_versions "
                    f"has {', '.join(served)} alone",
                )
    defaults = [index for index, storage_class in enumerate(classes) if storage_class.get("default")]
    if classes and len(defaults) != 1:
        second_default: Place = ("storage", "classes", defaults[1] if defaults else 0)
        yield Finding(second_default, f"{len(defaults)} of the classes are the default: exactly one must be")


def _options(storage_class: Mapping[str, Any]) -> list[str]:
    """Return the mount options of a class. A text can have several options, with commas between them."""
    return [option for text in storage_class.get("mount_options", []) for option in text.split(",")]


def _over_iscsi(site: Site) -> Iterator[Finding]:
    """Yield backends that use iSCSI, because no stage prepares the hosts for it."""
    for index, backend in enumerate(site.get("storage", "backends", default=[])):
        if backend["driver"] in _OVER_ISCSI:
            yield Finding(
                ("storage", "backends", index, "driver"),
                f"backend {backend['name']}: {backend['driver']} needs iSCSI and multipath on every host, and no "
                "stage sets them up. Take ontap-nas or ontap-nas-flexgroup here. For SAN prepare the hosts, then apply "
                "a TridentBackendConfig of your own",
            )


def _unmade_interfaces(site: Site) -> Iterator[Finding]:
    """Yield backends with a `data_lif` that is not an interface of `storage.ontap`."""
    known = {interface["address"] for interface in site.get("storage", "ontap", "data_lifs", default=[])}
    for index, backend in enumerate(site.get("storage", "backends", default=[])):
        address = backend.get("data_lif")
        if address and known and address not in known:
            yield Finding(
                ("storage", "backends", index, "data_lif"),
                f"backend {backend['name']} serves through {address}, and no entry of storage.ontap.data_lifs has it "
                f"({', '.join(sorted(known))} are there): correct it",
            )


STAGE: Final = Trident()
