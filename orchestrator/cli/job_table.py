"""The table of jobs: its header, and the row of one job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.cli.output import age
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.views.jobs import WorkloadView

HEADER: Final = (
    "NAME",
    "STATUS",
    "AGE",
    "NODE",
    "IMAGE",
    "TYPE",
    "PROJECT",
    "USER",
    "GPUs",
    "CREATED BY CLI",
    "SERVICE URL(S)",
)
WIDE_HEADER: Final = (*HEADER[:-1], "NAMESPACE", "PODS", HEADER[-1], "GPU DEVICES", "WAITS BECAUSE")
COLUMNS: Final = (*WIDE_HEADER, "PRIORITY")
"""The columns that `--columns` knows."""


def row(view: "WorkloadView", now_us: int, *, wide: bool = False, devices: str = "") -> Sequence[str]:
    """Return the cells of one job; `devices` are its GPUs as far as they are known."""
    cells = (
        view.name,
        view.status,
        age((now_us - view.created_us) // 1_000_000),
        view.node,
        view.image,
        view.type,
        view.project,
        view.user,
        view.gpus,
        str(view.created_by_cli).lower(),
    )
    urls = ",".join(view.urls)
    if not wide:
        return (*cells, urls)
    return (*cells, view.namespace, str(len(view.pods)), urls, devices, view.waits_because)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a list of jobs: the format, and the names of the columns of its table."""

    output: str | None
    no_headers: bool | None
    header: Sequence[str]

    @property
    def has_devices(self) -> bool:
        """Whether the list shows the devices of GPUs, which need one more request to the cluster."""
        return self.output in ("wide", "json", "yaml") or "GPU DEVICES" in self.header

    def row(self, view: "WorkloadView", now_us: int, *, devices: str = "") -> Sequence[str]:
        """Return the cells of one job under the header."""
        if self.header is HEADER:
            return row(view, now_us, devices=devices)
        cells = dict(zip(WIDE_HEADER, row(view, now_us, wide=True, devices=devices), strict=True))
        cells["PRIORITY"] = view.priority_class
        return [cells[name] for name in self.header]


def form_of(output: str | None, no_headers: bool | None, columns: str | None) -> Form:
    """Return the form with these columns (names of COLUMNS with commas between them), or with the default columns.

    Raises UsageError for an unknown column.
    """
    if columns is None:
        return Form(output, no_headers, WIDE_HEADER if output == "wide" else HEADER)
    if output not in (None, "wide"):
        raise UsageError(f"--columns goes with a table, not with -o {output}")
    by_name = {name.lower(): name for name in COLUMNS}
    wanted = [name.strip() for name in columns.split(",")]
    if unknown := [name for name in wanted if name.lower() not in by_name]:
        raise UsageError(f"--columns {unknown[0]!r} is no column; they are {', '.join(COLUMNS)}")
    return Form(output, no_headers, [by_name[name.lower()] for name in wanted])
