"""The leader's settings stay on record unchanged, whatever others write to the record."""

from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.kubeconfig import Access, load_access
from orchestrator.cluster.objects import ConfigMap
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.operator_config import OperatorConfig
from orchestrator.control.report.settings_record import POLL_SECONDS, RETRY_SECONDS, SettingsRecord
from orchestrator.names import SETTINGS_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.simulation.settings import settings_in_force
from tests.cluster.fake_api_server import Answer, access_to, error_answer, serving
from tests.cluster.waiting import ManualClock, running, until
from tests.control.operators import prepare

PATH = CONFIG_MAPS.path(SYSTEM_NAMESPACE, SETTINGS_CONFIG_MAP)
CONFIG = OperatorConfig(spread=True)


@pytest.mark.lab
@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"settings.yaml": "spread: false\n"}, id="edited"),
        pytest.param({"settings.yaml": None}, id="a key is gone"),
        pytest.param({"more.yaml": "a: b\n"}, id="a key is new"),
        pytest.param(None, id="deleted"),
    ],
)
async def test_the_operators_account_restores_the_record(
    shared_lab: Lab, lab_access: Access, tmp_path: Path, data: dict[str, str | None] | None
) -> None:
    account = await prepare(shared_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(lab_access) as admin, Transport(load_access(account)) as transport:
        record = SettingsRecord(transport, CONFIG, is_leader=lambda: True)
        await record.write()
        before = (await admin.get(PATH, ConfigMap)).data
        if data is None:
            await admin.delete(PATH)
        else:
            await admin.patch(PATH, {"data": data}, content_type=MERGE_PATCH)
        await record.write()
        after = await admin.get(PATH, ConfigMap)
        assert after.data == before
        assert (await settings_in_force(admin)).spread
        await record.write()
        again = await admin.get(PATH, ConfigMap)
        assert again.metadata.resource_version == after.metadata.resource_version


def config_map(data: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"name": SETTINGS_CONFIG_MAP}, "data": data})


async def test_it_looks_again_and_again_and_sooner_after_a_failure() -> None:
    clock = ManualClock()
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("GET", PATH, error_answer(403), error_answer(404), config_map({"settings.yaml": "old"}))
        server.on("PATCH", PATH, Answer({}))
        record = SettingsRecord(transport, CONFIG, is_leader=lambda: True, sleep=clock.sleep)
        async with running(record.run()):
            await until(lambda: len(server.requests_of("PATCH", PATH)) >= 2)
        kinds = [each.headers["Content-Type"] for each in server.requests_of("PATCH", PATH)]
    assert clock.slept[:2] == [RETRY_SECONDS, POLL_SECONDS]
    assert ["apply-patch" in each for each in kinds[:2]] == [True, False]


async def test_a_standby_operator_writes_nothing() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("GET", PATH, error_answer(404))
        await SettingsRecord(transport, CONFIG, is_leader=lambda: False).write()
        assert server.requests_of("PATCH") == []
