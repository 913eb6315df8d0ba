"""The states of TR-4858 on a real API server and in Chromium: every page has the numbers of `list` and `top`.

The states are low utilization (23 %, three jobs of one team), high utilization (97 %), and the ends of §4.9 and §4.10.
The test writes the GpuNodes that agents would write. The operator decides which pods hold which GPUs.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
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
from orchestrator.manifests.install import apply
from orchestrator.names import GPU_DEVICES_ANNOTATION
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, must_all, operator, prepare, until_granted
from tests.musterweb.chromium import Tab, browsing, program
from tests.musterweb.running import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(program() is None, reason="Debian's package chromium is not installed"),
]

SECONDS_TO_THE_PAGE = 5.0
SCENARIOS = Path(__file__).parents[2] / "validation" / "scenarios" / "tr4858"
QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
GPUS_OF_A_NODE = 8
LOW = [f"muster submit low-{n} -i image -g {gpus} -p team-a" for n, gpus in enumerate((1, 1, 2))]
"""Three jobs of one team, as in the paper. They hold four of sixteen GPUs, which the test makes 92 % busy."""
LOW_BUSY_PERCENT, LOW_PERCENT = 92, 23
RECORD = """
window.contents = [];
const record = () => contents.push({
    at: Date.now() / 1000,
    live: document.getElementById('state').dataset.live,
    text: document.getElementById('body').innerText,
    figures: Object.fromEntries([...document.querySelectorAll('.figures div')].map(
        (figure) => [figure.querySelector('dt').innerText, figure.querySelector('dd').innerText])),
    rows: [...document.querySelectorAll('#body table')].flatMap((table) => {
        const names = [...table.querySelectorAll('thead th')].map((cell) => cell.textContent.trim());
        return [...table.querySelectorAll('tbody tr')].map((row) => Object.fromEntries(
            [...row.children].map((cell, place) => [names[place], cell.textContent.trim()])));
    }),
});
new MutationObserver(record).observe(document.body, {subtree: true, childList: true, attributes: true});
record();
"""
"""Records in the page its content after every change, with the time in seconds."""


@dataclass
class Site:
    """The lab, the pages, and the token of a user who may see everything."""

    kubeconfig: Path
    port: int
    token: str

    def records(self, *words: str) -> Any:
        return json.loads(must(self.kubeconfig, *words, "-o", "json"))

    def run(self, lines: Sequence[str]) -> None:
        must_all(self.kubeconfig, *(shlex.join(shlex.split(line)[1:]) for line in lines))

    async def until_jobs_are(self, running: int, *pending: Sequence[str]) -> None:
        """Wait until the command line shows `running` running jobs, one of the lists of pending jobs, and a reason for
        each pending job.
        """
        lists = [sorted(names) for names in pending]
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                jobs = await asyncio.to_thread(self.records, "list", "-A")
                count = sum(job["status"] == "Running" for job in jobs)
                waiting = sorted(job["name"] for job in jobs if job["status"] == "Pending")
                is_explained = all(job["waitsBecause"] for job in jobs if job["status"] == "Pending")
                if count == running and waiting in lists and is_explained:
                    return
                await asyncio.sleep(0.5)  # each list is a process

    async def remove_gpus(self) -> None:
        """Delete all GpuNodes: where a node has an agent, a GPU fraction waits until the agent says which GPU is
        reserved for it.
        """
        async with Transport(load_access(self.kubeconfig)) as transport:
            for node in (await transport.list(GPU_NODES.path(), dict)).items:
                await transport.delete(GPU_NODES.path(name=node["metadata"]["name"]))

    async def write_gpus(self, busy_percent: int, free_percent: int) -> None:
        """Write the GpuNode of each node: a GPU that a pod holds by its annotation is `busy_percent` busy, another
        `free_percent`.
        """
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
    """Create a service account that may see everything, and return its token."""
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


async def states_of_use(site: Site) -> AsyncIterator[tuple[str, int]]:
    """Bring about low and high utilization. Yield the name of each state, and the utilization that was written."""
    site.run(LOW)
    await site.until_jobs_are(3, [])
    await site.write_gpus(LOW_BUSY_PERCENT, 0)
    yield "23-percent", LOW_PERCENT

    site.run([f"muster delete -p team-a {' '.join(f'low-{n}' for n in range(3))}"])
    await site.until_jobs_are(0, [])
    await site.remove_gpus()
    steps = scenario("utilization")
    for step in steps:
        site.run(step["run"])
    await site.until_jobs_are(steps[-1]["expect"]["running"], steps[-1]["expect"]["pending"])
    await site.write_gpus(97, 97)
    yield "97-percent", 97


async def states_of_sections(site: Site) -> AsyncIterator[tuple[str, int]]:
    """Bring about the ends of §4.9 and §4.10, as `states_of_use`."""
    for project in QUOTAS:
        if names := [job["name"] for job in site.records("list", "-p", project)]:
            site.run([f"muster delete -p {project} {' '.join(names)}"])
    await site.until_jobs_are(0, [])
    for name in ("section-4.8", "section-4.9", "section-4.10"):
        await site.remove_gpus()
        for step in scenario(name):
            site.run(step["run"])
            possible = [step["expect"], *step["expect"].get("orElse", ())]
            await site.until_jobs_are(step["expect"]["running"], *(one["pending"] for one in possible))
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


@dataclass(frozen=True)
class Printed:
    """The output of the command line in one state: jobs, nodes, projects, and the total of `top node`."""

    jobs: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    projects: Sequence[Mapping[str, Any]]
    cluster: re.Match[str]


def printed(site: Site) -> Printed:
    text = must(site.kubeconfig, "top", "node")
    cluster = re.search(r"In Cluster:\n([\d.]+)/([\d.]+) \((\d+)%\)", text)
    assert cluster, text
    return Printed(
        site.records("list", "-A"), site.records("top", "node"), site.records("list", "projects"), cluster
    )


def problems_of_overview(content: Mapping[str, Any], state: Printed, utilization_percent: int) -> list[str]:
    expected = {
        "GPUs": state.cluster[2],
        "Allocated": f"{state.cluster[1]} ({state.cluster[3]}%)",
        "Utilization": f"{utilization_percent}%",
        "Jobs that hold GPUs": str(sum(job["status"] == "Running" for job in state.jobs)),
        "Jobs that wait": str(sum(job["status"] == "Pending" for job in state.jobs)),
    }
    figures = content["figures"]
    rows = {row["NAME"]: row for row in content["rows"] if "ALLOCATED" in row}
    return differences(
        {
            **{name: (figures.get(name), value) for name, value in expected.items()},
            **{
                node["name"]: (
                    (rows[node["name"]]["GPUs"], rows[node["name"]]["ALLOCATED"])
                    if node["name"] in rows
                    else None,
                    (node["gpus"], node["gpusAllocated"]),
                )
                for node in state.nodes
            },
        }
    )


def problems_of_jobs(content: Mapping[str, Any], state: Printed, _utilization_percent: int) -> list[str]:
    shown = {
        row["NAME"]: (
            row["STATUS"], row["GPUs"], row["PROJECT"], row["NODE"].strip("-"), bool(row["WAITS BECAUSE"].strip("-")),
        )
        for row in content["rows"]
    }  # fmt: skip
    expected = {
        job["name"]: (
            job["status"], job["gpus"], job["project"], (job["node"] or "").strip("-"), job["status"] == "Pending",
        )
        for job in state.jobs
    }  # fmt: skip
    return differences({name: (shown.get(name), expected.get(name)) for name in {*shown, *expected}})


def problems_of_nodes(content: Mapping[str, Any], state: Printed, utilization_percent: int) -> list[str]:
    running = [job["name"] for job in state.jobs if job["status"] == "Running"]
    absent = [name for name in running if name not in content["text"]]
    # In the first state four of the sixteen GPUs are busy, in the other states all of them are.
    used = f"{LOW_BUSY_PERCENT if utilization_percent == LOW_PERCENT else utilization_percent}%"
    return [*absent, *([] if used in content["text"] else [f"nowhere {used}"])]


def problems_of_projects(content: Mapping[str, Any], state: Printed, _utilization_percent: int) -> list[str]:
    rows = {row["PROJECT"]: row for row in content["rows"] if "PENDING JOBS" in row}
    shown = {name: (float(row["ALLOCATED GPUs"]), int(row["PENDING JOBS"])) for name, row in rows.items()}
    expected = {
        item["name"]: (float(item["status"]["allocatedGpu"]), item["status"].get("pendingWorkloads", 0))
        for item in state.projects
    }
    return differences({name: (shown.get(name), value) for name, value in expected.items()})


def differences(pairs: Mapping[str, tuple[object, object]]) -> list[str]:
    return [f"{name}: {shown}, not {value}" for name, (shown, value) in pairs.items() if shown != value]


PROBLEMS: Mapping[str, Callable[[Mapping[str, Any], Printed, int], list[str]]] = {
    "/": problems_of_overview,
    "/jobs": problems_of_jobs,
    "/nodes": problems_of_nodes,
    "/projects": problems_of_projects,
}


async def check_page(tab: Tab, path: str, state: Printed, utilization_percent: int, event: float) -> None:
    """Check that an open page shows what the command line prints at most `SECONDS_TO_THE_PAGE` after the event.

    `event` is in seconds since 1970, as the page records times.
    """
    deadline = event + DEADLINE_SECONDS
    while True:
        contents: list[dict[str, Any]] = await tab.js("contents")
        wrong = [PROBLEMS[path](content, state, utilization_percent) for content in contents]
        if not wrong[-1]:
            break
        assert time.time() < deadline, (path, wrong[-1])
        await asyncio.sleep(0.1)  # the page itself records the time of each change
    first = max((number + 1 for number, problems in enumerate(wrong) if problems), default=0)
    delay = contents[first]["at"] - event
    assert delay <= SECONDS_TO_THE_PAGE, (path, delay, wrong[first - 1])
    assert contents[-1]["live"] == "yes", path
    await tab.js("void contents.splice(0, contents.length - 1)")


STATES: Mapping[str, Callable[[Site], AsyncIterator[tuple[str, int]]]] = {
    "23-percent 97-percent": states_of_use,
    "section-4.9 section-4.10": states_of_sections,
}


@pytest.mark.parametrize(
    "expected",
    [pytest.param(names, marks=pytest.mark.rare) if "section" in names else names for names in STATES],
)
async def test_every_page_has_the_numbers_of_the_command_line_in_each_state(
    expected: str, site: Site, tmp_path: Path
) -> None:
    names = []
    async with browsing(tmp_path) as tab:
        await sign_in(tab, site)
        tabs = {path: await tab.beside() for path in PROBLEMS}
        for path, page in tabs.items():
            await page.go(f"http://127.0.0.1:{site.port}{path}")
            await page.js(RECORD)
        async for name, utilization_percent in STATES[expected](site):
            event = time.time()
            state = await asyncio.to_thread(printed, site)
            for path, page in tabs.items():
                await check_page(page, path, state, utilization_percent, event)
            names.append(name)
        assert [page.problems for page in tabs.values()] == [[]] * len(tabs)
    assert names == expected.split()
