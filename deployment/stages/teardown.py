"""The stage teardown: the checks before a removal."""

from typing import ClassVar, Final

from deployment.stages.definition import StageDefinition


class Teardown(StageDefinition):
    """The stage that refuses a removal without confirmation. It changes nothing."""

    name: ClassVar[str] = "teardown"
    looks_only: ClassVar[bool] = True


STAGE: Final = Teardown()
