"""`muster monitoring`: the dashboards for Grafana and the rules for Prometheus that belong to this version."""

from importlib import resources
from pathlib import Path

import click

from orchestrator.cli.options import Command
from orchestrator.errors import UsageError


@click.command("monitoring", cls=Command)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def monitoring(directory: Path) -> None:
    """Write dashboards for Grafana, and rules and a scrape configuration for Prometheus, into a directory.

    Existing files of the same names are overwritten.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in monitoring_files().items():
            (directory / name).write_text(text, encoding="utf-8")
            click.echo(directory / name)
    except OSError as error:
        raise UsageError(f"cannot write into {directory}: {error}") from error


def monitoring_files() -> dict[str, str]:
    """Return the texts of the files by their names."""
    files = (resources.files("orchestrator.manifests") / "monitoring").iterdir()
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)}
