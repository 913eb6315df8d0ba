"""The stage device_plugin: NVIDIA's device plugin and feature discovery, by their chart."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from deployment import matrix
from deployment.site import Finding, Site
from deployment.stages import dra, helm
from deployment.stages.definition import Variables
from deployment.stages.steps import Step, version_of

OFF, AUTO = "off", "auto"
_PLACE: Final = ("versions", "device_plugin")


class DevicePlugin(helm.ChartStage):
    """The chart of the device plugin. Its role labels the nodes with GPUs, and the chart runs there."""

    name: ClassVar[str] = "device_plugin"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        number, why = release(site)
        return "" if number else why

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        number = site.versions.get("device_plugin", AUTO)
        if number in {OFF, AUTO} or not self.is_in(site):
            return
        if matrix.device_plugin_row(number) is None:
            known = ", ".join(row["release"] for row in matrix.tables()["device_plugin"])
            yield Finding(_PLACE, f"device plugin {number} is not in the matrix: take one of {known}")
        other = _other(site)
        if other:
            yield Finding(
                _PLACE,
                f"versions.device_plugin announces the GPUs, and {other} would announce them again: remove one of them",
            )

    def variables(self, site: Site) -> Variables:
        number, _ = release(site)
        row = matrix.device_plugin_row(number or "") or {}
        return {"device_plugin_version": number, "device_plugin_sha256": row.get("sha256")}

    def sentence(self, site: Site) -> str:
        number, why = release(site)
        return (
            f"NVIDIA's device plugin and feature discovery {number}, {why}, by Helm on the controller; running pods "
            "keep their GPUs"
        )

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        before, after = installed.get(self.name, ""), release(site)[0] or ""
        if before and after and version_of(before) != version_of(after):
            yield Step(self.name, "device plugin", before, after, place=_PLACE)


def release(site: Site) -> tuple[str | None, str]:
    """Return the release of the device plugin for the site, and the reason. None: the plugin is not installed.

    With `auto`, the plugin is installed in a cluster of muster with GPUs that nothing else announces.
    """
    number = site.versions.get("device_plugin", AUTO)
    if number == OFF:
        return None, "the site file says off"
    if number != AUTO:
        return number, "the site file names it"
    other = _other(site)
    if other:
        return None, f"{other} announces the GPUs"
    if not site.versions.get("deepops") or "deepops" in site.declared_not_applicable:
        return (
            None,
            "muster does not install this cluster; a release in versions.device_plugin installs the plugin",
        )
    if not any("gpu" in host["roles"] for host in site.hosts.values()):
        return None, "no host has the role gpu"
    row = matrix.tables()["device_plugin"][0]
    return str(row["release"]), "the newest of the matrix"


def comes(site: Site) -> bool:
    """Return whether the site installs the device plugin."""
    return STAGE.is_in(site) and release(site)[0] is not None


def _other(site: Site) -> str:
    """Return the program beside the device plugin that announces the GPUs; empty if there is none."""
    if dra.comes(site):
        return "the DRA driver"
    return "the GPU operator" if site.get("deepops", "gpu_operator") else ""


STAGE: Final = DevicePlugin()
