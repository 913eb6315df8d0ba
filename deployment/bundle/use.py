"""An installation from a bundle: the variables and the environment that make the roles fetch only from the bundle."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deployment.bundle import manifest, packages
from deployment.bundle.trust import Trust
from deployment.bundle.wheels import DIRECTORY as WHEELS
from deployment.errors import BundleError
from orchestrator.distribution import installed_version
from orchestrator.progress import Reporter

ON_HOSTS: Final = "/var/lib/muster/bundle"
"""Where the role `bundle` puts the packages on a host."""

VARIABLES: Final = {
    "apt-repository": frozenset({"container_toolkit_repository"}),
    "chart": frozenset({"device_plugin_chart", "dra_chart"}),
    "file": frozenset({"helm_archive", "trident_archive"}),
    "git": frozenset({"deepops_repository"}),
}
"""The role variables that a bundle can set, by the kind of the item that they name."""


@dataclass(frozen=True)
class Bundle:
    """A verified bundle."""

    root: Path
    manifest: manifest.Manifest

    def variables(self) -> dict[str, Any]:
        """Return the role variables that name files of the bundle."""
        values: dict[str, Any] = {"bundle_path": str(self.root), "bundle_directory": ON_HOSTS}
        for item in self.manifest.items:
            if item.variable and item.kind != "apt-repository":
                values[item.variable] = str(self.root / item.files[0].path)
            elif item.variable:
                origin = packages.source(item.name)
                values[item.variable] = f"file:{ON_HOSTS}/{origin.place}".removesuffix("/deb/amd64")
                values["container_toolkit_key_url"] = (
                    f"file://{ON_HOSTS}/keys/{packages.key_name(origin.key)}"
                )
                values["container_toolkit_key_sha256"] = origin.key_sha256
        return values

    def of_host(self, system: str) -> dict[str, Any]:
        """Return a host's variables: its system, and the sources.list for the copy of the repositories on the host."""
        return {"bundle_system": system, "bundle_sources": self.sources(system, ON_HOSTS)}

    def sources(self, system: str, directory: str) -> str:
        """Return the sources.list for hosts of a system, where `directory` holds a copy of the repositories for it."""
        repositories = [
            packages.source(item.name)
            for item in self.manifest.items
            if item.kind == "apt-repository" and item.files[0].path.startswith(f"packages/{system}/")
        ]
        keys = packages.key_files(repositories, Path(directory))
        return packages.sources_list(repositories, directory, keys)

    def environment(self) -> dict[str, str]:
        """Return the environment that makes pip and git use the bundle in every role."""
        rules = [
            (f"url.{self.root / item.files[0].path}.insteadOf", item.files[0].url)
            for item in self.manifest.items
            if item.kind == "git"
        ]
        values = {"GIT_CONFIG_COUNT": str(len(rules)), "GIT_ALLOW_PROTOCOL": "file"}
        for number, (name, value) in enumerate(rules):
            values |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return values | {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.root / WHEELS),
            "PIP_CONFIG_FILE": os.devnull,
        }


def open_bundle(root: Path, site: str, trust: Trust, progress: Reporter) -> Bundle:
    """Verify a bundle and open it. Raises BundleError with the first problem and the number of problems."""
    bundle_manifest = trust.read(root)
    if bundle_manifest.site != site:
        raise BundleError(
            f"{root}: this bundle is of the site {bundle_manifest.site}, not of {site}: build one for it"
        )
    for item in bundle_manifest.items:
        if item.variable and (item.variable not in VARIABLES.get(item.kind, ()) or not item.files):
            raise BundleError(
                f"{root}: its manifest sets the variable {item.variable} to {item.kind} {item.name}; no bundle may: "
                f"run `muster bundle build` again with muster {installed_version()}"
            )
    progress(f"verifying {len(bundle_manifest.files)} files of {root}")
    problems = manifest.verify(root, bundle_manifest, progress)
    if problems:
        more = (
            f" (and {len(problems) - 1} more; see `muster bundle verify {root}`)" if len(problems) > 1 else ""
        )
        raise BundleError(f"{root}: {problems[0]}{more}: run `muster bundle build` again")
    for gap in bundle_manifest.gaps:
        progress(f"not in the bundle: {gap}")
    return Bundle(root.absolute(), bundle_manifest)
