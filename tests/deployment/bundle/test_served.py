"""kubespray and containerd find each part of a bundle on the servers of the site."""

import functools
import http.server
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deployment import content, inventory, site_file
from deployment.bundle import build, registry
from deployment.bundle.contents import Contents, Derivation, Download
from deployment.bundle.mirrors import Mirrors
from deployment.stages import served
from orchestrator.progress import Reporter
from tests.deployment.bundle import servers

SITE = content.find().root / "inventories" / "dgx-h100"


def changed(root: Path, before: str, after: str) -> Path:
    """Return the example site without internet, with `before` replaced by `after`."""
    text = (SITE / "site.yml").read_text()
    assert before in text
    root.joinpath("site.yml").write_text(text.replace(before, after))
    return root


def variables(directory: Path) -> dict[str, Any]:
    """Return the variables for kubespray, as the role gets them."""
    given = inventory.build(site_file.load(directory))["all"]["vars"]
    return dict(given.get("deepops_served", {}))


@cache
def contents() -> Contents:
    """Return the contents of the bundle of the example."""
    where = content.find()
    return Derivation(site_file.load(SITE), where, where.lock).contents()


def kubesprays() -> list[Download]:
    """Return the files of the bundle that kubespray downloads."""
    return [each for each in contents().files if not each.variable]


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Print nothing for a request."""


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    handler = functools.partial(Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def built(net: servers.Internet, root: Path, files: list[Download]) -> list[str]:
    """Build a bundle of files from a server that plays all hosts; return the reasons of missing files."""
    hosts = {f"https://{urlsplit(each.url).netloc}" for each in files}
    mirrors = Mirrors({host: f"{net.url}/{urlsplit(host).netloc}" for host in hosts})
    manifest, _ = build.build(root, "here", Contents(files=files), mirrors, Reporter(lambda text: None))
    return [each.why for each in manifest.missing]


def test_kubespray_downloads_from_the_folder_files(tmp_path: Path) -> None:
    files = kubesprays()
    assert len(files) == 12
    with servers.internet() as net:
        for each in files:
            net.files[f"/{each.url.removeprefix('https://')}"] = each.url.encode()
        own = [replace(each, sha256=servers.sha256(each.url.encode())) for each in files]
        assert built(net, tmp_path / "bundle", own) == []
    with web_server(tmp_path / "bundle" / "files") as url:
        given = variables(changed(tmp_path, "http://files.site.example", "http://files.site.example/"))
        for each in files:
            (name,) = (
                name for name, folder in served.FOLDERS.items() if each.url.startswith(f"https://{folder}/")
            )
            address = each.url.replace(f"https://{served.FOLDERS[name]}", given[name])
            address = address.replace("http://files.site.example", url)
            with urllib.request.urlopen(address) as answer:  # noqa: S310 - a server of this test
                assert answer.read() == each.url.encode()


def test_a_program_of_kubernetes_with_another_digest_is_refused_with_the_fix(tmp_path: Path) -> None:
    (kubelet,) = (each for each in kubesprays() if each.url.endswith("/kubelet"))
    with servers.internet() as net:
        net.files[f"/{kubelet.url.removeprefix('https://')}"] = b"another kubelet"
        (why,) = built(net, tmp_path / "bundle", [kubelet])
    assert kubelet.url in why
    assert servers.sha256(b"another kubelet") in why
    assert kubelet.sha256 in why
    assert "Name another source under mirrors, or correct the SHA-256" in why
    assert not list((tmp_path / "bundle").rglob("kubelet*"))


@pytest.mark.parametrize(
    ("named", "server", "host", "is_path"),
    [
        ("registry.site.example:5000/dgx", "https://registry.site.example:5000", "/v2/dgx", True),
        ("registry.site.example", "https://registry.site.example", "", False),
        ("http://10.61.1.9:5000/a/b", "http://10.61.1.9:5000", "/v2/a/b", True),
    ],
)
def test_each_registry_has_its_mirror_where_the_bundle_is_pushed_to(
    tmp_path: Path, named: str, server: str, host: str, is_path: bool
) -> None:
    given = variables(changed(tmp_path, "registry: registry.site.example:5000/dgx", f"registry: {named}"))
    mirrors = {each["prefix"]: each for each in given["containerd_registries_mirrors"]}
    assert mirrors.keys() == {registry.parse_reference(image).host for image in contents().images}
    assert mirrors.keys() == {"docker.io", "nvcr.io", "quay.io", "registry.example.com", "registry.k8s.io"}
    for each in mirrors.values():
        assert each["server"] == server
        (mirror,) = each["mirrors"]
        assert mirror["host"] == f"{server}{host}"
        assert mirror.get("override_path", False) is is_path


def test_a_registry_is_no_mirror_of_itself(tmp_path: Path) -> None:
    given = variables(changed(tmp_path, "registry.example.com/muster", "registry.site.example:5000/muster"))
    prefixes = [each["prefix"] for each in given["containerd_registries_mirrors"]]
    assert prefixes == ["docker.io", "nvcr.io", "quay.io", "registry.k8s.io"]


def test_a_site_with_internet_has_no_servers() -> None:
    assert variables(SITE.parent / "current") == {}
