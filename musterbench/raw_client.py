"""The raw client, a process like the operator. It binds the given pods as fast as the server allows.

    python -m musterbench.raw_client KUBECONFIG < pods.json

Standard input is a JSON list of `{"namespace", "name", "uid", "node"}`: the client decides nothing and watches nothing.
Prints `{"cpu_ms", "peak_rss_bytes"}`: the processor time of the writes alone, without the start of the interpreter.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from musterbench.processes import peak_rss_bytes
from musterbench.stopwatch import BenchmarkFailed
from orchestrator.cluster.binding import bind
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.timeouts import Limits
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import REQUESTS_IN_FLIGHT
from orchestrator.names import GPU_DEVICES_ANNOTATION

_NS_PER_MS: Final = 1_000_000
_MAX_LOG_TAIL: Final = 500
_COMMAND: Final = (sys.executable, "-P", "-m", "musterbench.raw_client")


async def in_flight(work: Callable[[int], Awaitable[None]], count: int) -> None:
    """Do the work for each number below `count`, with `REQUESTS_IN_FLIGHT` numbers at a time, as the operator does."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(REQUESTS_IN_FLIGHT)))


async def run_apart(kubeconfig: Path, pods: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Let a raw client bind the pods in a new process and session; return its output. Raises BenchmarkFailed.

    Linux may share the processors among sessions, and the operator and the lab have sessions of their own too.
    """
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        str(kubeconfig),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, error = await process.communicate(json.dumps(pods).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise BenchmarkFailed(
            f"the raw client ended with {process.returncode}: {error.decode()[-_MAX_LOG_TAIL:]}"
        )
    return dict(json.loads(output))


async def bind_all(kubeconfig: Path, pods: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Bind the pods, with as many requests in flight as the operator has; return the output."""
    limits = Limits(connections=REQUESTS_IN_FLIGHT)
    async with Transport(load_access(kubeconfig), limits=limits) as transport:

        async def bind_one(number: int) -> None:
            await bind(transport, **pods[number], annotations={GPU_DEVICES_ANNOTATION: "0"})

        started = time.process_time_ns()
        await in_flight(bind_one, len(pods))
        spent = time.process_time_ns() - started
    return {"cpu_ms": spent / _NS_PER_MS, "peak_rss_bytes": peak_rss_bytes()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(bind_all(Path(sys.argv[1]), json.load(sys.stdin)))))
