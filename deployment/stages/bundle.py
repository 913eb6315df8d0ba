"""The stage bundle: copies the packages of the bundle that `--bundle` names to the hosts."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages.definition import StageDefinition


class Bundle(StageDefinition):
    """The stage for installations with `--bundle`, which sets the variables of the role (`deployment.bundle.use`)."""

    name: ClassVar[str] = "bundle"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        return "" if bundle else "no --bundle was given: packages come from the repositories of the hosts"


STAGE: Final = Bundle()
