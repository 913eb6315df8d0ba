"""Helm charts of a repository with an index, and the images that a chart names in its values."""

import re
import tarfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import Item
from deployment.errors import BundleError, FetchFailed
from orchestrator.bounded_yaml import small_yaml

_MAX_INDEX_NODES: Final = 5_000_000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


async def chart(
    fetcher: Fetcher, repository: str, name: str, version: str, sha256: str = "", *, variable: str = ""
) -> Item:
    """Fetch a chart from the repository (a URL). If `sha256` is empty, the index of the repository has the digest.

    Raises FetchFailed.
    """
    url = f"{repository.rstrip('/')}/index.yaml"
    content, _ = await fetcher.text(url)
    try:
        entries = small_yaml(content, _MAX_INDEX_NODES)["entries"].get(name, [])
        entry = next((entry for entry in entries if str(entry["version"]) == version), None)
        known = ", ".join(str(entry["version"]) for entry in entries[:5])
        link = urljoin(url, str(entry["urls"][0])) if entry else ""
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise FetchFailed(f"{url}: it is no index of charts: {error}") from error
    if entry is None:
        raise FetchFailed(f"{url}: there is no {name} {version}" + (f", but {known}" if known else ""))
    if urlsplit(link).scheme not in {"https", urlsplit(url).scheme}:
        raise FetchFailed(
            f"{url}: it names {link} for {name} {version}: a chart comes by https, or as its index does"
        )
    digest = sha256 or str(entry.get("digest", "")).removeprefix("sha256:")
    if not _DIGEST.fullmatch(digest):
        raise FetchFailed(
            f"{url}: it gives no SHA-256 for {name} {version}: name it under bundle.charts, as `sha256`"
        )
    file = await fetcher.file(link, f"charts/{name}-{version}.tgz", sha256=digest)
    return Item("chart", name, version, (file,), variable=variable)


def images(path: Path) -> list[str]:
    """Return the images that the values of a packed chart name as `repository` and `tag`. Raises BundleError."""
    try:
        with tarfile.open(path) as archive:
            values = _member(archive, "values.yaml")
            about = _member(archive, "Chart.yaml")
    except (OSError, tarfile.TarError, ValueError) as error:
        raise BundleError(f"{path}: the chart cannot be read: {error}") from error
    return sorted(set(_images_in(values, str(about.get("appVersion", "")))))


def _member(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    for member in archive:
        if (
            member.name.count("/") == 1
            and member.name.endswith(f"/{name}")
            and (file := archive.extractfile(member))
        ):
            return small_yaml(file.read()) or {}
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
