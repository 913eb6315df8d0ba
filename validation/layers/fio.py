"""Reads `fio --output-format=json`."""

import msgspec

from validation.errors import LayerError
from validation.judge.hosts.host_facts import FioJob


class _Direction(msgspec.Struct, frozen=True):
    bw_bytes: int = 0
    runtime: int = 0
    short_ios: int = 0
    drop_ios: int = 0


class _Job(msgspec.Struct, frozen=True):
    jobname: str
    error: int
    read: _Direction
    write: _Direction


class _Output(msgspec.Struct, frozen=True):
    jobs: list[_Job]


def read_fio(text: str) -> list[FioJob]:
    """Return the groups of jobs. Raises LayerError. Lines before the JSON are fio's warnings."""
    try:
        output = msgspec.json.decode(text[max(0, text.find("{")) :], type=_Output)
    except msgspec.DecodeError as error:
        raise LayerError(f"fio: {error}; its output: {text.strip()[:100]!r}") from error
    return [
        FioJob(
            job.jobname,
            job.error,
            job.read.bw_bytes,
            job.write.bw_bytes,
            job.read.runtime,
            job.read.short_ios + job.read.drop_ios,
        )
        for job in output.jobs
    ]
