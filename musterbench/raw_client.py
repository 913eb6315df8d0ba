"""The raw client, a process of its own as the operator is: binds the pods it is told to, as fast as the server lets it.

    python -m musterbench.raw_client KUBECONFIG < pods.json

Standard input is a JSON list of `{"namespace", "name", "uid", "node"}`. It knows beforehand which pod goes where,
decides nothing and watches nothing. Prints `{"cpu_ms", "peak_rss_bytes"}`: the processor time of the bindings alone,
without the start of the interpreter.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from musterbench.processes import in_flight, peak_rss_bytes
from orchestrator.cluster.binding import bind
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.names import GPU_DEVICES_ANNOTATION

_NS_PER_MS = 1_000_000


async def bind_all(kubeconfig: Path, pods: Sequence[dict[str, str]]) -> dict[str, float]:
    """Bind them, with as many requests in flight as the operator has; returns what is printed."""
    async with Transport(load_access(kubeconfig)) as transport:

        async def bind_one(number: int) -> None:
            await bind(transport, **pods[number], annotations={GPU_DEVICES_ANNOTATION: "0"})

        started = time.process_time_ns()
        await in_flight(bind_one, len(pods))
        spent = time.process_time_ns() - started
    return {"cpu_ms": spent / _NS_PER_MS, "peak_rss_bytes": peak_rss_bytes()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(bind_all(Path(sys.argv[1]), json.load(sys.stdin)))))
