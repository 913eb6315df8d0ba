"""Encodes and reads ConfigMap `muster-settings`: the settings of the leading operator, for simulations."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import msgspec
import yaml

from orchestrator.bounded_yaml import small_yaml
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.objects import ConfigMap
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.names import SETTINGS_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.planner.settings import Settings
from orchestrator.simulation.extra_fields import camel, file_type, from_file

KEY: Final = "settings.yaml"
PATH: Final = CONFIG_MAPS.path(SYSTEM_NAMESPACE, SETTINGS_CONFIG_MAP)


class SettingsUnknown(MusterError):
    """The ConfigMap with the operator's settings is missing, forbidden or invalid."""


def encoded(settings: Settings) -> str:
    """Return the settings as YAML, as under `settings` in a snapshot file, but with all defaults."""
    plain = {
        camel(field.name): msgspec.to_builtins(getattr(settings, field.name)) for field in fields(settings)
    }
    return yaml.safe_dump(plain, sort_keys=False)


def decoded(data: Mapping[str, str]) -> Settings:
    """Return the settings in the data of the ConfigMap. Raises SettingsUnknown if they are missing or invalid."""
    form: Any = file_type(Settings)
    try:
        plain = small_yaml(data[KEY])
        settings: Settings = from_file(msgspec.convert(plain, form), Settings)
    except KeyError as error:
        raise SettingsUnknown(f"ConfigMap {SYSTEM_NAMESPACE}/{SETTINGS_CONFIG_MAP} has no {KEY}") from error
    except ValueError as error:
        why = " ".join(str(error).split())
        raise SettingsUnknown(
            f"{KEY} of ConfigMap {SYSTEM_NAMESPACE}/{SETTINGS_CONFIG_MAP} cannot be read "
            f"by this version of muster: {why}"
        ) from error
    return settings


async def settings_in_force(transport: Transport) -> Settings:
    """Return the settings of the leading operator. Raises SettingsUnknown, and subclasses of ClusterError."""
    try:
        return decoded((await transport.get(PATH, ConfigMap)).data)
    except NotFound as error:
        raise SettingsUnknown(
            f"no operator has led this cluster yet: there is no ConfigMap {SYSTEM_NAMESPACE}/{SETTINGS_CONFIG_MAP}"
        ) from error
    except Forbidden as error:
        raise SettingsUnknown(error.message) from error
