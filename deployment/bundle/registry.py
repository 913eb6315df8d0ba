"""Copies container images and charts between OCI registries and an OCI image layout in the bundle."""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import File, Item, file_entry, replace
from deployment.errors import BundleError, FetchFailed
from orchestrator.progress import Reporter

LAYOUT: Final = "images"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_LISTS: Final = frozenset({_INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"})
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_ACCEPT: Final = {
    "Accept": ", ".join([*sorted(_LISTS), _MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"])
}
_CHART: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_NAME: Final = "io.containerd.image.name"
_LICENCE: Final = "org.opencontainers.image.licenses"
_REFERENCE: Final = re.compile(
    r"(?:(?P<host>[^/]+\.[^/]+|[^/]+:\d+|localhost)/)?(?P<path>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class Reference:
    """An image or chart in a registry. It is fetched by `digest` if there is one, else by `tag`."""

    host: str
    path: str
    tag: str
    digest: str = ""

    @property
    def url(self) -> str:
        """Its name as a URL, which the map of mirrors may change."""
        return f"oci://{self.host}/{self.path}"

    def __str__(self) -> str:
        return (
            f"{self.host}/{self.path}"
            + (f":{self.tag}" if self.tag else "")
            + (f"@{self.digest}" if self.digest else "")
        )


def parse_reference(text: str, tag: str = "") -> Reference:
    """Read a name as docker and Kubernetes write it; short names are of docker.io. Raises BundleError.

    Example: `str(parse_reference("busybox"))` returns `'docker.io/library/busybox:latest'`.
    """
    match = _REFERENCE.fullmatch(text.removeprefix("oci://"))
    if match is None:
        raise BundleError(f"`{text}` is no name of an image: REGISTRY/NAME:TAG or NAME@sha256:…")
    host, path = match["host"] or "docker.io", match["path"]
    if host == "docker.io" and "/" not in path:
        path = f"library/{path}"
    digest = match["digest"] or ""
    return Reference(host, path, tag or match["tag"] or ("" if digest else "latest"), digest)


async def image(fetcher: Fetcher, reference: Reference, architecture: str) -> Item:
    """Fetch an image for one architecture. Raises FetchFailed."""
    content, digest, manifest = await _manifest(fetcher, reference, reference.digest or reference.tag)
    origin = digest
    if manifest.get("mediaType") in _LISTS or "manifests" in manifest:
        fitting = [entry for entry in manifest["manifests"] if _fits(entry.get("platform", {}), architecture)]
        if not fitting:
            raise FetchFailed(f"{reference}: there is no image for linux/{architecture}")
        content, digest, manifest = await _manifest(fetcher, reference, fitting[0]["digest"])
    blobs = {blob["digest"]: blob for blob in [manifest["config"], *manifest["layers"]]}
    files = list(await asyncio.gather(*(_blob(fetcher, reference, blob_digest) for blob_digest in blobs)))
    path = fetcher.root / LAYOUT / "blobs" / "sha256" / digest.removeprefix("sha256:")
    replace(path, content)
    licence = (manifest.get("annotations") or {}).get(_LICENCE, "")
    whole = file_entry(fetcher.root, path, f"{reference.url}@{digest}")
    return Item(
        "image", str(reference), reference.tag or origin, (whole, *files), digest=origin, licence=licence
    )


async def chart(fetcher: Fetcher, reference: Reference, variable: str) -> Item:
    """Fetch a Helm chart out of a registry, as the file that helm installs. Raises FetchFailed."""
    _, digest, manifest = await _manifest(fetcher, reference, reference.digest or reference.tag)
    layers = [layer for layer in manifest.get("layers", []) if layer.get("mediaType") == _CHART]
    if not layers:
        raise FetchFailed(f"{reference}: it is no Helm chart")
    name = f"{reference.path.rpartition('/')[2]}-{reference.tag}.tgz"
    sha256 = layers[0]["digest"].removeprefix("sha256:")
    file = await fetcher.file(
        await _url(fetcher, reference, f"blobs/{layers[0]['digest']}"), f"charts/{name}", sha256=sha256
    )
    file = msgspec.structs.replace(file, url=f"{reference.url}:{reference.tag}")
    return Item(
        "chart", reference.path.rpartition("/")[2], reference.tag, (file,), digest=digest, variable=variable
    )


def write_layout(root: Path, items: list[Item]) -> list[File]:
    """Write the index of the image layout, which `skopeo` and `ctr images import` read, and return its files."""
    descriptors = []
    for item in sorted(item for item in items if item.kind == "image"):
        file = item.files[0]
        manifest = json.loads((root / file.path).read_bytes())
        reference = parse_reference(item.name)
        descriptors.append({
            "mediaType": manifest.get("mediaType", _MANIFEST),
            "digest": f"sha256:{file.sha256}", "size": file.size_bytes,
            "annotations": {"org.opencontainers.image.ref.name": str(reference), _NAME: str(reference)},
        })  # fmt: skip
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": descriptors}
    replace(root / LAYOUT / "index.json", json.dumps(index, indent=1).encode())
    replace(root / LAYOUT / "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    return [file_entry(root, root / LAYOUT / name) for name in ("index.json", "oci-layout")]


async def push(fetcher: Fetcher, root: Path, registry: str, progress: Reporter) -> list[str]:
    """Push every image of the layout to `registry` (HOST[:PORT][/PREFIX], or a URL) and return their names there."""
    base = registry if "://" in registry else f"https://{registry}"
    host = urlsplit(base)
    prefix = host.path.strip("/")
    index = json.loads((root / LAYOUT / "index.json").read_bytes())
    names = []
    for number, descriptor in enumerate(index["manifests"], 1):
        reference = parse_reference(descriptor["annotations"][_NAME])
        path = f"{prefix}/{reference.path}".strip("/")
        progress(f"[{number}/{len(index['manifests'])}] {reference} -> {host.netloc}/{path}")
        repository = f"{host.scheme}://{host.netloc}/v2/{path}"
        blobs = root / LAYOUT / "blobs" / "sha256"
        content = (blobs / descriptor["digest"].removeprefix("sha256:")).read_bytes()
        manifest = json.loads(content)
        for blob in [manifest["config"], *manifest["layers"]]:
            await _upload(fetcher, repository, blob["digest"], blobs / blob["digest"].removeprefix("sha256:"))
        tag = reference.tag or descriptor["digest"]
        await _send(
            fetcher,
            "PUT",
            f"{repository}/manifests/{tag}",
            content,
            {"Content-Type": descriptor["mediaType"]},
        )
        names.append(f"{host.netloc}/{path}:{tag}")
    return names


async def _upload(fetcher: Fetcher, repository: str, digest: str, path: Path) -> None:
    async with fetcher.request("HEAD", f"{repository}/blobs/{digest}") as response:
        if response.status == 200:
            return
    headers = await _send(fetcher, "POST", f"{repository}/blobs/uploads/", b"", {})
    location = urljoin(f"{repository}/", headers["Location"])
    joint = "&" if "?" in location else "?"
    with path.open("rb") as content:
        await _send(
            fetcher, "PUT", f"{location}{joint}digest={digest}", content,
            {"Content-Type": "application/octet-stream", "Content-Length": str(path.stat().st_size)},
        )  # fmt: skip


async def _send(
    fetcher: Fetcher, method: str, url: str, data: Any, headers: dict[str, str]
) -> Mapping[str, str]:
    try:
        async with fetcher.request(method, url, headers=headers, data=data) as response:
            if response.status not in {200, 201, 202, 204}:
                raise FetchFailed(
                    f"{url}: the registry answered {response.status} {(await response.text())[:200]}"
                )
            return response.headers
    except (aiohttp.ClientError, TimeoutError) as error:
        raise FetchFailed(f"{url}: {str(error) or type(error).__name__}") from error


async def _manifest(fetcher: Fetcher, reference: Reference, which: str) -> tuple[bytes, str, dict[str, Any]]:
    url = await _url(fetcher, reference, f"manifests/{which}")
    content, headers = await fetcher.text(url, _ACCEPT)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    expected = which if which.startswith("sha256:") else headers.get("Docker-Content-Digest", digest)
    if digest != expected:
        raise FetchFailed(f"{url}: the digest of the manifest is {digest}, it should be {expected}")
    try:
        manifest: dict[str, Any] = json.loads(content)
        known = "manifests" in manifest or ("layers" in manifest and "config" in manifest)
    except (ValueError, TypeError) as error:
        raise FetchFailed(f"{url}: the answer is no manifest") from error
    if not known:
        raise FetchFailed(f"{url}: the manifest is of a kind from before 2017: the image must be pushed anew")
    return content, digest, manifest


async def _blob(fetcher: Fetcher, reference: Reference, digest: str) -> File:
    name = digest.removeprefix("sha256:")
    url = await _url(fetcher, reference, f"blobs/{digest}")
    file = await fetcher.file(url, f"{LAYOUT}/blobs/sha256/{name}", sha256=name)
    return msgspec.structs.replace(file, url=f"{reference.url}@{digest}")


async def _url(fetcher: Fetcher, reference: Reference, rest: str) -> str:
    """Return the URL of the registry's API; a mirror may be a registry (oci://, https://, http://) with a prefix."""
    mapped = urlsplit(fetcher.mirrors.map(reference.url))
    scheme = "https" if mapped.scheme == "oci" else mapped.scheme
    host = "registry-1.docker.io" if mapped.netloc == "docker.io" else mapped.netloc
    return f"{scheme}://{host}/v2{mapped.path}/{rest}"


def _fits(platform: Mapping[str, str], architecture: str) -> bool:
    return platform.get("os") == "linux" and platform.get("architecture") == architecture
