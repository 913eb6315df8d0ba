"""The stage snapshot: saves etcd before an upgrade changes the cluster; `deployment.run` decides when."""

from typing import ClassVar, Final

from deployment.stages.definition import StageDefinition


class Snapshot(StageDefinition):
    """The stage that reads etcd on a host of the control plane, and writes files into the directory of the run."""

    name: ClassVar[str] = "snapshot"


STAGE: Final = Snapshot()
