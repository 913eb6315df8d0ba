"""Times claims of one GPU each (DRA) through a real API server: from a decision until the last of their pods is bound.

In the same run, on the same server, a raw client makes the same writes for as many claims and pods: finalizer,
allocation and user, binding. All pods wait before either begins; who begins alternates.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from musterbench.dra_objects import CLASS, allocation_of, claim_of_one, slice_of
from musterbench.own_lab import own_lab
from musterbench.processes import in_flight, peak_rss_bytes, processor_ms
from musterbench.raw_client import run_apart
from musterbench.result import Result
from musterbench.schedulers import Scheduler, muster
from musterbench.server_counts import collect_garbage, server_counts
from musterbench.stopwatch import Stopwatch
from musterbench.teams import (
    GPUS_OF_NODE,
    RAW,
    have_accounts,
    make_projects,
    make_raw_namespaces,
    team_namespaces,
)
from musterlab.cluster import Lab
from orchestrator.cluster.device_objects import ResourceClaim
from orchestrator.cluster.errors import Conflict, NotFound
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from orchestrator.cluster.transport import Transport
from orchestrator.names import NAMESPACE_PREFIX, SCHEDULER_NAME

_PREFIX: Final = "lab claims: "
_PROFILE: Final = {"prefix": "dra", "capacity": {"cpu": "80", "memory": "512Gi", "pods": "110"}}
_RAW_SCHEDULER: Final = f"{RAW}client"
_LEADS: Final = " leading: "
_POLL_SECONDS: Final = 0.02
_QUIET_SECONDS: Final = 3.0
_GONE_SECONDS: Final = 600.0


async def run(
    claims: int, rounds: int, *, progress: Callable[[str], None], on_result: Callable[[Result], None]
) -> None:
    """Measure in a lab of its own, which is gone at the end; `on_result` gets each result as soon as it is there.

    Raises MusterError leaves.
    """
    nodes = -(-claims // GPUS_OF_NODE)
    async with own_lab(nodes, progress, _PROFILE) as (lab, transport, directory):
        scheduler = await muster(lab, transport, directory)
        bench = _Bench(lab, transport, scheduler, nodes=nodes, claims=claims, progress=progress)
        await bench.prepare()
        watching = [asyncio.create_task(each.run()) for each in (bench.watch.pods, bench.claims)]
        try:
            await bench.run(rounds, on_result)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)


class _Bench:
    """The rounds in one lab, whose nodes publish as many GPUs as there are claims."""

    def __init__(
        self,
        lab: Lab,
        transport: Transport,
        scheduler: Scheduler,
        *,
        nodes: int,
        claims: int,
        progress: Callable[[str], None],
    ) -> None:
        self.watch = Stopwatch(transport)
        self.claims = Reflector(transport, RESOURCE_CLAIMS, ResourceClaim, on_change=self._see)
        self._lab = lab
        self._transport = transport
        self._scheduler = scheduler
        self._nodes = nodes
        self._count = claims
        self._progress = progress
        self._node_names: list[str] = []
        self._first_written: dict[str, float] = {}

    async def prepare(self) -> None:
        """Publish the GPUs, and make the namespaces."""
        nodes = await self._transport.list(NODES.path(), dict)
        self._node_names = [node["metadata"]["name"] for node in nodes.items]
        await self._transport.create(DEVICE_CLASSES.path(), CLASS)
        for name in self._node_names:
            await self._transport.create(RESOURCE_SLICES.path(), slice_of(name, GPUS_OF_NODE))
        await make_projects(self._transport, self._nodes)
        await make_raw_namespaces(self._transport)
        for prefix in (NAMESPACE_PREFIX, RAW):
            await have_accounts(self._transport, prefix)

    async def run(self, rounds: int, on_result: Callable[[Result], None]) -> None:
        """Each round is one of both; who begins changes, so that a drift in one direction weighs alike on both."""
        raw: list[Result] = []
        ours: list[Result] = []
        both = [("raw-{}", raw, self._raw), ("muster-{}", ours, self._muster)]
        for number in range(1, rounds + 1):
            for name, results, measure in both if number % 2 else reversed(both):
                results.append(await measure(name.format(number)))
                on_result(results[-1])
        on_result(_compared(raw, ours))

    async def _raw(self, phase: str) -> Result:
        """Bind with nothing but a client: what the API server of this machine takes just now."""
        await self._create(phase, team_namespaces(RAW), _RAW_SCHEDULER)
        claims = {
            (claim.metadata.namespace, claim.metadata.name): claim for claim in self.claims.objects.values()
        }
        targets = []
        for number, uid in enumerate(self.watch.of(phase)):
            pod = self.watch.pods.objects[uid].metadata
            claim = claims[pod.namespace, pod.name].metadata
            node = self._node_names[number % self._nodes]
            given = {
                "name": claim.name,
                "uid": claim.uid,
                "version": claim.resource_version,
                "allocation": allocation_of(node, number // self._nodes),
            }
            targets.append(
                {"namespace": pod.namespace, "name": pod.name, "uid": uid, "node": node, "claim": given}
            )
        await collect_garbage(self._transport)
        before, writes = self._processor_ms(), (await server_counts(self._transport)).writes
        client = await run_apart(self._lab.kubeconfig, targets)
        await self._until_bound(phase)
        spent_ms = self._processor_ms() - before + client["cpu_ms"]
        started = self._first_written[phase]
        return await self._finish(phase, started, spent_ms, writes, int(client["peak_rss_bytes"]))

    async def _muster(self, phase: str) -> Result:
        """Let the operator work them off: from when it has read the cluster, and has yet to decide."""
        await self._create(phase, team_namespaces(), SCHEDULER_NAME)
        log = self._scheduler.log
        offset = log.stat().st_size if log.exists() else 0
        await collect_garbage(self._transport)
        async with self._scheduler.running() as process:
            before, writes = self._processor_ms(process.pid), (await server_counts(self._transport)).writes
            while _LEADS not in log.read_text(errors="replace")[offset:]:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(_POLL_SECONDS)
            started = time.monotonic()
            await self._until_bound(phase)
            spent_ms = self._processor_ms(process.pid) - before
            rss_bytes = peak_rss_bytes(process.pid)
        return await self._finish(phase, started, spent_ms, writes, rss_bytes)

    async def _finish(
        self, phase: str, started: float, spent_ms: float, writes_before: float, rss_bytes: int
    ) -> Result:
        """Remove what the round has made; its result, with the time from `started` to the last binding."""
        await self._until_quiet()
        writes = (await server_counts(self._transport)).writes - writes_before
        bound = [self.watch.bound[uid] for uid in self.watch.of(phase)]
        problem = self._problem()
        seconds = max(bound) - started
        figures = {
            "claims_per_second": len(bound) / seconds,
            "first_ms": (min(bound) - started) * 1000,
            "cpu_ms_per_claim": spent_ms / len(bound),
            "writes_per_claim": writes / len(bound),
        }
        await self._remove(phase)
        return Result(
            case=f"{_PREFIX}{phase}",
            nodes=self._nodes,
            gpus=self._nodes * GPUS_OF_NODE,
            jobs=len(bound),
            seconds=seconds,
            peak_rss_bytes=rss_bytes,
            problem=problem,
            figures=figures,
        )

    def _problem(self) -> str | None:
        held = [
            (result.pool, result.device)
            for claim in self.claims.objects.values()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        ]
        if len(held) != self._count:
            return f"{len(held)} of {self._count} claims hold a GPU"
        return None if len(set(held)) == len(held) else "a GPU was given twice"

    def _see(self, change: Change[ResourceClaim]) -> None:
        claim = change.object
        if claim.metadata.finalizers and claim.metadata.labels:
            self._first_written.setdefault(claim.metadata.labels.get("bench", ""), time.monotonic())

    async def _until_bound(self, phase: str) -> None:
        await self.watch.until(self._count, phase, self.watch.bound, self._progress)

    async def _create(self, phase: str, namespaces: Sequence[str], scheduler: str) -> None:
        """Make the claims and their pods, and wait until nothing more happens to either."""

        async def create_one(number: int) -> None:
            namespace, name = namespaces[number % len(namespaces)], f"{phase}-{number:05d}"
            claim = claim_of_one(name)
            claim["metadata"]["labels"] = {"bench": phase}
            await self._make(RESOURCE_CLAIMS.path(namespace), claim)
            await self._make(PODS.path(namespace), _pod(name, phase, scheduler))

        started = time.monotonic()
        await in_flight(create_one, self._count)
        self._progress(
            f"{phase}: {self._count} claims and pods created in {time.monotonic() - started:.1f} s"
        )
        await self.watch.until(self._count, phase, self.watch.created, self._progress)
        await self._until_quiet()

    async def _make(self, path: str, body: dict[str, Any]) -> None:
        while True:
            try:
                await self._transport.create(path, body)
            except Conflict:  # several at once count against one object quota
                continue
            return

    async def _remove(self, phase: str) -> None:
        """Delete the pods, then the claims, and wait until they are gone: the next round begins as this one did."""
        pods = [self.watch.pods.objects[uid].metadata for uid in self.watch.of(phase)]

        async def delete_one(number: int) -> None:
            pod = pods[number]
            await self._transport.delete(PODS.path(pod.namespace, pod.name), grace_seconds=0)
            try:
                await self._transport.delete(RESOURCE_CLAIMS.path(pod.namespace, pod.name))
            except NotFound:
                return

        await in_flight(delete_one, len(pods))
        await self.watch.until_gone(phase)
        async with asyncio.timeout(_GONE_SECONDS):
            while self.claims.objects:  # noqa: ASYNC110 - a controller takes their finalizers away
                await asyncio.sleep(_POLL_SECONDS)
        await self._until_quiet()

    async def _until_quiet(self) -> None:
        counted = (-1, -1)
        while counted != (now := (self.watch.pods.counters.events, self.claims.counters.events)):
            counted = now
            await asyncio.sleep(_QUIET_SECONDS)

    def _processor_ms(self, *schedulers: int) -> float:
        """Processor time so far of the control plane, of this process, and of what binds."""
        servers = [process.pid for process in self._lab.status().processes]
        return sum(processor_ms(pid) for pid in (*servers, os.getpid(), *schedulers))


def _compared(raw: Sequence[Result], ours: Sequence[Result]) -> Result:
    """All rounds of the operator, as a part of what the raw client made of as many."""
    first = ours[0]
    jobs, seconds = sum(result.jobs for result in ours), sum(result.seconds for result in ours)
    figures = {
        "claims_per_second": jobs / seconds,
        "part_of_raw": _mean(ours, "claims_per_second") / _mean(raw, "claims_per_second"),
        "part_of_raw_by_cpu": _mean(raw, "cpu_ms_per_claim") / _mean(ours, "cpu_ms_per_claim"),
        "writes_per_claim": statistics.mean(result.figures["writes_per_claim"] for result in ours),
        "writes_per_claim_raw": statistics.mean(result.figures["writes_per_claim"] for result in raw),
    }
    rss_bytes = max(result.peak_rss_bytes for result in ours)
    problem = next((result.problem for result in (*ours, *raw) if result.problem), None)
    return Result(
        f"{_PREFIX}muster, all", first.nodes, first.gpus, jobs, seconds, rss_bytes, problem, figures
    )


def _mean(results: Sequence[Result], figure: str) -> float:
    """Of rounds of the same size, the mean over all of their claims."""
    return statistics.harmonic_mean([result.figures[figure] for result in results])


def _pod(name: str, phase: str, scheduler: str) -> dict[str, Any]:
    container = {"name": "main", "image": "bench", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": name, "labels": {"bench": phase}},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }
