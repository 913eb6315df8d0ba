"""Installs the orchestrator in a lab as on every site: `muster install` with a site file that comes with muster."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from deployment import content
from validation.errors import TargetError
from validation.targets.process import ENTRY


async def install(site: str, kubeconfig: Path, journals: Path, progress: Callable[[str], None]) -> None:
    """Run every stage that applies in a lab, and pass each line of the run to `progress`. Raises TargetError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *ENTRY,
        "install",
        "-i",
        str(content.find().inventories / site),
        "--state-dir",
        str(journals.absolute()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    last = ""
    try:
        while process.stderr is not None and (line := await process.stderr.readline()):
            last = line.decode(errors="replace").strip()
            progress(f"install: {last.partition(' s  ')[2] or last}")
        if await process.wait():
            raise TargetError(
                f"the orchestrator cannot be installed in the lab: {last.removeprefix('Error: ')}"
            )
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
