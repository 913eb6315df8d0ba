"""The stage orchestrator: muster itself in the cluster."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from deployment import matrix
from deployment.site import Finding, Site
from deployment.stages import container_toolkit
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.words import count
from deployment.variable_checks import extra

MUSTER: Final = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from orchestrator.cli.main import main; sys.exit(main())",
]
"""The words that run this installation of muster, for any value of PATH."""

_CLUSTER_DOMAIN: Final = "cluster.local"
"""The domain of services by default."""


class Orchestrator(StageDefinition):
    """The stage that installs definitions, rights and settings, and the operator unless it runs elsewhere."""

    name: ClassVar[str] = "orchestrator"
    on_cluster: ClassVar[bool] = True
    changes_cluster: ClassVar[bool] = True

    def problems(self, site: Site) -> Iterator[Finding]:
        variables = extra(site)
        cluster_domain = str(
            variables.get("dns_domain", variables.get("cluster_name", _CLUSTER_DOMAIN))
        ).lower()
        domain = site.get("orchestrator", "ingress", "domain", default="")
        if domain == cluster_domain or domain.endswith(f".{cluster_domain}"):
            yield Finding(
                ("orchestrator", "ingress", "domain"),
                f"orchestrator.ingress.domain: {domain} is in {cluster_domain}, which only the cluster's own DNS "
                "serves: take a domain of the site",
            )

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        kubernetes = site.versions["kubernetes"]
        row = matrix.tables()["orchestrator"][0]
        if self.is_in(site) and not matrix.within(kubernetes, row["kubernetes"]):
            yield Finding(
                ("versions", "kubernetes"),
                f"the orchestrator needs Kubernetes {row['kubernetes']}, this is {kubernetes} ({row['source']})",
            )

    def variables(self, site: Site) -> Variables:
        return {
            "orchestrator_cluster": site.name,
            "orchestrator_image": site.get("orchestrator", "image"),
            "orchestrator_ingress_class": site.get("orchestrator", "ingress", "class"),
            "orchestrator_ingress_domain": site.get("orchestrator", "ingress", "domain"),
            "orchestrator_replicas": site.get("orchestrator", "replicas"),
            "orchestrator_devices_by_variable": container_toolkit.nodes_obey_variable(site),
            "orchestrator_muster": MUSTER,
        }

    def sentence(self, site: Site) -> str:
        replicas = self.value(site, "orchestrator_replicas")
        image = self.value(site, "orchestrator_image")
        domain = self.value(site, "orchestrator_ingress_domain")
        runs = (
            f"{count(replicas, 'replica')}{f' of {image}' if image else ''}"
            if replicas
            else "no operator in the cluster"
        )
        hosts = f", projects' jobs at PROJECT.{domain}" if domain else ""
        variable = (
            "; containers of projects must set NVIDIA_VISIBLE_DEVICES"
            if self.value(site, "orchestrator_devices_by_variable")
            else ""
        )
        return f"definitions, rights and settings of muster, {runs}{hosts}{variable}"

    def missing_requirements(self, site: Site, variables: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the image of the operator if it is not set: there is no published image."""
        if self.value(site, "orchestrator_replicas") and "orchestrator_image" not in variables:
            yield Finding(
                ("orchestrator",) if site.get("orchestrator") else ("name",),
                "orchestrator.image is missing, and there is no published image; build it with `make image`. "
                "Push it to a registry that the nodes reach, and name it with its tag",
            )


STAGE: Final = Orchestrator()
