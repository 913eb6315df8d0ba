"""Writes the history of `muster web`: a sample each minute of the cluster as a service account sees it, even if no page
is open.

The token in a file belongs to this account, which needs the role muster-viewer in the whole cluster. The token is used
for nothing else: the rights of people come from their own tokens.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from musterweb.errors import HistoryAway, SignInNeeded
from musterweb.history_model import Record, Span
from musterweb.history_store import Sample, Store
from musterweb.person import Person, sign_in
from musterweb.sights import Sight, Sights
from musterweb.usage_store import Held, Holder, UsageSample
from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.objects import Pod
from orchestrator.errors import MusterError
from orchestrator.names import GPU_UUIDS_ANNOTATION
from orchestrator.planner.model import DEVICE_MILLI
from orchestrator.views.gpus import GpuView, gpus_of_job, gpus_of_pod
from orchestrator.views.job_gpus import GpusOfJobs
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.nodes import gpu_totals

log = logging.getLogger(__name__)

RECORD_SECONDS: Final = 60.0
POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 10.0


class RecordedHistory:
    """A history store, and a task that writes a sample into it every `record_seconds`.

    After a failure, it tries again after `retry_seconds`. It shares `sights` with the pages.
    """

    def __init__(
        self,
        store: Store,
        access: Access,
        token_file: Path,
        sights: Sights,
        *,
        record_seconds: float = RECORD_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._store = store
        self._access = access
        self._token_file = token_file
        self._sights = sights
        self._record_seconds = record_seconds
        self._retry_seconds = retry_seconds
        self._sampler = Sampler()
        self._task: asyncio.Task[None] | None = None
        self.source = store.source

    async def start(self) -> None:
        """Open the store and begin to record. Raises HistoryAway."""
        await self._store.start()
        self._task = asyncio.create_task(self._record())

    async def close(self) -> None:
        """Stop recording and close the store."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._store.close()

    async def read(self, span: Span, projects: frozenset[str] | None) -> Record:
        """Return the figures of these projects. None means all projects and the cluster. Raises HistoryAway."""
        return await self._store.read(span, projects)

    async def _record(self) -> None:
        while True:
            try:
                person = await sign_in(self._access, partial(str, self._token()), None, self._sights)
            except MusterError as error:
                self._note(str(error))
            else:
                try:
                    await self._follow(person)
                finally:
                    await person.close()
            await asyncio.sleep(self._retry_seconds)

    async def _follow(self, person: Person) -> None:
        """Record until the token is refused or the store cannot be written."""
        due = time.monotonic()
        with person.using():
            while True:
                try:
                    person.wake()
                    now = time.monotonic()
                    if now >= due and (sight := _whole(person)) is not None:
                        due = now + self._record_seconds
                        await self._store.add(*self._sampler.sample(sight))
                        self._note("")
                except (SignInNeeded, HistoryAway) as error:
                    self._note(str(error))
                    return
                if person.problem:
                    self._note(person.problem)
                elif person.sight is not None and _whole(person) is None:
                    self._note(
                        f"{person.user} may not see all jobs, nodes and projects: bind muster-viewer to it"
                    )
                await asyncio.sleep(POLL_SECONDS)

    def _token(self) -> str:
        try:
            return self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryAway(f"the token in {self._token_file} cannot be read: {error}") from error

    def _note(self, problem: str) -> None:
        if problem != self._store.problem:
            log.log(logging.WARNING if problem else logging.INFO, "history: %s", problem or "recording")
            self._store.problem = problem


def _whole(person: Person) -> Sight | None:
    """Return the sight of the account, if it is complete and current."""
    rights, sight = person.rights, person.sight
    if not person.is_live or rights is None or rights.scopes is not None or sight is None:
        return None
    return None if sight.nodes is None or sight.projects is None else sight


