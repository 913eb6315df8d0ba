"""The agent on this machine's NVML: its cost, its report on a training process, and the driver's answers."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.gpu import agent_cost as bench
from tests.gpu.conftest import Findings, Start, need
from tests.gpu.judge import Judge
from tests.gpu.processes import ROOT, module

pytestmark = pytest.mark.gpu

BENCH_SECONDS: Final = 16.0
SEEN_SECONDS: Final = 45.0
LEAST_MIB: Final = 1024


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the agent by its module's name, from this checkout if muster is not installed."""
    monkeypatch.setenv("PYTHONPATH", ":".join([str(ROOT), *sys.path[1:]]))


def test_the_driver_answers_to_the_agent_are_recorded(
    start: Start, judge: Judge, findings: Findings, installed: None
) -> None:
    holder = start("holder", module("driver_memory", 64), 1 << 30)
    holder.until("full")
    file = findings.directory / "nvml-recording.json"
    subprocess.run(
        [sys.executable, "-m", "tests.agent.recording", str(file)], cwd=ROOT, check=True, timeout=60
    )
    recorded = json.loads(file.read_text())
    findings.write("recording/errors", recorded["errors"])
    assert recorded["driver"] == judge.driver_version
    (first, *_) = [read for read in recorded["agent"] if judge.uuid in read["gpu"]]
    assert f"pid={holder.pid}" in first["processes"]


async def test_the_agent_writes_the_users_of_the_memory_of_the_gpu(
    start: Start, judge: Judge, findings: Findings, tmp_path: Path, installed: None
) -> None:
    need("torchvision")
    site = bench._Site(tmp_path)
    async with site.serving():
        process = bench._agent(tmp_path, None)
        try:
            port = await bench._port(tmp_path / "log", process)
            training = start("training", module("torch_train", 128, 2000), judge.total_bytes // 2, 150)
            await asyncio.to_thread(training.until, "warm")
            training.go_on()
            try:
                async with asyncio.timeout(SEEN_SECONDS):
                    while not shows_work(site.spec):
                        site.written.clear()
                        await site.written.wait()
            finally:
                metrics = await text_of(f"http://127.0.0.1:{port}/metrics")
                (findings.directory / "gpunode.json").write_text(json.dumps(site.spec, indent=1) + "\n")
                (findings.directory / "agent-metrics.txt").write_text(metrics)
                findings.write("agent/log", (tmp_path / "log").read_text(errors="replace")[-3000:])
        finally:
            process.terminate()
            process.wait(timeout=20)
    (gpu,) = [gpu for gpu in site.spec["gpus"] if gpu["uuid"] == judge.uuid]
    assert (gpu["model"], gpu["memoryMib"]) == (judge.name, judge.total_bytes >> 20)
    assert gpu["memoryUsedMib"] >= gpu["users"][0]["memoryMib"]


def shows_work(spec: dict[str, Any]) -> bool:
    """Return whether a GPU has a user with memory, and was used."""
    return any(
        (gpu.get("utilizationPercent") or 0) > 0
        and any(user.get("memoryMib", 0) >= LEAST_MIB for user in gpu.get("users", ()))
        for gpu in spec.get("gpus", ())
    )


async def text_of(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_the_agent_is_within_its_bounds(judge: Judge, findings: Findings, installed: None) -> None:
    result = await bench.run(BENCH_SECONDS, None, progress=lambda line: None)
    findings.write("agent/bench", result.as_json())
    assert result.problem is None
    assert result.gpus >= 1
