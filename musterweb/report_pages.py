"""The pages of reports: the acceptance tests in a folder, and the page of one run."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from musterweb.computing import compute
from musterweb.errors import NotThere
from musterweb.page import Page, Visit
from musterweb.reports import Check, Reports
from musterweb.table import Table

MAX_REPORTS: Final = 200
"""Maximum number of listed reports, the newest."""
HEADER: Final = ("NAME", "VERDICT", "ACCEPTANCE", "STARTED", "PROFILE", "CHECKS", "SUMMARY")
REQUIREMENTS_HEADER: Final = ("REQUIREMENT", "VERDICT", "CLAIM", "SOURCE", "REASON")
STEPS_HEADER: Final = ("CHECK", "VERDICT", "TITLE", "REASON")
NO_FOLDER: Final = "No folder of reports is named: start muster web with --reports DIRECTORY."
NO_RIGHTS: Final = (
    "A report holds the jobs of all teams: ask for muster-viewer, bound in the whole cluster, to see any."
)


def report_address(name: str) -> str:
    """Return the address of a report's page."""
    return f"/reports/{quote(name, safe='')}"


def _may_see(visit: Visit) -> bool:
    rights = visit.person.rights
    return rights is not None and rights.scopes is None and rights.nodes


async def reports_page(visit: Visit) -> Page:
    """Return the page with the runs, newest first."""
    folder = visit.reports
    if folder is None or not _may_see(visit):
        note = NO_FOLDER if folder is None else NO_RIGHTS
        return Page("Reports", "reports.html.j2", {"note": note, "tables": []})

    def rows() -> tuple[list[Sequence[str]], int]:
        names = folder.names()
        return [_row(folder, name) for name in names[:MAX_REPORTS]], len(names)

    listed, count = await compute(rows)
    table = Table(
        "reports", "Runs of the acceptance test", HEADER, listed, link=lambda row: report_address(row[0]),
        csv="/reports.csv", empty="No run has left a report here.",
        note=f"The newest {MAX_REPORTS} of {count}." if count > MAX_REPORTS else "",
    )  # fmt: skip
    return Page("Reports", "reports.html.j2", {"note": "", "tables": [table]}, (table,))


def _row(folder: Reports, name: str) -> Sequence[str]:
    try:
        report = folder.read(name)
    except NotThere as error:
        return (name, "unreadable", "", "", "", "", str(error))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.coverage.by_verdict.items()))
    return (
        name, report.verdict, report.acceptance, report.volatile.run.started, report.scope.profile, counts,
        report.summary,
    )  # fmt: skip


async def report_page(visit: Visit) -> Page:
    """Return the page of one run: its requirements, and the checks that did not pass."""
    folder, name = visit.reports, visit.path["name"]
    if folder is None or not _may_see(visit):
        raise NotThere(NO_FOLDER if folder is None else NO_RIGHTS)
    report = await compute(lambda: folder.read(name))
    requirements = [
        [one.id, one.verdict, one.claim, one.source, one.reason or one.not_applicable]
        for one in report.requirements
    ]
    failed = [
        [one.id, one.verdict, one.title, "; ".join(_reasons(one))]
        for one in report.steps
        if one.verdict != "PASS"
    ]
    tables = (
        Table(
            "failed", "Checks that did not pass", STEPS_HEADER, failed, csv=f"{report_address(name)}/failed.csv",
            empty="All checks passed.",
        ),
        Table(
            "requirements", "Requirements", REQUIREMENTS_HEADER, requirements,
            csv=f"{report_address(name)}/requirements.csv",
        ),
    )  # fmt: skip
    note = f"{report.headline} {report.summary} Profile {report.scope.profile}: {report.scope.profile_title}."
    return Page(f"Report {name}", "reports.html.j2", {"note": note, "tables": tables}, tables)


def _reasons(check: Check) -> list[str]:
    return [
        *([check.reason] if check.reason else []),
        *check.differences,
        *(violation.message for violation in check.volatile.violations),
    ]
