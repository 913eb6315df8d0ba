"""The faults that end a training run. Each has its own exit code, which shows the responsible team."""

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
    """Training cannot continue; `ended` is the kind of fault."""

    ended: Ended


class DataFault(TrainingFault):
    """A shard is missing, a record cannot be read, or storage does not answer."""

    ended = Ended.DATA_FAULT


class DeviceFault(TrainingFault):
    """There are too few devices, or a device or another worker failed."""

    ended = Ended.DEVICE_FAULT


class Diverged(TrainingFault):
    """The loss is no longer a finite number."""

    ended = Ended.DIVERGED
