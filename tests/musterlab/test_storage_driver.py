"""The lab's CSI driver: tested with csi-sanity, Kubernetes' own tests of CSI drivers, and with calls at its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grpclib import GRPCError, Status

from musterlab import binaries
from musterlab.build import Part, Recipe
from musterlab.errors import BinariesError
from musterlab.storage import driver
from musterlab.storage.nodes import Node
from orchestrator.progress import Reporter
from tests.deployment.csi import Controller, call, capability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

SANITY = "csi-sanity"
SANITY_RECIPE = Recipe(
    subject="csi-sanity v5.4.0",
    prefix="sanity-",
    programs=(SANITY,),
    parts=(Part(Path(__file__).parent / "sanity", ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="1 to 2 minutes",
)
SIZE_BYTES = 1 << 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder for the driver's volumes."""
    return tmp_path / "volumes"


@pytest.fixture
async def controller(folder: Path) -> AsyncIterator[Controller]:
    """Yield a controller of a driver that serves the folder."""
    async with served(folder) as controller:
        yield controller


@contextlib.asynccontextmanager
async def served(folder: Path, process: int = 0) -> AsyncIterator[Controller]:
    """Serve the folder. The node is that of a process, or this machine."""
    with tempfile.TemporaryDirectory() as short:
        socket = Path(short) / "csi.sock"
        async with driver.serving(folder, {socket: Node("node", lambda: process or os.getpid())}):
            yield Controller(socket)


@pytest.fixture
def sanity() -> Path:
    try:
        return binaries.find(Reporter(lambda _line: None), SANITY_RECIPE).paths[SANITY]
    except BinariesError as error:
        pytest.skip(str(error))


