"""A real Prometheus scrapes a real operator and an agent, and every panel's expression is answered from that."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest
import yaml

from musterlab.cluster import start
from musterweb.history_model import Span
from musterweb.prometheus import PrometheusHistory
from orchestrator.agent.agent import Agent, AgentOptions
from orchestrator.cli.monitoring import monitoring_files
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.pages import serving_pages
from tests.agent.doubles import FakeDriver, uuid
from tests.agent.kubelets import Kubelet, listening
from tests.cli.test_monitoring import expressions
from tests.cluster.waiting import DEADLINE_SECONDS, running
from tests.control.operators import must, must_all, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
    ),
]

EMPTY: Final = (
    "Xid errors", "Errors of memory", "Clocks held down", "Agents without an answer", "Mean wait", "Temperature",
    "but idle",
)  # fmt: skip
"""Panels that have nothing to show here: the driver of the test has no such figures, nothing is wrong, or it is too
early for an increase."""
PAGE: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/healthz, /readyz and /metrics")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def prometheus(directory: Path, targets: dict[str, str]) -> Iterator[str]:
    """Run a Prometheus with the rules that ship, which scrapes `targets` (node by address) each second."""
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
    """What an expression is now; raises where Prometheus does not take it."""
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


async def until_served(log: Path) -> int:
    """The port of the operator's pages, as its log says."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        match = PAGE.search(log.read_text()) if log.exists() else None
        if match:
            return int(match[1])
        await asyncio.sleep(0.1)
    raise AssertionError(log.read_text())


async def pages_read_it(url: str) -> None:
    """What `muster web` asks for is answered as its tests' double answers."""
    history = PrometheusHistory(url)
    await history.start()
    try:
        await until_answered(url, "count(increase(muster_project_wait_seconds_count[1m]))", "1")
        end = int(time.time()) + 2  # whatever was scraped by now is before
        span = Span(end - 5, end, 1)
        record = await history.read(span, None)
        assert record.problems == ()
        assert record.as_of is not None
        assert set(record.projects) == {"team-a"}
        line = record.projects["team-a"]
        assert line.allocated[-1] is not None
        assert 0 < line.allocated[-1] <= 2
        assert line.quota[-1] == 4
        assert line.utilization[-1] is not None
        assert line.started[-1] is not None
        assert record.cluster is not None
        assert record.cluster.total[-1] == 16
        others = await history.read(span, frozenset({"team-b"}))
        assert (others.projects, others.cluster, others.problems) == ({}, None, ())
    finally:
        await history.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A lab of two nodes, and the operator's own kubeconfig."""
    lab = start("metrics", nodes=2, detach=False, state_dir=tmp_path / "labs")
    try:
        yield lab.kubeconfig, asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
    finally:
        lab.stop()


async def test_what_ships_is_answered_by_a_prometheus_that_scrapes_operator_and_agent(
    site: tuple[Path, Path], tmp_path: Path
) -> None:
    kubeconfig, own = site
    driver, kubelet = FakeDriver(2), Kubelet()
    driver.utilization = [40, 0]
    entry = kubelet.response.pod_resources.add(name="train-0-0", namespace="muster-team-a")
    entry.containers.add(name="main").devices.add(
        resource_name="nvidia.com/gpu", device_ids=[uuid(0), uuid(1)]
    )
    async with AsyncExitStack() as stack:
        log = tmp_path / "operator.log"
        stack.enter_context(operator(own, log, "operator-0", "--health-port", "0"))
        port = await until_served(log)
        name = json.loads(must(kubeconfig, "list", "nodes", "-o", "json"))[0]["name"]
        transport = await stack.enter_async_context(Transport(load_access(kubeconfig)))
        options = AgentOptions(
            name, socket=tmp_path / "kubelet.sock", sample_seconds=0.2, kubelet_seconds=0.2
        )
        agent = Agent(transport, options, driver=driver)
        await stack.enter_async_context(listening(kubelet, options.socket))
        await stack.enter_async_context(running(agent.run()))
        pages = {"/metrics": agent.metrics_page}
        agent_port = await stack.enter_async_context(serving_pages(pages, "127.0.0.1", 0))
        must_all(
            kubeconfig,
            "project create team-a -g 4",
            "submit fits -p team-a -i image -g 2",
            "submit waits -p team-a -i image -g 20",
        )
        targets = {f"127.0.0.1:{port}": "control", f"127.0.0.1:{agent_port}": name}
        url = stack.enter_context(prometheus(tmp_path, targets))
        await until_answered(url, 'project:muster_gpus:allocated{project="team-a"}', "2")
        await until_answered(url, 'project:muster_gpus:pending{project="team-a"}', "20")
        await until_answered(url, 'project:muster_gpu_utilization:ratio{project="team-a"}', "0.2")
        await until_answered(url, "cluster:muster_gpus:total", "16")
        await until_answered(url, 'muster_project_wait_seconds_count{project="team-a"}', "1")
        await until_answered(url, "muster_operator_bindings_total", "1")
        await until_answered(url, 'muster_operator_pending_workloads{reason="LargerThanAnyNode"}', "1")
        await until_answered(url, "sum(increase(muster_operator_evictions_total[1h]))", "0")
        await pages_read_it(url)
        silent = []
        for where, expression in expressions().items():
            chosen = expression.replace("$project", ".*").replace("$node", ".*")
            answer = await query(url, chosen)
            if not answer and not where.startswith("rule "):
                silent.append(where)
        assert [where for where in silent if not any(word in where for word in EMPTY)] == []
