"""A real Prometheus scrapes a real operator and two agents, and answers every panel's expression."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hostfacts.kernel_log import read_xids
from musterlab.cluster import start
from musterweb.history_model import Span
from musterweb.prometheus import PrometheusHistory
from orchestrator.agent.agent import Agent, AgentOptions
from orchestrator.agent.model import Upkeep
from orchestrator.agent.nvml import THROTTLE_REASONS
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.pages import serving_pages
from tests.agent.doubles import FakeDriver, uuid
from tests.agent.kubelets import Kubelet, listening
from tests.cli.prometheus_process import needs_prometheus, prometheus, query, until_answered
from tests.cli.test_monitoring import expressions, rules
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import must, must_all, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.lab, needs_prometheus]

RECORDED: Final = Path(__file__).resolve().parents[1] / "validation" / "layers" / "recorded"

ALERTS: Final = frozenset(rule["alert"] for rule in rules() if "alert" in rule)
XIDS: Final = expressions()["muster-gpus.json: GPUs with an Xid within an hour A"]
PAGE: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/healthz, /readyz and /metrics")


async def until_served(log: Path) -> int:
    """Return the port of the operator's pages, from its log."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        match = PAGE.search(log.read_text()) if log.exists() else None
        if match:
            return int(match[1])
        await asyncio.sleep(0.1)
    raise AssertionError(log.read_text())


async def pages_read_it(url: str) -> None:
    """Check that the queries of `muster web` get the same answers as from the double in its tests."""
    history = PrometheusHistory(url)
    await history.start()
    try:
        end = int(time.time()) + 2  # all scrapes so far are before this time
        span = Span(end - 60, end, 1)
        record = await history.read(span, None)
        assert record.problems == ()
        assert record.as_of is not None
        assert set(record.projects) == {"team-a"}
        line = record.projects["team-a"]
        assert line.allocated[-1] is not None
        assert 0 < line.allocated[-1] <= 2
        assert line.quota[-1] == 4
        assert line.utilization[-1] is not None
        assert sum(value or 0 for value in line.started) == 1
        assert record.cluster is not None
        assert record.cluster.total[-1] == 16
        others = await history.read(span, frozenset({"team-b"}))
        assert (others.projects, others.cluster, others.problems) == ({}, None, ())
    finally:
        await history.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a lab of two nodes, and the operator's own kubeconfig."""
    lab = start("metrics", nodes=2, detach=False, state_dir=tmp_path / "labs")
    try:
        yield lab.kubeconfig, asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
    finally:
        lab.stop()


class SetBack:
    """A clock that is three hours behind until a test corrects it, so that the first events are then long ago."""

    def __init__(self) -> None:
        self.behind_seconds = 3 * 3600

    def __call__(self) -> float:
        return time.time() - self.behind_seconds


def driver_of_two() -> FakeDriver:
    """Return a driver with a working GPU and an idle GPU in use, with the throttling that nvidia-smi reports for idle
    GPUs.
    """
    idle = (RECORDED / "nvidia-smi-v13-a5000.xml").read_text()
    assert "<clocks_event_reason_gpu_idle>Active<" in idle
    driver = FakeDriver(2)
    driver.utilization = [40, 0]
    driver.temperatures = {0: 61, 1: 33}
    driver.throttle_bits = {0: 0, 1: THROTTLE_REASONS["gpu_idle"]}
    driver.upkeeps = dict.fromkeys((0, 1), Upkeep(ecc_corrected=0, ecc_uncorrected=0))
    return driver


def holding_both() -> Kubelet:
    """Return a kubelet that gave both GPUs to a pod of team-a."""
    kubelet = Kubelet()
    entry = kubelet.response.pod_resources.add(name="train-0-0", namespace="muster-team-a")
    entry.containers.add(name="main").devices.add(
        resource_name="nvidia.com/gpu", device_ids=[uuid(0), uuid(1)]
    )
    return kubelet


