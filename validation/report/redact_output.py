"""Makes the output of a job fit to be passed on: without addresses, paths and UUIDs."""

import re
from typing import Final

import msgspec

from validation.judge.events import OutputSeen
from validation.judge.training.digests import PROCESSOR, parse_digests
from validation.judge.training.training_job import parse
from validation.report.identity import token

UNKNOWN: Final = "unknown"
"""Replaces the words of an error, which may contain addresses."""
_VERSION: Final = r"\d{1,4}(\.\d{1,4}){1,2}(\.?[a-z]{1,4}\d{1,8})?(\+[0-9a-z]{1,16}(\.[0-9a-z]{1,6}){0,2})?"
_LIBRARY: Final = re.compile(rf"(PyTorch|TensorFlow|Python) {_VERSION}(, CUDA (None|\d{{1,2}}\.\d{{1,2}}))?")
_MODEL: Final = re.compile(
    r"(NVIDIA|Tesla|Quadro|GRID|CPU)( [A-Za-z0-9_-]{1,32}){1,6}( \d{1,2}g\.\d{1,3}gb)?"
)
"""The forms of names that muster's program prints. Any other name gets a token."""


def without_addresses(output: OutputSeen) -> OutputSeen:
    """Return the output of a job without its command line, without servers and registry, without words of errors and
    without UUIDs of GPUs.
    """
    line = _of_training(output.line) or _of_digests(output.line)
    image, problem = output.image.rpartition("@")[2], UNKNOWN if output.problem else ""
    return msgspec.structs.replace(output, line=line, image=image, problem=problem)


def _of_training(line: str) -> str:
    result = parse(line)
    if result is None:
        return ""
    mounts = [msgspec.structs.replace(mount, source="") for mount in result.data.mounts]
    data = msgspec.structs.replace(result.data, mounts=mounts)
    reason = UNKNOWN if result.reason else ""
    return msgspec.json.encode(msgspec.structs.replace(result, argv=[], data=data, reason=reason)).decode()


def _of_digests(line: str) -> str:
    result = parse_digests(line)
    if result is None:
        return ""
    devices = [
        msgspec.structs.replace(
            one,
            uuid=token(one.uuid),
            model=_public(one.model, _MODEL),
            library=_public(one.library, _LIBRARY),
            problem=UNKNOWN if one.problem else "",
        )
        for one in result.devices
    ]
    return msgspec.json.encode(msgspec.structs.replace(result, devices=devices)).decode()


def _public(name: str, form: re.Pattern[str]) -> str:
    """Return the name if it has the form, else a token. That of a processor still begins as one."""
    if form.fullmatch(name):
        return name
    if name.startswith(PROCESSOR):
        return PROCESSOR + token(name.removeprefix(PROCESSOR))
    return token(name)
