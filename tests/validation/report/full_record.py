"""A record as large as that of a site: the scenarios on eight healthy hosts with eight GPUs each."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.validation.api_targets import AnswersRequests
from tests.validation.host_doubles import FakeHosts, Output
from tests.validation.layers.healthy_hosts import KINDS, nvidia_smi, seeded
from tests.validation.recorder_double import RecorderDouble
from tests.validation.replay import run_command
from tests.validation.use_targets import Uses
from validation.judge.events import PodSeen
from validation.report.record import Report
from validation.run.session import Settings
from validation.scenario.loaded import SHIPPED
from validation.scenario.scaling import Size

HOSTS: Final = tuple(f"n{number}" for number in range(1, 9))
"""The names of the nodes in the double of a cluster."""
_BEYOND_THE_DOUBLE: Final = ("two-reclaims", "restarted", "training", "volume")


class _Site(AnswersRequests, Uses):
    """A cluster whose API server answers, and whose GPUs are used."""

    kind = "cluster"

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        """Do nothing, so that pods end immediately."""


def _hosts() -> FakeHosts:
    """Return hosts with different serial numbers, at the clock of a load."""
    changed: dict[tuple[str, str], Output | str] = {}
    for name in HOSTS:
        text = re.sub(r"<sm_clock>[^<]*", "<sm_clock>1530 MHz", nvidia_smi(KINDS[0], seeded(name)))
        changed |= {(name, tool): Output(text) for tool in ("nvidia-smi", "samples")}
    return FakeHosts(changed, names=HOSTS)


def write_full_record(directory: Path) -> Report:
    """Run the scenarios that the double of a cluster supports, write the record, and return the report."""
    chosen = Settings(
        target="cluster", out=directory, open_target=_Site, open_recorder=RecorderDouble, open_hosts=_hosts,
        size=Size(8, 8),
    )  # fmt: skip
    paths = sorted(SHIPPED.rglob("*.scenario.yaml"))
    shown = [path for path in paths if not any(word in path.name for word in _BEYOND_THE_DOUBLE)]
    _, report = run_command(shown, chosen)
    assert report is not None
    return report
