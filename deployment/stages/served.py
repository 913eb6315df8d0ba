"""The web server and the registry of a site from which kubespray and containerd fetch the content of a bundle."""

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from deployment import images, matrix
from deployment.site import Finding, Site
from deployment.stages.runtime import container_runtime
from deployment.variable_checks import EXTRA, extra

FOLDERS: Final = {"github_url": "github.com", "dl_k8s_io_url": "dl.k8s.io", "get_helm_url": "get.helm.sh"}
"""Variables of kubespray with the URL of a site, and the folder that a bundle has for the files of that site."""
_MIRRORS: Final = "containerd_registries_mirrors"
_FILES: Final = ("bundle", "files_url")
_REGISTRY: Final = ("bundle", "registry")
_HOST: Final = re.compile(r"(?P<host>[^/]*[.:][^/]*)/")


def variables(site: Site) -> dict[str, Any]:
    """Return the variables of kubespray that name the servers; empty for a site without them."""
    files, registry = site.get(*_FILES), site.get(*_REGISTRY)
    urls = {name: f"{files.rstrip('/')}/{folder}" for name, folder in FOLDERS.items()} if files else {}
    return urls | ({_MIRRORS: _mirrors(site, registry)} if registry else {})


def words(site: Site) -> str:
    """Return the servers as the plan names them; empty for a site without them."""
    named = [
        f"{kind} from {site.get(*place)}"
        for kind, place in (("files", _FILES), ("images", _REGISTRY))
        if site.get(*place)
    ]
    return f", with {' and '.join(named)}" if named else ""


def problems(site: Site) -> Iterator[Finding]:
    """Yield variables that are set twice, and a mirror registry for Docker, which mirrors Docker Hub alone."""
    ours = variables(site)
    for name in extra(site):
        if name in ours:
            key = ".".join(map(str, _REGISTRY if name == _MIRRORS else _FILES))
            yield Finding((*EXTRA, name), f"{'.'.join(EXTRA)}.{name}: {key} sets it: remove one of them")
    if _MIRRORS in ours and container_runtime(site) != "containerd":
        yield Finding(
            _REGISTRY,
            "bundle.registry: Docker takes a mirror of docker.io alone: set kubernetes.container_runtime: containerd",
        )


def _mirrors(site: Site, registry: str) -> list[dict[str, Any]]:
    """Return a mirror for each registry of the matrix and of the site file.

    If `registry` has a path, `muster bundle push` has put the images below it. containerd uses a path as the root of
    the API only with `override_path`.
    """
    url = urlsplit(registry if "://" in registry else f"https://{registry}")
    server, path = f"{url.scheme}://{url.netloc}", url.path.strip("/")
    mirror: dict[str, Any] = {"host": server, "capabilities": ["pull", "resolve"]}
    if path:
        mirror |= {"host": f"{server}/v2/{path}", "override_path": True}
    rows = (*matrix.tables()["downloads"], *matrix.tables()["images"])
    named = [image for row in rows for image in row["images"]] + [text for _, text in images.named(site)]
    hosts = {match["host"] if (match := _HOST.match(name)) else "docker.io" for name in named}
    return [{"prefix": host, "server": server, "mirrors": [mirror]} for host in sorted(hosts - {url.netloc})]
