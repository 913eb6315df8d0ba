"""The images of real nodes and their registry, without containers."""

import hashlib
import http.client
import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from musterlab import oci
from musterlab.realnodes import images, registry

APPLETS = ("busybox", "sh", "sleep")


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"the program")
    images.build(tmp_path / "images", busybox, APPLETS)
    return tmp_path / "images"


def blob(layout: Path, digest: str) -> bytes:
    return (layout / oci.BLOBS / digest.removeprefix("sha256:")).read_bytes()


def manifest(layout: Path, name: str) -> dict[str, list[dict[str, str]]]:
    for each in json.loads((layout / "index.json").read_text())["manifests"]:
        if each["annotations"]["io.containerd.image.name"] == name:
            read: dict[str, list[dict[str, str]]] = json.loads(blob(layout, each["digest"]))
            return read
    raise AssertionError(f"no image {name}")


def test_every_blob_has_the_digest_that_names_it(layout: Path) -> None:
    for path in (layout / oci.BLOBS).iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_the_same_files_give_the_same_image(layout: Path, tmp_path: Path) -> None:
    images.build(tmp_path / "again", tmp_path / "busybox", APPLETS)
    assert (tmp_path / "again" / "index.json").read_text() == (layout / "index.json").read_text()


def test_an_image_is_the_shell_and_its_program(layout: Path) -> None:
    names = {}
    for layer in manifest(layout, "gcr.io/run-ai-demo/quickstart:latest")["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(layout, layer["digest"]))) as archive:
            names.update({entry.name: entry for entry in archive.getmembers()})
    assert names["bin/sh"].linkname == "busybox"
    assert names["bin/bash"].mode == names["usr/local/bin/quickstart"].mode == 0o755
    assert names["tmp"].mode == 0o1777
    assert "bin/busybox" in names


@pytest.fixture
def served(layout: Path) -> Iterator[http.client.HTTPConnection]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    threading.Thread(target=registry.serve, args=(listening, layout), daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    yield connection
    connection.close()


def fetch(connection: http.client.HTTPConnection, verb: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection.request(verb, path)
    answer = connection.getresponse()
    return answer.status, dict(answer.headers), answer.read()


def test_an_image_is_pulled_by_its_name_and_then_by_digests(served: http.client.HTTPConnection) -> None:
    path = "/v2/run-ai-demo/quickstart/manifests/latest?ns=gcr.io"
    status, headers, content = fetch(served, "GET", path)
    assert status == 200
    assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
    assert headers["Docker-Content-Digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    layer = json.loads(content)["layers"][0]
    status, _, content = fetch(served, "GET", f"/v2/run-ai-demo/quickstart/blobs/{layer['digest']}?ns=gcr.io")
    assert (status, len(content)) == (200, layer["size"])


def test_only_the_size_is_told_where_the_content_is_not_asked_for(served: http.client.HTTPConnection) -> None:
    status, headers, content = fetch(served, "HEAD", "/v2/library/python/manifests/latest?ns=docker.io")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/v2/run-ai-demo/quickstart/manifests/latest?ns=docker.io",
        "/v2/run-ai-demo/quickstart/manifests/2?ns=gcr.io",
        "/v2/x/blobs/sha256:..%2f..%2findex.json",
        "/v2/x/blobs/sha256:" + "0" * 64,
        "/",
    ],
)
def test_a_missing_image_is_not_found(path: str, served: http.client.HTTPConnection) -> None:
    assert fetch(served, "GET", path)[0] == 404
