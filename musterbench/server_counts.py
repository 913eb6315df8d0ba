"""Reads the API server's counters of writes and ended watches, and starts its garbage collection."""

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.cluster.transport import Transport

_UNCOUNTED: Final = re.compile(r'resource="leases"|verb="(GET|LIST|WATCH)"')


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """The number of answered writes, without writes of leases, and of pod watches that the server ended as too slow."""

    writes: float
    slow_watches: float


async def server_counts(transport: Transport) -> ServerCounts:
    """Return the counts from the server's metrics."""
    writes = slow_watches = 0.0
    for line in (await transport.text("/metrics")).splitlines():
        if line.startswith("apiserver_terminated_watchers_total") and 'resource="pods"' in line:
            slow_watches += float(line.rsplit(" ", 1)[1])
        elif line.startswith("apiserver_request_total") and not _UNCOUNTED.search(line):
            writes += float(line.rsplit(" ", 1)[1])
    return ServerCounts(writes, slow_watches)


async def collect_garbage(transport: Transport) -> None:
    """Let the API server collect its garbage now, before a round begins.

    With thousands of pods, a collection takes seconds of processor time. Go starts one when the heap has doubled since
    the last one. So it would fall into some rounds of ten seconds by chance, and halve their rates.
    """
    await transport.text("/debug/pprof/heap", params={"gc": 1})
