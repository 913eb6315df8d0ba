"""The stage records in a ConfigMap of the cluster, for a controller that has lost its journal."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from deployment.journal import StageRecord
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError

NAMESPACE: Final = "kube-system"
_KEY: Final = "stages.json"
_TIMEOUT_SECONDS: Final = 10.0


def store(kubeconfig: Path, context: str, site: str, stages: Mapping[str, StageRecord]) -> str:
    """Store the latest result of each stage. Return the reason of a failure, or an empty string."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name(site),
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "muster"},
        },
        "data": {_KEY: json.dumps({name: asdict(record) for name, record in stages.items()}, sort_keys=True)},
    }

    async def apply(transport: Transport) -> None:
        path = CONFIG_MAPS.path(NAMESPACE, _name(site))
        await transport.apply(path, body, field_manager="muster-install")

    return call_api_server(kubeconfig, context, apply)


def read(kubeconfig: Path, context: str, site: str) -> dict[str, StageRecord]:
    """Return the stored records. If there is no ConfigMap, or the API server does not answer, the result is empty."""
    stages: dict[str, StageRecord] = {}

    async def get(transport: Transport) -> None:
        answer: dict[str, Any] = await transport.get(CONFIG_MAPS.path(NAMESPACE, _name(site)))
        stages.update(msgspec.json.decode(answer["data"][_KEY], type=dict[str, StageRecord]))

    call_api_server(kubeconfig, context, get)
    return stages


def call_api_server(kubeconfig: Path, context: str, action: Callable[[Transport], Awaitable[None]]) -> str:
    """Run `action` with a connection to the API server. Return the reason of a failure, or an empty string."""
    if not kubeconfig.is_file():
        return "there is no cluster yet"

    async def speak() -> None:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            Transport(load_access(kubeconfig, context or None)) as transport,
        ):
            await action(transport)

    try:
        asyncio.run(speak())
    except NotFound:
        return "the cluster has none"
    except TimeoutError:
        return f"the API server did not answer within {_TIMEOUT_SECONDS:g} s"
    except (MusterError, msgspec.MsgspecError, KeyError, ValueError) as error:
        return str(error)
    return ""


def _name(site: str) -> str:
    return f"muster-install-{site}"
