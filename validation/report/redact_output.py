"""Makes the output of a job fit to be passed on: without addresses, paths and UUIDs."""

import msgspec

from validation.judge.events import OutputSeen
from validation.judge.training.digests import parse_digests
from validation.judge.training.training_job import parse
from validation.report.identity import token

UNKNOWN = "unknown"
"""Replaces the problem of a GPU, which may contain addresses."""


def without_addresses(output: OutputSeen) -> OutputSeen:
    """Return the output of a job without its command line, without servers and registry, and without UUIDs of
    GPUs.
    """
    line = _of_training(output.line) or _of_digests(output.line)
    return msgspec.structs.replace(output, line=line, image=output.image.rpartition("@")[2])


def _of_training(line: str) -> str:
    result = parse(line)
    if result is None:
        return ""
    mounts = [msgspec.structs.replace(mount, source="") for mount in result.data.mounts]
    data = msgspec.structs.replace(result.data, mounts=mounts)
    return msgspec.json.encode(msgspec.structs.replace(result, argv=[], data=data)).decode()


def _of_digests(line: str) -> str:
    result = parse_digests(line)
    if result is None:
        return ""
    devices = [
        msgspec.structs.replace(one, uuid=token(one.uuid), problem=UNKNOWN if one.problem else "")
        for one in result.devices
    ]
    return msgspec.json.encode(msgspec.structs.replace(result, devices=devices)).decode()
