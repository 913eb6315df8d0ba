"""The stage preflight: whether hosts and versions match the site file."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from deployment import vulnerabilities
from deployment.site import Finding, Site
from deployment.stages import container_toolkit, deepops, driver, host_network, ontap
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.runtime import container_runtime
from deployment.stages.words import count
from deployment.variable_checks import unchecked_host_keys


class Preflight(StageDefinition):
    """The stage that compares the hosts with the site file. It changes nothing."""

    name: ClassVar[str] = "preflight"
    looks_only: ClassVar[bool] = True

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        yield from vulnerabilities.refused_releases(site)

    def notes(self, site: Site) -> Iterator[str]:
        yield from site.lines(unchecked_host_keys(site))
        yield from vulnerabilities.warned_releases(vulnerabilities.chosen(site))
        if deepops.STAGE.is_in(site):
            for warning in vulnerabilities.warned_releases(vulnerabilities.brought(site)):
                yield f"{warning}. DeepOps {site.versions['deepops']} brings it"
            yield from vulnerabilities.unlisted(site)

    def variables(self, site: Site) -> Variables:
        lifs = site.get("storage", "ontap", "data_lifs", default=[])
        installs_kubernetes = deepops.STAGE.is_in(site)
        return {
            "preflight_mtu": site.get("network", "mtu"),
            "preflight_kubernetes": None if installs_kubernetes else site.versions["kubernetes"],
            "preflight_storage_addresses": [lif["address"] for lif in lifs],
            "preflight_storage_comes": ontap.STAGE.is_in(site) or host_network.STAGE.is_in(site),
            "preflight_upstream_dns": site.get("kubernetes", "upstream_dns"),
            "preflight_container_runtime": container_runtime(site) if installs_kubernetes else None,
            "preflight_refused": vulnerabilities.rows("refused"),
            "preflight_warned": vulnerabilities.rows("warned"),
            "preflight_installed": [
                *(["container_toolkit"] if container_toolkit.STAGE.is_in(site) else []),
                *(["driver"] if driver.STAGE.is_in(site) else []),
                *(["kubernetes", "containerd", "runc"] if installs_kubernetes else []),
            ],
        }

    def host_variables(self, host: dict[str, Any]) -> Variables:
        return {"preflight_os": host["os"], "preflight_model": host.get("model")}

    def sentence(self, site: Site) -> str:
        hosts = f"compare {count(len(site.hosts), 'host')} with the site file: system, model, disk, memory"
        cluster = f"ask the cluster for Kubernetes {site.versions['kubernetes']}"
        parts = [hosts if site.hosts else "", "" if deepops.STAGE.is_in(site) else cluster]
        return "; ".join(filter(None, parts))


STAGE: Final = Preflight()
