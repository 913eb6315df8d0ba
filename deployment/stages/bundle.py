"""The stage bundle: the packages of a bundle on the hosts, where one is given."""

from typing import ClassVar, Final

from deployment.site import Site
from deployment.stages.definition import StageDefinition


class Bundle(StageDefinition):
    """Applies where `--bundle` names one; its variables are those of the bundle (`deployment.bundle.use`)."""

    name: ClassVar[str] = "bundle"

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        return "" if bundle else "no --bundle was given: packages come from the repositories of the hosts"


STAGE: Final = Bundle()
