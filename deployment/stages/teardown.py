"""The stage teardown: the checks before a removal."""

from typing import ClassVar, Final

from deployment.stages.definition import StageDefinition


class Teardown(StageDefinition):
    """Refuses a removal that is not confirmed. It changes nothing."""

    name: ClassVar[str] = "teardown"
    looks_only: ClassVar[bool] = True


STAGE: Final = Teardown()
