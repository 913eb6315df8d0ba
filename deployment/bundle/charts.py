"""Helm charts of a repository with an index, and the images that a chart names in its values."""

import tarfile
from pathlib import Path
from typing import Any

import yaml

from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import Item
from deployment.errors import BundleError, FetchFailed


async def chart(fetcher: Fetcher, repository: str, name: str, version: str) -> Item:
    """Fetch a chart of the repository at the URL. Raises FetchFailed."""
    url = f"{repository.rstrip('/')}/index.yaml"
    content, _ = await fetcher.text(url)
    try:
        entries = yaml.safe_load(content)["entries"].get(name, [])
        entry = next((entry for entry in entries if str(entry["version"]) == version), None)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise FetchFailed(f"{url}: it is no index of charts") from error
    if entry is None:
        known = ", ".join(str(entry["version"]) for entry in entries[:5])
        raise FetchFailed(f"{url}: there is no {name} {version}" + (f", but {known}" if known else ""))
    link = str(entry["urls"][0])
    if "://" not in link:
        link = f"{repository.rstrip('/')}/{link}"
    digest = str(entry.get("digest", "")).removeprefix("sha256:")
    file = await fetcher.file(link, f"charts/{name}-{version}.tgz", sha256=digest)
    return Item("chart", name, version, (file,))


def images(path: Path) -> list[str]:
    """The images that the values of a packed chart name as `repository` and `tag`. Raises BundleError."""
    try:
        with tarfile.open(path) as archive:
            values = _member(archive, "values.yaml")
            about = _member(archive, "Chart.yaml")
    except (OSError, tarfile.TarError, yaml.YAMLError) as error:
        raise BundleError(f"{path}: the chart cannot be read: {error}") from error
    return sorted(set(_images_in(values, str(about.get("appVersion", "")))))


def _member(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    for member in archive:
        if (
            member.name.count("/") == 1
            and member.name.endswith(f"/{name}")
            and (file := archive.extractfile(member))
        ):
            return yaml.safe_load(file.read()) or {}
    return {}


def _images_in(values: Any, version: str) -> list[str]:
    if not isinstance(values, dict):
        return []
    names = [image for nested in values.values() for image in _images_in(nested, version)]
    repository = values.get("repository")
    if isinstance(repository, str) and repository:
        registry = f"{values['registry']}/" if values.get("registry") else ""
        tag = str(values.get("tag") or f"v{version.removeprefix('v')}")
        names.append(f"{registry}{repository}:{tag}")
    return names
