"""The installed releases, as each stage reads them from an API server."""

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deployment import site_file
from deployment.installed import detect

TEXT = """schema: 1
name: here
versions: {kubernetes: "1.36.3", trident: "26.06.0"}
hosts:
  dgx01: {address: n1, os: ubuntu-24.04, model: dgx-h100, roles: [control_plane, etcd, gpu]}
vars: {dra_namespace: devices, dra_release: nvidia}
"""


def helm(version: str, revision: int) -> dict[str, Any]:
    """Return Helm's record of a release as a Secret: JSON, gzipped, in base64, and as data of the Secret in base64
    again.
    """
    record = json.dumps({"chart": {"metadata": {"version": version}}}).encode()
    packed = base64.b64encode(base64.b64encode(gzip.compress(record))).decode()
    return {"metadata": {"labels": {"version": str(revision)}}, "data": {"release": packed}}


def node(name: str, kubelet: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": kubelet}}}


ANSWERS: dict[str, list[dict[str, Any]]] = {
    "/api/v1/nodes": [node("dgx01", "v1.35.4"), node("of-others", "v1.20.0")],
    "/apis/trident.netapp.io/v1/tridentorchestrators": [{"status": {"version": "v26.02.1"}}],
    "/api/v1/namespaces/devices/secrets": [helm("0.4.9", 9), helm("v0.4.1", 10)],
}


@pytest.fixture
def answers() -> dict[str, list[dict[str, Any]]]:
    return dict(ANSWERS)


@pytest.fixture
def kubeconfig(tmp_path: Path, answers: dict[str, list[dict[str, Any]]]) -> Iterator[Path]:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            items = answers.get(self.path.partition("?")[0])
            body = json.dumps({"kind": "Status", "code": 404} if items is None else {"items": items}).encode()
            self.send_response(404 if items is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Print nothing for a request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        path = tmp_path / "kubeconfig"
        address = f"http://127.0.0.1:{server.server_address[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": address}}],
            "users": [{"name": "here", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        }
        path.write_text(json.dumps(config))
        yield path
        server.shutdown()
        thread.join()


def test_each_stage_reads_its_own_where_the_site_has_it(tmp_path: Path, kubeconfig: Path) -> None:
    (tmp_path / "site.yml").write_text(TEXT)
    installed = detect(kubeconfig, "", site_file.load(tmp_path), {"ontap": {"ontap": "9.16.1"}})
    assert installed.problem == ""
    assert installed.of("deepops") == {"dgx01": "1.35.4"}
    assert installed.of("trident") == {"trident": "26.02.1"}
    assert installed.of("dra") == {"dra": "0.4.1"}
    assert installed.of("ontap") == {"ontap": "9.16.1"}
    assert installed.of("docker") == {}


def test_a_missing_program_is_not_installed(
    tmp_path: Path, kubeconfig: Path, answers: dict[str, list[dict[str, Any]]]
) -> None:
    for path in list(answers)[1:]:
        del answers[path]
    (tmp_path / "site.yml").write_text(TEXT)
    installed = detect(kubeconfig, "", site_file.load(tmp_path), {})
    assert (installed.problem, installed.of("trident"), installed.of("dra")) == ("", {}, {})


def test_a_cluster_that_does_not_answer_is_a_problem_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text(TEXT)
    assert detect(tmp_path / "none", "", site_file.load(tmp_path), {}).problem == "there is no cluster yet"
