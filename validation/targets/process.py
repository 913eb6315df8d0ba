"""Starts the programs of a run: muster's command line, and the processes beside a lab."""

import asyncio
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import musterlab.pdeathsig_exec
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.transport import Transport
from validation.report.record import Command

ENTRY = ("-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())")
"""Runs muster's command line with the interpreter of this process, for any value of PATH."""

COMMAND_SECONDS = 120.0
VERSION_SECONDS = 5.0
_OUTPUT_LIMIT = 20_000
_ANSWER_LIMIT = 64_000_000
"""Maximum characters of stdout. A judged list grows with the cluster, but is always shorter."""


async def run_command(
    line: str, kubeconfig: Path | str, *, started_ms: int, timeout_seconds: float = COMMAND_SECONDS
) -> Command:
    """Run `line`, a `muster …` command, as a process of its own, and wait for its end.

    The text after `<<<` is the command's input, one line, as in a shell. No shell is started. Exit code 124 means that
    the command was killed after `timeout_seconds`.
    """
    command, _, text = line.partition(" <<< ")
    words, typed = shlex.split(command), " ".join(shlex.split(text))
    begin = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *ENTRY,
        *words[1:],
        stdin=asyncio.subprocess.PIPE if typed else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            stdout, stderr = await process.communicate(f"{typed}\n".encode() if typed else None)
        exit_code = process.returncode or 0
    except TimeoutError:
        stdout, stderr = b"", f"killed: it did not end within {timeout_seconds:g} s".encode()
        exit_code = 124
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Command(
        line=line,
        exit_code=exit_code,
        started_ms=started_ms,
        duration_ms=int((time.monotonic() - begin) * 1000),
        stdout=_text(stdout, _ANSWER_LIMIT),
        stderr=_text(stderr, _OUTPUT_LIMIT),
    )


async def start_with_pdeathsig(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start a command; its output is appended to `log`. The kernel kills the command when this process dies."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(musterlab.pdeathsig_exec.__file__),
            str(os.getpid()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
        )


async def end(process: asyncio.subprocess.Process, *, grace_seconds: float) -> None:
    """Ask the process to end, and kill it if it does not within `grace_seconds`."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(grace_seconds):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def server_version(transport: Transport | None) -> str:
    """Return the version of the API server; `unknown` if the API server does not return its version."""
    if transport is None:
        return "unknown"
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            version: dict[str, Any] = await transport.get("/version")
    except (ClusterError, TimeoutError):
        return "unknown"
    return str(version.get("gitVersion", "unknown"))


def for_the_record(command: Command) -> Command:
    """Return the command with its stdout cut to the length for a record of a run."""
    return msgspec.structs.replace(command, stdout=_cut(command.stdout, _OUTPUT_LIMIT))


def _text(output: bytes, limit: int) -> str:
    return _cut(output.decode("utf-8", errors="replace").strip(), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "\n… (cut)"
