"""The pages for overview, jobs and projects.

They show the tables of `muster list` and `muster top`, limited to the objects that the person may see
(`musterweb.sights`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from musterweb.node_pages import NO_NODES, nodes_table, old_figures
from musterweb.page import Page, Pager, Visit, address, job_address, left_out
from musterweb.table import Table, columns
from orchestrator.cli import job_table, project
from orchestrator.cli.cluster import SKIPPED_HEADER, skipped_rows
from orchestrator.cli.gpus import USE_HEADER, devices_text, percent, use_cells
from orchestrator.cli.output import age
from orchestrator.client.policies_in_force import policies_in_force
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.gpu_fraction import format_gpu, gpu_milli
from orchestrator.cluster.objects import Project
from orchestrator.control.report.skipped import NoRecord, recorded
from orchestrator.views.gpus import gpus_of_job, use_of
from orchestrator.views.job_gpus import GpusOfJobs
from orchestrator.views.jobs import WorkloadView, duration_seconds
from orchestrator.views.nodes import gpu_totals

ROWS_OF_A_PAGE: Final = 200
ROWS_OF_THE_OVERVIEW: Final = 12
JOBS_HEADER: Final = (*job_table.WIDE_HEADER, "DURATION", *USE_HEADER)
JOB_COLUMNS: Final = (
    "NAME", "STATUS", "GPUs", "NODE", "WAITS BECAUSE", "PROJECT", "USER", "AGE", "DURATION", "TYPE", "GPU(Utilization)",
)  # fmt: skip
HOLDING_COLUMNS: Final = (
    "NAME", "GPUs", "PROJECT", "NODE", "DURATION", "GPU(Utilization)", "GPU(Idle)", "USER", "TYPE",
)  # fmt: skip
WAITING_COLUMNS: Final = ("NAME", "GPUs", "WAITS BECAUSE", "PROJECT", "AGE", "USER", "TYPE")
NO_PROJECTS: Final = "You may not list projects: ask for muster-user, bound in the whole cluster."
NO_JOBS: Final = (
    "You see the jobs of no project: sign in again and name one of yours, "
    "or ask an administrator to make you a member."
)


@dataclass(frozen=True, slots=True)
class Share:
    """A project's allocated GPUs and its quota."""

    name: str
    held: str
    quota: str
    share: str
    pending: int
    held_milli: int
    quota_milli: int
    max_milli: int


def job_row(visit: Visit, view: WorkloadView) -> Sequence[str]:
    """Return one row for `JOBS_HEADER`: the columns of `muster list -o wide`, then the columns with measurements of
    `muster top job`.
    """
    gpus = gpus_of_job(view.pods, visit.sight.gpus)
    cells = job_table.row(view, visit.now_us, wide=True, devices=devices_text(view, gpus))
    seconds = duration_seconds(view, visit.now_us) if view.started_us is not None else None
    return (*cells, "" if seconds is None else age(seconds), *use_cells(use_of(gpus, view.pods)))


def _jobs_table(
    visit: Visit, name: str, title: str, views: Sequence[WorkloadView], chosen: Sequence[str], **rest: str
) -> Table:
    rows = [columns(JOBS_HEADER, job_row(visit, view), chosen) for view in views]
    place, where = chosen.index("NAME"), chosen.index("PROJECT")
    return Table(
        name, title, chosen, rows, link=lambda row: job_address(row[where], row[place]), **rest
    )  # fmt: skip


async def overview(visit: Visit) -> Page:
    """Return the page with running jobs, their GPUs and utilization, and pending jobs with reasons."""
    sight = visit.sight
    counts = GpusOfJobs(sight.nodes or ())
    holding = [view for view in sight.jobs if counts.held_milli(view) or (view.gpu_memory and view.held_gpus)]
    waiting = [view for view in sight.jobs if view.status == "Pending"]
    first = ROWS_OF_THE_OVERVIEW
    tables = [
        _jobs_table(
            visit, "waiting", "Who waits", waiting[:first], WAITING_COLUMNS,
            csv=address("/jobs.csv", status="Pending"),
            empty="No job is pending.", note=_more(len(waiting), first),
        ),
        _jobs_table(
            visit, "holding", "Who holds GPUs", holding[:first], HOLDING_COLUMNS, csv="/holding.csv",
            empty="No job holds GPUs.", note=_more(len(holding), first),
        ),
    ]  # fmt: skip
    if sight.nodes is not None:
        tables.append(nodes_table(visit))
    return Page(
        "Overview",
        "overview.html.j2",
        {"figures": _figures(visit, len(holding), len(waiting)), "shares": _shares(sight.projects), "tables": tables,
         "notes": _notes(visit)},
        (Table("holding", "Who holds GPUs", HOLDING_COLUMNS, _Lazy(visit, holding, HOLDING_COLUMNS)),),
    )  # fmt: skip


def _notes(visit: Visit) -> list[str]:
    sight = visit.sight
    return [
        *_notes_of_jobs(visit),
        *([NO_NODES] if sight.nodes is None else []),
        *([NO_PROJECTS] if sight.projects is None else []),
        *old_figures(visit),
    ]


def _notes_of_jobs(visit: Visit) -> list[str]:
    """Return a sentence about the projects whose jobs are not shown."""
    rights = visit.person.rights
    return [*([NO_JOBS] if rights is not None and rights.scopes == () else []), *left_out(visit)]


def _more(count: int, first: int) -> str:
    return f"The first {first} of {count}." if count > first else ""


