"""`muster list --watch`: the table, and then a line for every job that has changed, until interrupted."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.cli.gpus import devices_text
from orchestrator.cli.job_table import WIDE_HEADER, Form, row
from orchestrator.cli.output import cells, column_widths, document, line
from orchestrator.cli.selecting import check_nodes
from orchestrator.views.job_record import job_record

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.selection import Selection

DELETED: Final = "Deleted"
_AGE: Final = WIDE_HEADER.index("AGE")


async def watch_jobs(client: "AsyncClient", all_projects: bool, selection: "Selection", form: Form) -> None:
    """Print the jobs of the selection, then each changed job. A deleted job has the status `Deleted`.

    A job that no longer meets the selection is printed once more: its row says why.
    """
    scope = None if all_projects else await client.scope()
    # raises if the user may not list jobs
    await check_nodes(client, selection, await client.list_jobs(project=scope, all_projects=all_projects))
    printer = _Printer(form)
    if scope is not None and form.output in (None, "wide") and not form.no_headers:
        printer.say(f"Showing jobs for project {scope.project}")
    async with aclosing(client.watch_jobs(project=scope, all_projects=all_projects)) as states:
        async for views in states:
            printer.show(selection.of(views), {view.uid: view for view in views})


class _Printer:
    """Prints the jobs that differ from those of its last output."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._output = form.output
        self._header = form.header
        self._with_header = not form.no_headers
        self._widths: list[int] = []
        self._shown: dict[str, tuple[Sequence[str], WorkloadView]] = {}

    def show(self, views: "Sequence[WorkloadView]", everything: "Mapping[str, WorkloadView]") -> None:
        """Print new and changed jobs, and printed jobs that are no longer in `views`.

        `everything` has, by uid, all jobs that exist.
        """
        now_us = time.time_ns() // 1000
        removed = self._shown.keys() - {view.uid for view in views}
        last = {uid: self._shown.pop(uid)[1] for uid in removed}
        changed = [everything.get(uid) or replace(view, status=DELETED) for uid, view in last.items()]
        for view in views:
            facts = self._facts(view, now_us)
            if view.uid not in self._shown or self._shown[view.uid][0] != facts:
                changed.append(view)
            self._shown[view.uid] = facts, view
        if self._output in ("json", "yaml"):
            for view in changed:
                content = job_record(view, now_us)
                self.say(
                    json.dumps(content, ensure_ascii=False)
                    if self._output == "json"
                    else f"---\n{document(content, 'yaml')}"
                )
        elif self._output == "name":
            for view in changed:
                self.say(view.name)
        else:
            self._print_rows(
                [self._form.row(view, now_us, devices=devices_text(view, ())) for view in changed]
            )

    def say(self, text: str) -> None:
        """Print a line and flush it, for readers of a pipe."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _facts(self, view: "WorkloadView", now_us: int) -> Sequence[str]:
        values = list(row(view, now_us, wide=True, devices=devices_text(view, ())))
        del values[_AGE]  # the age always changes
        return [*values, view.priority_class]

    def _print_rows(self, rows: Sequence[Sequence[str]]) -> None:
        lines = cells(rows)
        header = [list(self._header)] if self._with_header else []
        needed = column_widths([*header, *lines]) if header or lines else []
        if not self._widths and needed:
            self._widths = needed
        if header:
            self._with_header = False
            self.say(line(header[0], self._widths))
        status = self._header.index("STATUS") if "STATUS" in self._header else None
        for values in lines:
            self._widths = [max(pair) for pair in zip(self._widths, map(len, values), strict=True)]
            self.say(line(values, self._widths, status))
