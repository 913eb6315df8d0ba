"""The registration of the lab's storage driver with a kubelet, and refusals of storage in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpclib.client import Channel, UnaryUnaryMethod

from musterlab.errors import LabError
from musterlab.storage.nodes import check_visible
from musterlab.storage.registrar import MESSAGES, serve


async def call(path: Path, name: str, request: Any, answer: str) -> Any:
    channel = Channel(path=str(path))
    try:
        where = f"/pluginregistration.Registration/{name}"
        return await UnaryUnaryMethod(channel, where, type(request), MESSAGES[answer])(request)
    finally:
        channel.close()


async def until_there(path: Path) -> None:
    async with asyncio.timeout(10):
        while not path.exists():  # noqa: ASYNC110 - polls a file
            await asyncio.sleep(0.01)


async def test_kubelets_get_name_and_socket_and_a_refusal_ends_it(tmp_path: Path) -> None:
    sockets = [tmp_path / "one", tmp_path / "two"]
    serving_task = asyncio.create_task(serve("driver", "/plugins/csi.sock", sockets))
    for path in sockets:
        await until_there(path)
        info = await call(path, "GetInfo", MESSAGES["InfoRequest"](), "PluginInfo")
        assert (info.type, info.name, info.endpoint) == ("CSIPlugin", "driver", "/plugins/csi.sock")
        assert list(info.supported_versions) == ["1.0.0"]
        status = MESSAGES["RegistrationStatus"](plugin_registered=True)
        await call(path, "NotifyRegistrationStatus", status, "RegistrationStatusResponse")
    assert not serving_task.done()
    status = MESSAGES["RegistrationStatus"](plugin_registered=False, error="no such version")
    await call(sockets[1], "NotifyRegistrationStatus", status, "RegistrationStatusResponse")
    assert await serving_task == "no such version"


def test_a_directory_of_the_node_is_no_folder_for_volumes() -> None:
    check_visible(Path("/home/labs/storage"))
    with pytest.raises(LabError, match="--state-dir"):
        check_visible(Path("/var/lib/labs/storage"))
