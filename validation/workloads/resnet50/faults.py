"""The faults that end a training run, with an exit code for each, so that the right team looks at it."""

from typing import Final

from validation.errors import ValidationError
from validation.judge.training.training_result import Ended

EXIT_CODES: Final = {
    Ended.COMPLETED: 0,
    Ended.DATA_FAULT: 10,
    Ended.DEVICE_FAULT: 11,
    Ended.DIVERGED: 12,
    Ended.STOPPED: 143,
}


class TrainingFault(ValidationError):
    """Training cannot continue; `ended` says why."""

    ended: Ended


class DataFault(TrainingFault):
    """A shard is missing, a record cannot be read, or storage does not answer."""

    ended = Ended.DATA_FAULT


class DeviceFault(TrainingFault):
    """Too few devices, or one of them failed."""

    ended = Ended.DEVICE_FAULT


class Diverged(TrainingFault):
    """The loss is no finite number any more."""

    ended = Ended.DIVERGED
