"""The states that TR-4858 shows, on a real API server and in Chromium: every page has the numbers of `list` and `top`.

Low utilization (23 %, three jobs of one team), high utilization (97 %), and the ends of §4.9 and §4.10. What the GPUs
do is written as agents write it (GpuNode); who holds them is what the operator decides.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access, load_server
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, GPU_NODES, NODES, PODS, SERVICE_ACCOUNTS
from orchestrator.cluster.transport import Transport
from orchestrator.control.install import apply
from orchestrator.names import GPU_DEVICES_ANNOTATION
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, must_all, operator, prepare, until_granted
from tests.musterweb.chromium import Tab, browsing, program
from tests.musterweb.running import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

pytestmark = [
    pytest.mark.rare,
    pytest.mark.lab,
    pytest.mark.skipif(program() is None, reason="Debian's package chromium is not installed"),
]

SECONDS_TO_THE_PAGE = 5.0
SCENARIOS = Path(__file__).parents[2] / "validation" / "scenarios" / "tr4858"
QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
GPUS_OF_A_NODE = 8
LOW = [f"muster submit low-{n} -i image -g {gpus} -p team-a" for n, gpus in enumerate((1, 1, 2))]
"""Three jobs of one team, as the paper has them: four of sixteen GPUs, at 92 %."""
FIGURES = """Object.fromEntries([...document.querySelectorAll('.figures div')].map(
    (figure) => [figure.querySelector('dt').innerText, figure.querySelector('dd').innerText]))"""
ROWS = """[...document.querySelectorAll('#body table')].flatMap((table) => {
    const names = [...table.querySelectorAll('thead th')].map((cell) => cell.textContent.trim());
    return [...table.querySelectorAll('tbody tr')].map((row) => Object.fromEntries(
        [...row.children].map((cell, place) => [names[place], cell.textContent.trim()])));
})"""


@dataclass
class Site:
    """The lab, the pages, and the token of somebody who may see everything."""

    kubeconfig: Path
    port: int
    token: str

    def records(self, *words: str) -> Any:
        return json.loads(must(self.kubeconfig, *words, "-o", "json"))

    def run(self, lines: Sequence[str]) -> None:
        must_all(self.kubeconfig, *(shlex.join(shlex.split(line)[1:]) for line in lines))

    async def until_jobs_are(self, running: int, pending: Sequence[str]) -> None:
        """Wait until the command line shows the state, and why each job waits."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                jobs = await asyncio.to_thread(self.records, "list", "-A")
                count = sum(job["status"] == "Running" for job in jobs)
                waiting = sorted(job["name"] for job in jobs if job["status"] == "Pending")
                is_explained = all(job["waitsBecause"] for job in jobs if job["status"] == "Pending")
                if (count, waiting, is_explained) == (running, sorted(pending), True):
                    return

    async def remove_gpus(self) -> None:
        """Have no agents: where there are some, a part of a GPU waits until they say which GPU is reserved for it."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            for node in (await transport.list(GPU_NODES.path(), dict)).items:
                await transport.delete(GPU_NODES.path(name=node["metadata"]["name"]))

    async def write_gpus(self, busy_percent: int, free_percent: int) -> None:
        """Say as the nodes' agents what each GPU does, and who holds it by what the operator wrote on the pods."""
        async with Transport(load_access(self.kubeconfig)) as transport:
            holders: dict[tuple[str, int], list[dict[str, str]]] = {}
            for pod in (await transport.list(PODS.path(), dict)).items:
                indices = pod["metadata"].get("annotations", {}).get(GPU_DEVICES_ANNOTATION, "")
                holder = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
                for index in filter(None, indices.split(",")):
                    holders.setdefault((pod["spec"]["nodeName"], int(index)), []).append(holder)
            for node in (await transport.list(NODES.path(), dict)).items:
                name = node["metadata"]["name"]
                gpus = [
                    {
                        "index": index,
                        "uuid": f"GPU-{name}-{index}",
                        "utilizationPercent": busy_percent if (name, index) in holders else free_percent,
                        "memoryMib": 32768,
                        "memoryUsedMib": 1024,
                        "holders": holders.get((name, index), []),
                    }
                    for index in range(GPUS_OF_A_NODE)
                ]
                body = {
                    "apiVersion": GPU_NODES.api_version,
                    "kind": GPU_NODES.kind,
                    "metadata": {"name": name},
                    "spec": {"observedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "gpus": gpus},
                }
                await apply(transport, body)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("states")
    lab = start("states", nodes=2, detach=False, state_dir=folder / "labs")
    try:
        own = asyncio.run(prepare(lab.kubeconfig, folder / "operator.kubeconfig"))
        with operator(own, folder / "operator.log"):
            must_all(lab.kubeconfig, *(f"project create {name} -g {gpus}" for name, gpus in QUOTAS.items()))
            token = asyncio.run(viewer(lab))
            with serving(load_server(lab.kubeconfig)) as port:
                yield Site(lab.kubeconfig, port, token)
    finally:
        lab.stop()


async def viewer(lab: Lab) -> str:
    """Make an account that sees everything; return its token."""
    async with Transport(load_access(lab.kubeconfig)) as transport:
        metadata = {"name": "sue", "namespace": "default"}
        await apply(transport, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
            "kind": CLUSTER_ROLE_BINDINGS.kind,
            "metadata": {"name": "sue"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "muster-viewer"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
        await apply(transport, binding)
        await until_granted(transport, "system:serviceaccount:default:sue", "list", NODES)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await transport.create(SERVICE_ACCOUNTS.path("default", "sue", "token"), request)
        token: str = answer["status"]["token"]
        return token


async def states(site: Site) -> AsyncIterator[tuple[str, int]]:
    """Bring about one state after the other; yields the name of each, and the utilization that was written."""
    site.run(LOW)
    await site.until_jobs_are(3, [])
    await site.write_gpus(92, 0)
    yield "23-percent", 23

    site.run([f"muster delete -p team-a {' '.join(f'low-{n}' for n in range(3))}"])
    await site.until_jobs_are(0, [])
    await site.remove_gpus()
    steps = scenario("utilization")
    for step in steps:
        site.run(step["run"])
    await site.until_jobs_are(steps[-1]["expect"]["running"], steps[-1]["expect"]["pending"])
    await site.write_gpus(97, 97)
    yield "97-percent", 97

    for project in QUOTAS:
        names = [job["name"] for job in site.records("list", "-p", project)]
        site.run([f"muster delete -p {project} {' '.join(names)}"])
    await site.until_jobs_are(0, [])
    for name in ("section-4.8", "section-4.9", "section-4.10"):
        await site.remove_gpus()
        for step in scenario(name):
            site.run(step["run"])
            await site.until_jobs_are(step["expect"]["running"], step["expect"]["pending"])
        if name != "section-4.8":
            await site.write_gpus(60, 60)
            yield name, 60


def scenario(name: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = yaml.safe_load((SCENARIOS / f"{name}.scenario.yaml").read_text())["steps"]
    return steps


async def sign_in(tab: Tab, site: Site) -> None:
    await tab.go(f"http://127.0.0.1:{site.port}/sign-in")
    await tab.js(f"document.getElementById('token').value = {site.token!r}")
    await tab.submit("button")


async def check_overview(tab: Tab, site: Site, utilization_percent: int) -> None:
    """The overview, which is open already, is brought up to date by itself."""
    printed = await asyncio.to_thread(must, site.kubeconfig, "top", "node")
    allocated = re.search(r"In Cluster:\n([\d.]+)/([\d.]+) \((\d+)%\)", printed)
    assert allocated, printed
    jobs = await asyncio.to_thread(site.records, "list", "-A")
    expected = {
        "GPUs": allocated[2],
        "Allocated": f"{allocated[1]} ({allocated[3]}%)",
        "Utilization": f"{utilization_percent}%",
        "Jobs that hold GPUs": str(sum(job["status"] == "Running" for job in jobs)),
        "Jobs that wait": str(sum(job["status"] == "Pending" for job in jobs)),
    }
    condition = (
        f"Object.entries({json.dumps(expected)}).every(([name, value]) => ({FIGURES})[name] === value)"
    )
    try:
        async with asyncio.timeout(SECONDS_TO_THE_PAGE):
            await tab.until(condition)
    except TimeoutError:
        shown = await tab.js(FIGURES)
        assert {name: shown[name] for name in expected} == expected
    assert await tab.js("document.getElementById('state').dataset.live") == "yes"


async def rows_of(tab: Tab, site: Site, path: str, key: str) -> Mapping[str, Mapping[str, str]]:
    """The rows of a page by their first cell."""
    await tab.go(f"http://127.0.0.1:{site.port}{path}")
    rows: list[dict[str, str]] = await tab.js(ROWS)
    return {row[key]: row for row in rows if key in row}


async def check_pages(tab: Tab, site: Site) -> None:
    """Each page with a table has the numbers of the command line."""
    jobs = await rows_of(tab, site, "/jobs", "NAME")
    listed = site.records("list", "-A")
    assert set(jobs) == {job["name"] for job in listed}
    for job in listed:
        row = jobs[job["name"]]
        assert (row["STATUS"], row["GPUs"], row["PROJECT"]) == (job["status"], job["gpus"], job["project"])
        assert row["NODE"].replace("-", "") == (job["node"] or "").replace("-", "")
        assert bool(row["WAITS BECAUSE"].strip("-")) == (job["status"] == "Pending"), row
    nodes = await rows_of(tab, site, "/", "NAME")
    for node in site.records("top", "node"):
        assert (nodes[node["name"]]["GPUs"], nodes[node["name"]]["ALLOCATED"]) == (
            node["gpus"], node["gpusAllocated"],
        )  # fmt: skip
    projects = await rows_of(tab, site, "/projects", "PROJECT")
    for item in site.records("list", "projects"):
        row = projects[item["name"]]
        assert float(row["ALLOCATED GPUs"]) == float(item["status"]["allocatedGpu"])
        assert int(row["PENDING JOBS"]) == item["status"].get("pendingWorkloads", 0)
    await tab.go(f"http://127.0.0.1:{site.port}/nodes")
    shown = await tab.js("document.getElementById('body').innerText")
    holding = [job["name"] for job in listed if job["status"] == "Running"]
    assert [name for name in holding if name not in shown] == []


async def test_every_page_has_the_numbers_of_the_command_line_in_each_state(
    site: Site, tmp_path: Path
) -> None:
    seen = await walk(site, tmp_path, check_pages)
    assert seen == ["23-percent", "97-percent", "section-4.9", "section-4.10"]


async def walk(site: Site, folder: Path, check: Callable[[Tab, Site], Awaitable[None]]) -> list[str]:
    """Have the overview open in a browser while the states come about, and look at the pages in each."""
    names = []
    async with browsing(folder) as tab:
        await sign_in(tab, site)
        async for name, utilization_percent in states(site):
            await check_overview(tab, site, utilization_percent)
            await check(tab, site)
            names.append(name)
            await tab.go(f"http://127.0.0.1:{site.port}/")
        assert tab.problems == []
    return names