def _figures(visit: Visit, holding: int, waiting: int) -> list[tuple[str, str]]:
    sight = visit.sight
    jobs = [("Jobs that hold GPUs", str(holding)), ("Jobs that wait", str(waiting))]
    if sight.nodes is None:
        held_milli = sum(view.held_gpu_milli for view in sight.jobs)
        return [("GPUs allocated to your projects", format_gpu(held_milli)), *jobs]
    totals = gpu_totals(sight.nodes)
    use = use_of(gpu for view in sight.nodes for gpu in view.gpus)
    of_all = "" if totals.allocated_percent is None else f" ({totals.allocated_percent}%)"
    idle = "-" if totals.idle_milli is None else format_gpu(totals.idle_milli)
    return [
        ("GPUs", format_gpu(totals.gpu_milli)),
        ("Allocated", f"{format_gpu(totals.allocated_milli)}{of_all}"),
        ("Free", format_gpu(totals.free_milli)),
        ("Not ready or cordoned", format_gpu(totals.closed_milli)),
        ("Allocated, but idle", idle),
        ("Unhealthy", format_gpu(totals.unhealthy_milli)),
        ("Utilization", percent(use.utilization_percent)),
        ("Nodes", str(len(sight.nodes))),
        *jobs,
    ]


def _shares(projects: Sequence[Project] | None) -> list[Share]:
    shares = []
    for item in projects or ():
        status = item.status
        quota, held = gpu_milli(item.spec.gpu.quota), gpu_milli(status.allocated_gpu)
        shares.append(
            Share(
                item.metadata.name, str(status.allocated_gpu), format_gpu(quota), str(status.fair_share_gpu),
                status.pending_workloads, held, quota, 0,
            )
        )  # fmt: skip
    most = max((max(share.held_milli, share.quota_milli) for share in shares), default=0)
    return [
        Share(
            share.name, share.held, share.quota, share.share, share.pending, share.held_milli, share.quota_milli, most
        )
        for share in shares
    ]  # fmt: skip


async def jobs_page(visit: Visit) -> Page:
    """Return the page with all jobs that the person may see, or those of them that the query selects."""
    views = visit.sight.jobs
    word, status, of = (visit.query.get(name, "") for name in ("name", "status", "project"))
    chosen = [
        view
        for view in views
        if word in view.name and status in ("", view.status) and of in ("", view.project)
    ]
    query = {"name": word, "status": status, "project": of}
    pager = Pager.of(visit, len(chosen), ROWS_OF_A_PAGE, "/jobs", **query)
    table = _jobs_table(
        visit, "jobs", "Jobs", chosen[pager.start : pager.end], JOB_COLUMNS,
        csv=address("/jobs.csv", **query), empty="No such job." if views else "There are no jobs.",
    )  # fmt: skip
    return Page(
        "Jobs",
        "jobs.html.j2",
        {
            "tables": [table],
            "pager": pager,
            "query": query,
            "statuses": sorted({view.status for view in views} | ({status} if status else set())),
            "projects": sorted({view.project for view in views} | ({of} if of else set())),
            "notes": [*_notes_of_jobs(visit), *old_figures(visit)],
        },
        # The rows are made only when the file is downloaded. Making 4,000 rows takes longer than rendering the page.
        (Table("jobs", "Jobs", JOBS_HEADER, _Lazy(visit, chosen, JOBS_HEADER)),),
    )


class _Lazy(Sequence[Sequence[str]]):
    """The rows of jobs, each made when it is read."""

    def __init__(self, visit: Visit, views: Sequence[WorkloadView], chosen: Sequence[str]) -> None:
        self._visit, self._views, self._chosen = visit, views, chosen

    def __len__(self) -> int:
        return len(self._views)

    def __getitem__(self, place: Any) -> Any:
        """Return the row of one job."""
        return columns(JOBS_HEADER, job_row(self._visit, self._views[place]), self._chosen)


async def projects_page(visit: Visit) -> Page:
    """Return the page of the projects with quota, allocation and pending requests."""
    projects = visit.sight.projects
    rights = visit.person.rights
    rows = [project.row(item, "", wide=True) for item in projects or ()]
    table = Table(
        "projects", "Projects", project.WIDE_HEADER, rows, link=lambda row: f"/projects/{row[0]}", csv="/projects.csv",
        empty="There are no projects." if projects is not None else NO_PROJECTS,
    )  # fmt: skip
    return Page(
        "Projects",
        "projects.html.j2",
        {
            "tables": [table],
            "edits": rights is not None and rights.edits_projects,
            "shares": _shares(projects),
        },
        (table,),
    )


async def health_page(visit: Visit) -> Page:
    """Return the page of `muster cluster status`: the state of the policies, and the skipped objects."""
    transport = visit.person.client.transport
    policies = (await policies_in_force(transport)).sentence()
    try:
        record = await recorded(transport)
    except (Forbidden, NotFound, NoRecord) as error:
        return Page("Cluster", "health.html.j2", {"policies": policies, "tables": [], "note": str(error)})
    table = Table(
        "skipped", "Objects that the scheduler skips or counts differently", SKIPPED_HEADER,
        skipped_rows(record), csv="/cluster.csv", empty="No object is skipped.",
        note=f"and {record.more} more" if record.more else "",
    )  # fmt: skip
    return Page("Cluster", "health.html.j2", {"policies": policies, "tables": [table], "note": ""}, (table,))
