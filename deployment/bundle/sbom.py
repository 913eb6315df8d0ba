"""The bill of materials of a bundle, in CycloneDX 1.6, for scanners of licences and vulnerabilities."""

import json
from typing import Any, Final
from urllib.parse import quote

from deployment.bundle.manifest import File, Item, Manifest
from orchestrator.distribution import installed_version

_INDICES: Final = frozenset({"apt-repository", "image-layout"})
_TYPES: Final = {"package": "library", "wheel": "library", "image": "container", "file": "file"}


def render(manifest: Manifest) -> bytes:
    """Return the document. It has one component for each item, with a package URL if the kind has one."""
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "muster", "version": installed_version()}]
            },
            "component": {"type": "application", "name": f"bundle of {manifest.site}", "bom-ref": "bundle"},
        },
        "components": [
            _component(item, manifest.architecture) for item in manifest.items if item.kind not in _INDICES
        ],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _component(item: Item, architecture: str) -> dict[str, Any]:
    file = item.files[0]
    purl = _purl(item, file, architecture)
    component: dict[str, Any] = {
        "type": _TYPES.get(item.kind, "application"),
        "bom-ref": f"{item.kind}/{file.path}",
        "name": item.name,
        "version": item.version,
        "hashes": [{"alg": "SHA-256", "content": file.sha256}],
        "properties": [{"name": "muster:file", "value": part.path} for part in item.files],
    }
    if purl:
        component["purl"] = purl
    if item.licence:
        component["licenses"] = [{"license": {"name": item.licence}}]
    if "://" in file.url and not file.url.startswith("oci:"):
        component["externalReferences"] = [{"type": "distribution", "url": file.url}]
    return component


def _purl(item: Item, file: File, architecture: str) -> str:
    version_ = quote(item.version, safe="")
    if item.kind == "package":
        return f"pkg:deb/ubuntu/{item.name}@{version_}?arch={architecture}"
    if item.kind == "wheel":
        return f"pkg:pypi/{item.name}@{version_}"
    if item.kind == "image":
        name = item.name.partition("@")[0].rpartition("/")[2].partition(":")[0]
        place = quote(item.name.partition("@")[0].rpartition(":")[0] or item.name.partition("@")[0], safe="")
        return f"pkg:oci/{name}@{quote(item.digest, safe='')}?repository_url={place}"
    if item.kind == "chart":
        return f"pkg:helm/{item.name}@{version_}"
    if item.kind == "git":
        return f"pkg:generic/{item.name}@{version_}?vcs_url={quote(f'git+{file.url}@{item.digest}', safe='')}"
    return (
        f"pkg:generic/{quote(item.name, safe='')}"
        + (f"@{version_}" if item.version else "")
        + f"?download_url={quote(file.url, safe='')}"
    )
