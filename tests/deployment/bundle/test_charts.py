"""An index of charts comes from a server: it can name no file of this machine, and no chart without a digest."""

from pathlib import Path

import pytest
import yaml

from deployment.bundle import charts
from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import Item
from deployment.bundle.mirrors import Mirrors
from deployment.errors import FetchFailed
from orchestrator.progress import Reporter
from tests.deployment.bundle import servers

CONTENT = servers.packed_chart("monitor", "2.0.0", {})


async def _fetch(
    root: Path, index: bytes, sha256: str = "", repository: str = "https://charts.example.com"
) -> Item:
    with servers.internet() as net:
        net.files["/charts/index.yaml"] = index
        net.files["/charts/monitor-2.0.0.tgz"] = CONTENT
        mirrors = Mirrors({"https://charts.example.com": f"{net.url}/charts"})
        async with Fetcher(root, mirrors, Reporter(lambda text: None)) as fetcher:
            return await charts.chart(fetcher, repository, "monitor", "2.0.0", sha256, variable="dra_chart")


def _index(url: str, digest: str = servers.sha256(CONTENT)) -> bytes:
    entry = {"name": "monitor", "version": "2.0.0", "urls": [url], "digest": digest}
    return yaml.safe_dump({"entries": {"monitor": [entry]}}).encode()


async def test_a_chart_comes_from_where_its_index_says(tmp_path: Path) -> None:
    for url in ("monitor-2.0.0.tgz", "https://charts.example.com/monitor-2.0.0.tgz"):
        item = await _fetch(tmp_path, _index(url))
        assert (tmp_path / item.files[0].path).read_bytes() == CONTENT
        assert item.variable == "dra_chart", "the role installs this file"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://charts.example.com/x.tgz", "ftp://x/y", "oci://x/y"]
)
async def test_an_index_leads_nowhere_else_than_to_https(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchFailed, match="a chart comes by https"):
        await _fetch(tmp_path, _index(url))


async def test_a_chart_without_a_digest_is_refused_unless_the_site_gives_one(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="name it under bundle"):
        await _fetch(tmp_path, _index("monitor-2.0.0.tgz", ""))
    assert (
        await _fetch(tmp_path, _index("monitor-2.0.0.tgz", ""), servers.sha256(CONTENT))
    ).name == "monitor"
    with pytest.raises(FetchFailed, match="it should be 0000"):
        await _fetch(tmp_path, _index("monitor-2.0.0.tgz"), "0" * 64)


@pytest.mark.parametrize(
    "index",
    [
        b"entries: [",
        b"[]",
        b"entries: {monitor: [{version: 2.0.0, urls: []}]}",
        b"entries: {monitor: [a]}",
        b"\xff",
    ],
)
async def test_a_document_that_is_no_index_is_said_to_be_none(tmp_path: Path, index: bytes) -> None:
    with pytest.raises(FetchFailed, match="it is no index of charts"):
        await _fetch(tmp_path, index)


async def test_only_a_mirror_may_be_a_directory_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="neither http nor https"):
        await _fetch(tmp_path, b"", repository="file:///etc")