class Lab:
    """An operator, an agent with a kubelet that answers and one without, and a Prometheus that scrapes them."""

    def __init__(self, kubeconfig: Path, own: Path, directory: Path) -> None:
        self.kubeconfig, self._own, self._directory = kubeconfig, own, directory
        self.driver, self.clock = driver_of_two(), SetBack()

    async def start(self, stack: AsyncExitStack) -> str:
        """Start everything, with a project and without jobs; return the URL of the Prometheus."""
        log = self._directory / "operator.log"
        stack.enter_context(operator(self._own, log, "operator-0", "--health-port", "0"))
        targets = {f"127.0.0.1:{await until_served(log)}": "control"}
        transport = await stack.enter_async_context(Transport(load_access(self.kubeconfig)))
        names = [node["name"] for node in json.loads(must(self.kubeconfig, "list", "nodes", "-o", "json"))]
        socket = self._directory / "kubelet.sock"
        await stack.enter_async_context(listening(holding_both(), socket))
        silent = FakeDriver()
        silent.is_missing = True
        agents: list[Agent] = []
        nowhere = self._directory / "nowhere.sock"
        for name, driver, path in zip(names, (self.driver, silent), (socket, nowhere), strict=True):
            options = AgentOptions(name, socket=path, sample_seconds=0.2, kubelet_seconds=0.2)
            agent = Agent(transport, options, driver=driver, wall_clock=self.clock)
            await stack.enter_async_context(running(agent.run()))
            pages = {"/metrics": agent.metrics_page}
            port = await stack.enter_async_context(serving_pages(pages, "127.0.0.1", 0))
            targets[f"127.0.0.1:{port}"] = name
            agents.append(agent)
        await until(lambda: agents[0].reading.gpus and agents[0].reading.gpus[1].holders)
        self.clock.behind_seconds = 0
        must(self.kubeconfig, "project", "create", "team-a", "-g", "4")
        url = stack.enter_context(prometheus(self._directory, targets))
        await until_answered(url, 'muster_project_wait_seconds_count{project="team-a"}', "0")
        await until_answered(url, "sum(muster_gpu_ecc_errors_total)", "0")
        return url


def chosen(expression: str) -> str:
    """Return a panel's expression as Grafana sends it for all projects and nodes."""
    return expression.replace("$project", ".*").replace("$node", ".*")


async def answered(url: str, expression: str) -> bool:
    """Return whether Prometheus has a value for the expression."""
    return any(entry["value"][1] != "NaN" for entry in await query(url, chosen(expression)))


async def test_the_shipped_rules_are_answered_by_a_prometheus_that_scrapes_operator_and_agents(
    site: tuple[Path, Path], tmp_path: Path
) -> None:
    lab = Lab(*site, tmp_path)
    async with AsyncExitStack() as stack:
        url = await lab.start(stack)
        must_all(
            lab.kubeconfig, "submit fits -p team-a -i image -g 2", "submit waits -p team-a -i image -g 20"
        )
        await until_answered(url, 'project:muster_gpus:allocated{project="team-a"}', "2")
        await until_answered(url, 'project:muster_gpus:pending{project="team-a"}', "20")
        await until_answered(url, 'project:muster_gpu_utilization:ratio{project="team-a"}', "0.2")
        await until_answered(url, "cluster:muster_gpus:total", "16")
        await until_answered(url, 'muster_project_wait_seconds_count{project="team-a"}', "1")
        await until_answered(url, "muster_operator_bindings_total", "1")
        await until_answered(url, 'muster_operator_pending_workloads{reason="LargerThanAnyNode"}', "1")
        await until_answered(url, "sum(increase(muster_operator_evictions_total[1h]))", "0")
        await pages_read_it(url)
        lab.driver.upkeeps[0] = Upkeep(ecc_corrected=2, ecc_uncorrected=0)
        xid = read_xids((RECORDED / "dmesg-xid.log").read_text())[0].code
        lab.driver.events.append((0, xid))
        await until_answered(url, "sum(increase(muster_gpu_ecc_errors_total[1h])) > bool 0", "1")
        for alert, labels in {
            "MusterGpuXid": f'xid="{xid}",gpu="0"',
            "MusterGpusIdle": 'project="team-a"',
        }.items():
            await until_answered(url, f'ALERTS{{alertname="{alert}",alertstate="firing",{labels}}}', "1")
        await until_answered(url, 'project:muster_gpus:idle{project="team-a"}', "1")
        assert [entry["value"][1] for entry in await query(url, chosen(XIDS))] == ["1"]
        silent = [
            where
            for where, expression in expressions().items()
            if where.removeprefix("rule ") not in ALERTS and not await answered(url, expression)
        ]
        assert silent == []
