"""The table of jobs: its header, and the row of one job."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.cli.output import age

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
