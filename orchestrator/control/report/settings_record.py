"""Writes the leader's settings into the ConfigMap `muster-settings`, so that other programs can predict its decisions.

The source are the options of the process. A change of the ConfigMap affects no decision, and is reverted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
import yaml

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.objects import ConfigMap
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.operator_config import OperatorConfig, options
from orchestrator.control.report.record import write_record
from orchestrator.names import SETTINGS_CONFIG_MAP
from orchestrator.simulation.settings import KEY, PATH, encoded

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "muster-operator"
OPTIONS_KEY: Final = "options.yaml"
"""The key for all options of the operator with their values, including the planner's settings."""
POLL_SECONDS: Final = 60.0
"""Interval of the leader's checks of the record."""
RETRY_SECONDS: Final = 5.0


class SettingsRecord:
    """Keeps the ConfigMap equal to the options, while `is_leader()`."""

    def __init__(
        self,
        transport: Transport,
        config: OperatorConfig,
        *,
        is_leader: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._sleep = sleep
        self._data = {KEY: encoded(config.settings), OPTIONS_KEY: _encoded_options(config)}

    async def run(self) -> None:
        """Write until cancelled. After a failed request, log the error and try again later."""
        failures = 0
        while True:
            try:
                await self.write()
            except ClusterError as error:
                level = logging.DEBUG if failures else logging.WARNING
                logger.log(level, "the settings are not written down yet: %s", error)
                failures += 1
            else:
                failures = 0
            await self._sleep(RETRY_SECONDS if failures else POLL_SECONDS)

    async def write(self) -> None:
        """If the ConfigMap differs, write it and remove other keys. Raises subclasses of ClusterError."""
        known = await self._known()
        if known == self._data or not self._is_leader():
            return
        if known is not None:
            logger.warning("the ConfigMap %s was changed by another client; restored", SETTINGS_CONFIG_MAP)
            restored = {"data": {**dict.fromkeys(known), **self._data}}
            await self._transport.patch(PATH, restored, content_type=MERGE_PATCH)
            return
        await write_record(self._transport, SETTINGS_CONFIG_MAP, self._data, field_manager=FIELD_MANAGER)

    async def _known(self) -> Mapping[str, str] | None:
        try:
            return (await self._transport.get(PATH, ConfigMap)).data
        except NotFound:
            return None


def _encoded_options(config: OperatorConfig) -> str:
    """Return the options as YAML, for example `max-moves: 16`; times are in seconds."""
    values = {option.flag.removeprefix("--"): getattr(config, option.field) for option in options()}
    return yaml.safe_dump(msgspec.to_builtins(values), sort_keys=False)
