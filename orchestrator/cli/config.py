"""`muster config`: the default project and the current cluster.

Scripts for Run:ai's newer command line use these names.
"""

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command, Group


@click.group("config", cls=Group, no_args_is_help=True)
def config() -> None:
    """Choose the default project or the current cluster."""


@config.command("project", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("projects"))
def config_project(*, name: str) -> None:
    """Make a project the default: the same as `muster project set`."""
    from orchestrator.cli.project import choose_project

    choose_project(name)


@config.command("cluster", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("contexts"))
def config_cluster(*, name: str) -> None:
    """Make a context of the kubeconfig the current one: the same as `muster cluster set`."""
    from orchestrator.cli.cluster import choose_cluster

    choose_cluster(name)
