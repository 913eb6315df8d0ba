"""Debian's Prometheus as a process with the shipped rules, and its answers."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from orchestrator.cli.monitoring import monitoring_files
from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, str]) -> Iterator[str]:
    """Run a Prometheus with the shipped rules, which scrapes `targets` (node by address) each second; yield its URL.

    It starts with the data in `directory / "data"`, of any age.
    """
    (directory / "muster-rules.yaml").write_text(monitoring_files()["muster-rules.yaml"])
    (job,) = yaml.safe_load(monitoring_files()["muster-scrape.yaml"])["scrape_configs"]
    scraped = {
        "job_name": job["job_name"],
        "honor_labels": job["honor_labels"],
        "scrape_interval": "1s",
        "static_configs": [
            {"targets": [address], "labels": {"node": node}} for address, node in targets.items()
        ],
    }
    document = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": ["muster-rules.yaml"],
        "scrape_configs": [scraped],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(document))
    address = f"127.0.0.1:{free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yaml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


async def query(url: str, expression: str) -> list[Any]:
    """Return the present result of an expression. Raises an error if Prometheus refuses it."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/query", params={"query": expression}) as answer,
    ):
        document = await answer.json()
    assert document["status"] == "success", (expression, document)
    result: list[Any] = document["data"]["result"]
    return result


async def until_answered(url: str, expression: str, value: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = await query(url, expression)
        except aiohttp.ClientError as error:
            last = error
        else:
            if [entry["value"][1] for entry in last] == [value]:
                return
        await asyncio.sleep(0.2)
    raise AssertionError((expression, value, last))