class Sampler:
    """Makes a sample of each sight, with the waiting times of jobs that started since the previous sample."""

    def __init__(self) -> None:
        self._started_before: frozenset[str] | None = None

    def sample(self, sight: Sight) -> tuple[Sample, dict[str, Sample], UsageSample]:
        """Return the sample of the cluster, those of the projects, and the holders of GPUs."""
        of_projects: dict[str, list[WorkloadView]] = {
            project.metadata.name: [] for project in sight.projects or ()
        }
        for view in sight.jobs:
            if view.project in of_projects:
                of_projects[view.project].append(view)
        quotas = {
            project.metadata.name: gpu_milli(project.spec.gpu.quota) for project in sight.projects or ()
        }
        started = self._started(sight)
        counts = GpusOfJobs(sight.nodes or ())
        samples = {
            name: _sample(views, quotas[name], sight, counts, started) for name, views in of_projects.items()
        }
        totals = gpu_totals(sight.nodes or [])
        gpus = [gpu for view in sight.nodes or () for gpu in view.gpus]
        idle, used = _use(gpus)
        cluster = Sample(
            totals.allocated_milli,
            totals.gpu_milli,
            sum(sample.pending_milli for sample in samples.values()),
            idle,
            used,
        )
        return cluster, samples, usage_sample(sight, counts, samples)

    def _started(self, sight: Sight) -> Mapping[str, int]:
        """Return, by uid, the wait in seconds of each job that has started since the last sample.

        An evicted job is pending again, and counts as started when it runs again.
        """
        started = {view.uid: view for view in sight.jobs if view.started_us is not None}
        before, self._started_before = self._started_before, frozenset(started)
        if before is None:
            return {}
        return {
            uid: max(0, (view.started_us or 0) - view.created_us) // 1_000_000
            for uid, view in started.items()
            if uid not in before
        }


def _sample(
    views: list[WorkloadView], quota_milli: int, sight: Sight, counts: GpusOfJobs, started: Mapping[str, int]
) -> Sample:
    waiting = [view for view in views if view.status == "Pending"]
    gpus = list(dict.fromkeys(gpu for view in views for gpu in gpus_of_job(view.pods, sight.gpus)))
    idle, used = _use(gpus)
    waits = [started[view.uid] for view in views if view.uid in started]
    return Sample(
        gpu_milli=sum(counts.held_milli(view) for view in views),
        quota_milli=quota_milli,
        pending_milli=sum(counts.requested_milli(view) for view in waiting),
        idle_milli=idle,
        used_permille=used,
        wait_seconds=sum(waits),
        started=len(waits),
        oldest_wait=max(((sight.at_us - view.created_us) // 1_000_000 for view in waiting), default=0),
    )


def usage_sample(sight: Sight, counts: GpusOfJobs, samples: Mapping[str, Sample]) -> UsageSample:
    """Return the GPUs by project, user and model. The model is that of the node, and "" without one."""
    models = {node.name: node.gpu_product for node in sight.nodes or ()}
    held: defaultdict[Holder, Held] = defaultdict(lambda: Held(0))
    for view in sight.jobs:
        if view.project not in samples:
            continue
        for pod, milli in counts.held_of_pods_milli(view):
            if milli:
                holder = Holder(view.project, view.user, models.get(pod.spec.node_name or "", ""))
                held[holder] += _held(milli, pod, list(gpus_of_pod(pod, sight.gpus)))
    borrowed = {
        name: sample.gpu_milli - sample.quota_milli
        for name, sample in samples.items()
        if sample.quota_milli is not None and 0 <= sample.quota_milli < sample.gpu_milli
    }
    return UsageSample(held, borrowed)


def _held(milli: int, pod: Pod, gpus: list[GpuView]) -> Held:
    """Return the amount of one pod. The pod's GPUs have equal portions, even those without a report."""
    named = pod.metadata.annotations.get(GPU_UUIDS_ANNOTATION, "").count(",") + 1
    part = milli // max(len(gpus), named, -(-milli // DEVICE_MILLI))
    measured = [gpu for gpu in gpus if gpu.utilization_percent is not None]
    return Held(
        milli,
        part * len(measured),
        part * sum(gpu.utilization_percent or 0 for gpu in measured),
        part * sum(gpu.idle_seconds is not None for gpu in measured),
    )


def _use(gpus: list[GpuView]) -> tuple[int | None, int | None]:
    """Return the idle GPUs in thousandths, and the utilization in thousandths."""
    known = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    if not known:
        return None, None
    idle = sum(DEVICE_MILLI for gpu in gpus if gpu.idle_seconds is not None)
    return idle, sum(known) * 10 // len(known)
