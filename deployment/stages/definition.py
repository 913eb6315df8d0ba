"""The definition of a stage: the hooks that the module of each stage implements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from deployment.content import role_defaults
from deployment.site import Finding, Site
from deployment.stages.steps import Step
from orchestrator.cluster.transport import Transport

Variables = dict[str, Any]


@dataclass(frozen=True)
class Installed:
    """The installed releases, by stage, then by host or component. `problem` is the reason if they cannot be read."""

    releases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    problem: str = ""

    def of(self, stage: str) -> Mapping[str, str]:
        """Return the releases of a stage; empty if nothing is installed."""
        return self.releases.get(stage, {})


class StageDefinition:
    """A stage with its playbook alone. Each module of this package overrides hooks for its stage.

    `name` is also the name of its playbook and role. If the site file lacks the entry `needs`, the stage does not
    apply.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    host_group: ClassVar[str] = ""
    """The group of hosts that the stage works on, if its play runs on the controller."""
    looks_only: ClassVar[bool] = False
    """Whether the stage changes nothing. Such a stage runs each time."""
    on_cluster: ClassVar[bool] = False
    """Whether the stage works through the Kubernetes API."""
    changes_cluster: ClassVar[bool] = False
    """Whether the stage changes the contents of etcd."""
    is_upgraded_by_install: ClassVar[bool] = False
    """Whether `muster install` also changes its release, and therefore refuses irreversible changes."""

    def missing_entry(self, site: Site) -> str:
        """Return the entry that the stage needs and the file does not have; empty if it has it."""
        return ".".join(self.needs) if self.needs and site.get(*self.needs) is None else ""

    def is_in(self, site: Site) -> bool:
        """Return whether the file has the stage's entry and does not declare the stage not applicable."""
        return not self.missing_entry(site) and self.name not in site.declared_not_applicable

    def not_applicable(self, site: Site, *, bundle: bool) -> str:
        """Return why the stage does not apply to a site that has its entry; empty if it applies."""
        return ""

    def problems(self, site: Site) -> Iterator[Finding]:
        """Yield the errors in the entries of the stage."""
        yield from ()

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        """Yield the releases that no row of the matrix allows."""
        yield from ()

    def notes(self, site: Site) -> Iterator[str]:
        """Yield warnings about accepted entries, for the plan."""
        yield from ()

    def replaced(self, site: Site) -> Iterator[str]:
        """Yield a note for each entry of `vars` that overrides a value of the site file."""
        own = site.get("vars", default={})
        for name, value in self.variables(site).items():
            if value is not None and name in own:
                yield f"vars.{name} replaces a value that muster takes from the site file, unchecked"

    def variables(self, site: Site) -> Variables:
        """Return the variables of the stage's role, for all hosts; None stands for the role's default."""
        return {}

    def host_variables(self, host: dict[str, Any]) -> Variables:
        """Return the variables of the stage's role for one host; None stands for the role's default."""
        return {}

    def sentence(self, site: Site) -> str:
        """Return the effect of the stage on a site, from the site file and the matrix; empty if the title is enough."""
        return ""

    def joining_sentence(self, site: Site, joining: Sequence[str]) -> str:
        """Return the effect of the stage if these hosts join the running cluster; empty if the title is enough."""
        return ""

    def removal_sentence(self, site: Site) -> str:
        """Return the effect on a site if the stage is removed; empty if the title is enough."""
        return ""

    def missing_requirements(self, site: Site, variables: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the requirements of the stage that this machine does not meet. `variables` are those of all hosts."""
        yield from ()

    async def installed(self, transport: Transport, site: Site) -> dict[str, str]:
        """Return the releases that run in the cluster, by host or component; empty if nothing is installed."""
        return {}

    @property
    def has_steps(self) -> bool:
        """Whether an upgrade can change a release of the stage. The installed release is then read from the cluster."""
        return type(self).steps is not StageDefinition.steps

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        """Yield the changes from the installed releases to the releases in the site file."""
        yield from ()

    def default(self, variable: str) -> Any:
        """Return the default of a variable of the stage's role."""
        return role_defaults(self.name)[variable]

    def value(self, site: Site, variable: str) -> Any:
        """Return the value that a variable of the stage's role will have, unless a bundle or `--extra` says
        otherwise.
        """
        own = site.get("vars", variable)
        if own is None:
            own = self.variables(site).get(variable)
        return self.default(variable) if own is None else own
