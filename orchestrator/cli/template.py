"""`muster template`: defaults and required values for flags of submit that the command line does not set."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import say
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import document, no_headers_option, output_option, show
from orchestrator.cli.session import run
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.submit.templates import Template


@click.group("template", cls=Group, no_args_is_help=True)
def template() -> None:
    """List, show, create and delete templates: defaults and required values for submit."""


@template.command("list", cls=Command)
@no_headers_option()
@output_option()
def list_templates(*, no_headers: bool | None, output: str | None) -> None:
    """List the templates of the project and of the cluster."""
    show_templates(output=output, no_headers=no_headers)


@template.command("get", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("templates"))
@output_option()
def get_template(*, name: str, output: str | None) -> None:
    """Show a template."""
    show_template(name, output=output)


@template.command("create", cls=Command, no_args_is_help=True)
@click.argument("name")
@click.option(
    "-f",
    "--file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="YAML file of submit flags and their values; - is the standard input.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FLAG=VALUE",
    help="Default value of a submit flag. Repeatable.",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="FLAG",
    help="Submit flag that must be given. Repeatable.",
)
@click.option("--description", default="", metavar="TEXT", help="Description of the template.")
@click.option(
    "--default", "is_default", is_flag=True, default=None, help="Use the template for each submission."
)
@click.option(
    "--of-cluster",
    is_flag=True,
    default=None,
    help="Create the template for all projects, in the namespace of the operator.",
)
def create_template(
    *,
    name: str,
    file: Path | None,
    settings: tuple[str, ...],
    required: tuple[str, ...],
    description: str,
    is_default: bool | None,
    of_cluster: bool | None,
) -> None:
    """Create a template from a file or from --set and --require."""
    from dataclasses import replace

    from orchestrator.names import TEMPLATES_NAMESPACE
    from orchestrator.submit.templates import Template, check

    text = _text(file, settings, required)
    draft = Template(_name(name), TEMPLATES_NAMESPACE, description, bool(is_default), text)
    check(replace(draft, file="" if file is None else str(file)), _kinds())

    async def create(client: "AsyncClient") -> "Template":
        namespace = TEMPLATES_NAMESPACE if of_cluster else (await client.scope()).namespace
        placed = replace(draft, namespace=namespace)
        await client.create_template(placed)
        return placed

    placed = run(create)
    click.echo(f"Template {placed.name} has been created in namespace {placed.namespace}")


@template.command("delete", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("templates"))
@click.option("--of-cluster", is_flag=True, default=None, help="Delete a template for all projects.")
def delete_template(*, name: str, of_cluster: bool | None) -> None:
    """Delete a template."""
    run(lambda client: client.delete_template(name, of_cluster=bool(of_cluster)))
    click.echo(f"Template {name} has been deleted")


def show_templates(*, output: str | None, no_headers: bool | None) -> None:
    """Print the templates of the project and of the cluster."""
    templates = run(lambda client: client.list_templates())
    wide = output == "wide"
    show(
        ("NAME", *(("NAMESPACE",) if wide else ()), "DESCRIPTION"),
        [
            (_marked(item), *((item.namespace,) if wide else ()), item.description or "-")
            for item in templates
        ],
        output=output,
        no_headers=no_headers,
        records=lambda: [_record(item) for item in templates],
        names=[item.name for item in templates],
    )


def show_template(name: str, *, output: str | None) -> None:
    """Print one template."""
    target = run(lambda client: client.get_template(name))
    if output in ("json", "yaml"):
        click.echo(document(_record(target), output))
    elif output == "name":
        click.echo(target.name)
    else:
        scope = "all projects" if target.is_of_cluster else "the project"
        lines = [
            f"NAME: {_marked(target)}",
            f"DESCRIPTION: {target.description or '-'}",
            f"FOR: {scope}",
            "VALUES:",
        ]
        say("\n".join([*lines, *(f"  {line}" for line in target.text.strip().splitlines())]))


def _marked(target: "Template") -> str:
    return f"{target.name} (default)" if target.is_default else target.name


def _record(target: "Template") -> dict[str, Any]:
    return {
        "name": target.name,
        "namespace": target.namespace,
        "description": target.description,
        "default": target.is_default,
        "values": target.text,
    }


def _name(name: str) -> str:
    from orchestrator.submit.name_rules import is_object_name

    if not is_object_name(name):
        raise UsageError(
            f"the template name {name!r} is not possible: use lower case letters, digits, '-' and '.'"
        )
    return name


def _kinds() -> "Any":
    from orchestrator.cli.submit import submit
    from orchestrator.cli.template_values import kinds_of

    return kinds_of(submit)


def _text(file: Path | None, settings: tuple[str, ...], required: tuple[str, ...]) -> str:
    if (file is not None) == bool(settings or required):
        raise UsageError("give the values either with -f/--file or with --set and --require")
    if file is not None:
        from orchestrator.cli.template_values import read_template

        return read_template("-f/--file", file)
    values: dict[str, Any] = {}
    for setting in settings:
        flag, equals, value = setting.partition("=")
        if not flag or not equals:
            raise UsageError(f"--set {setting!r} is not possible: give FLAG=VALUE")
        values.setdefault(flag.lstrip("-"), []).append(_scalar(value))
    defaults = {flag: texts[0] if len(texts) == 1 else texts for flag, texts in values.items()}
    for flag in (text.lstrip("-") for text in required):
        defaults[flag] = {"required": True, **({"value": defaults[flag]} if flag in defaults else {})}
    return document(defaults, "yaml") + "\n"


def _scalar(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdecimal() and str(int(text[:18])) == text else text