@pytest.fixture
def mounts() -> Iterator[int]:
    """Yield the id of a process whose child has its own mounts and processes, as a node has."""
    own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with subprocess.Popen(
        [*own, "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


@pytest.mark.lab
@pytest.mark.real_nodes
async def test_csi_sanity_finds_nothing(sanity: Path, mounts: int, folder: Path, tmp_path: Path) -> None:
    async with served(folder, mounts) as controller:
        running = await asyncio.create_subprocess_exec(
            str(sanity),
            f"--csi.endpoint={controller.socket}",
            f"--csi.mountdir={tmp_path / 'target'}",
            f"--csi.stagingdir={tmp_path / 'staging'}",
            "--ginkgo.no-color",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await running.communicate()
    said = output.decode()
    assert running.returncode == 0, said
    counts = re.search(r"(\d+) Passed \| 0 Failed", said)
    assert counts, said
    assert int(counts[1]) >= 40, said


async def write(controller: Controller, folder: Path, name: str, content: str) -> str:
    """Create a volume with a file; return its id."""
    volume = await controller.create_volume(name, SIZE_BYTES)
    (folder / "volumes" / volume / "data" / "file").write_text(content)
    return volume


def read(folder: Path, volume: str) -> str:
    return (folder / "volumes" / volume / "data" / "file").read_text()


async def test_clones_and_snapshots_have_the_bytes_of_their_moment(
    controller: Controller, folder: Path
) -> None:
    volume = await write(controller, folder, "data", "first")
    snapshot = await controller.create_snapshot("monday", volume)
    clone = await controller.create_volume("clone", SIZE_BYTES, volume=volume)
    (folder / "volumes" / volume / "data" / "file").write_text("second")
    restored = await controller.create_volume("restored", SIZE_BYTES, snapshot=snapshot)
    assert [read(folder, each) for each in (volume, clone, restored)] == ["second", "first", "first"]
    await controller.delete_snapshot(snapshot)
    await controller.delete_volume(volume)
    assert [read(folder, each) for each in (clone, restored)] == ["first", "first"]
    assert list((folder / "unfinished").iterdir()) == []


async def test_a_request_that_a_folder_cannot_meet_is_refused_with_the_reason(
    controller: Controller, folder: Path
) -> None:
    volume = await write(controller, folder, "data", "first")
    refused: list[tuple[Status, str, Awaitable[str]]] = [
        (
            Status.INVALID_ARGUMENT,
            "it cannot be mounted with 'ext4'",
            replace(controller, fs_type="ext4").create_volume("other", SIZE_BYTES),
        ),
        (
            Status.INVALID_ARGUMENT,
            "remove tier from the class",
            controller.create_volume("other", SIZE_BYTES, {"tier": "gold"}),
        ),
        (
            Status.OUT_OF_RANGE,
            "more than 'other' may have",
            controller.create_volume("other", SIZE_BYTES - 1, volume=volume),
        ),
        (
            Status.ALREADY_EXISTS,
            "exists with another size or source",
            controller.create_volume("data", SIZE_BYTES, volume=volume),
        ),
        (Status.NOT_FOUND, "there is no '../x'", controller.create_volume("other", 1, snapshot="../x")),
    ]
    for status, words, answer in refused:
        with pytest.raises(GRPCError) as error:
            await answer
        assert error.value.status == status
        assert words in str(error.value.message)
    await controller.delete_volume(f"../volumes/{volume}")
    assert [path.name for path in (folder / "volumes").iterdir()] == [volume]


@pytest.fixture
def slow_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a `cp` that reports its start, and copies once the file `go` exists."""
    tools = tmp_path / "tools"
    tools.mkdir()
    script = f'#!/bin/sh\necho began >>{tools}/began\nread -r _ <{tools}/go\nexec /bin/cp "$@"\n'
    (tools / "cp").write_text(script)
    (tools / "cp").chmod(0o755)
    os.mkfifo(tools / "go")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - polls files
            await asyncio.sleep(0.01)


async def test_a_copy_whose_caller_gave_up_is_not_begun_again(
    controller: Controller, folder: Path, slow_copies: Path
) -> None:
    volume = await write(controller, folder, "data", "first")
    given_up = asyncio.create_task(controller.create_volume("clone", SIZE_BYTES, volume=volume))
    await until((slow_copies / "began").exists)
    given_up.cancel()
    again = asyncio.create_task(controller.create_volume("clone", SIZE_BYTES, volume=volume))
    await asyncio.to_thread((slow_copies / "go").write_text, "\n")
    async with asyncio.timeout(30):
        assert read(folder, await again) == "first"
    assert (slow_copies / "began").read_text() == "began\n"


async def test_a_driver_that_is_killed_leaves_no_volume_in_part(folder: Path, slow_copies: Path) -> None:
    async with served(folder) as controller:
        volume = await write(controller, folder, "data", "first")
    program = (
        "import asyncio, sys; from pathlib import Path; from musterlab.storage.volumes import Volumes; "
        "clone = Volumes(Path(sys.argv[1])).create_volume('clone', ('volumes', sys.argv[2]), 0, 0); "
        "asyncio.run(clone)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, str(folder), volume, start_new_session=True
    )
    await until((slow_copies / "began").exists)
    assert list((folder / "unfinished").iterdir())
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    assert [path.name for path in (folder / "volumes").iterdir()] == [volume]
    async with served(folder) as controller:
        assert list((folder / "unfinished").iterdir()) == []
        again = asyncio.create_task(controller.create_volume("clone", SIZE_BYTES, volume=volume))
        await asyncio.to_thread((slow_copies / "go").write_text, "\n")
        assert read(folder, await again) == "first"


async def test_a_copy_that_fails_says_why_and_leaves_nothing(controller: Controller, folder: Path) -> None:
    volume = await write(controller, folder, "data", "first")
    data = folder / "volumes" / volume / "data"
    data.rename(data.with_name("elsewhere"))
    with pytest.raises(GRPCError, match="No such file or directory"):
        await controller.create_snapshot("monday", volume)
    assert list((folder / "snapshots").iterdir()) == list((folder / "unfinished").iterdir()) == []


def on_node(process: int, script: str) -> str:
    """Return the output of a script that sees the mounts of a process."""
    command = ("nsenter", f"--target={process}", "--mount", "sh", "-c", f"exec 2>&1; {script}")
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


@pytest.mark.lab
@pytest.mark.real_nodes
async def test_a_volume_is_mounted_on_its_node_alone_and_as_often_as_asked(
    mounts: int, folder: Path, tmp_path: Path
) -> None:
    targets = [tmp_path / "pods" / name for name in ("writer", "reader")]
    async with served(folder, mounts) as controller:
        volume = await controller.create_volume("data", SIZE_BYTES)
        for target in (*targets, targets[0]):
            request = {
                "volume_id": volume,
                "target_path": str(target),
                "volume_capability": capability(),
                "readonly": target.name == "reader",
            }
            await call(controller.socket, "Node/NodePublishVolume", request)
        assert on_node(mounts, f"echo first > {targets[0]}/file; cat {targets[1]}/file") == "first\n"
        assert read(folder, volume) == "first\n"
        assert "Read-only file system" in on_node(mounts, f"echo second > {targets[1]}/file")
        assert list(targets[0].iterdir()) == [], "the machine sees no mount of the node"
        for target in (*targets, targets[0]):
            request = {"volume_id": volume, "target_path": str(target)}
            await call(controller.socket, "Node/NodeUnpublishVolume", request)
        assert list((tmp_path / "pods").iterdir()) == []
