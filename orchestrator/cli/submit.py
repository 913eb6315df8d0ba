"""`muster submit`, `muster submit-mpi` and `muster submit-dist`: flags to a Submission, and that to the cluster."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli import submit_options as flags
from orchestrator.cli import terminal
from orchestrator.cli.options import Settings
from orchestrator.cli.output import document
from orchestrator.cli.session import run
from orchestrator.cli.submit_values import fields_of, given_name, name_prefix, submission_of
from orchestrator.cli.templates import with_templates
from orchestrator.client.jobs import DuplicateName, Scope
from orchestrator.cluster.errors import ClusterError, Unreachable
from orchestrator.cluster.quantity import format_time
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.names import NAMESPACE_PREFIX
from orchestrator.workloads import manifest
from orchestrator.workloads.rendezvous import FRAMEWORKS
from orchestrator.workloads.submission import Submission
from orchestrator.workloads.values import parse_duration_seconds

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

__all__ = ["submission_of", "submit", "submit_dist", "submit_mpi"]

Values = dict[str, Any]

_EPILOG: Final = "What follows -- are the container's arguments."
_TOKEN = re.compile(rb"[?&]token=([0-9A-Za-z]{16,})")
_NUMBERING_ATTEMPTS: Final = 5


@click.command(cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@flags.with_options(*flags.NAME, *flags.INTERACTIVE, *flags.COUNTS, *flags.COMMON)
@click.pass_context
def submit(ctx: click.Context, /, **values: Any) -> int:
    """Submit a job.

    A job trains until its end, or is interactive. The scheduler starts it when the project's quota, or GPUs that
    nobody else needs, allow it.
    """
    return _submit(ctx, values)


@click.command("submit-mpi", cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@flags.with_options(*flags.NAME, *flags.DISTRIBUTED, *flags.COMMON)
@click.pass_context
def submit_mpi(ctx: click.Context, /, **values: Any) -> int:
    """Submit a job of several processes that start together, numbered, and know each other's names."""
    return _submit(ctx, values, "mpi")


@click.command("submit-dist", cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@click.argument("framework", type=click.Choice(FRAMEWORKS))
@flags.with_options(*flags.NAME, *flags.DISTRIBUTED, *flags.COMMON)
@click.pass_context
def submit_dist(ctx: click.Context, /, *, framework: str, **values: Any) -> int:
    """Submit a distributed job: processes that start together, with the variables by which FRAMEWORK joins them."""
    return _submit(ctx, values, framework)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for beyond the job itself."""

    dry_run: str | None
    output: str | None
    attach: bool
    token: bool
    forward: bool
    addresses: tuple[str, ...]
    patience_seconds: int


def _submit(ctx: click.Context, values: Values, framework: str = "") -> int:
    asked = _asked(values)
    name = given_name(values)
    fields_of(ctx, values, framework)  # every flag for itself, before the cluster is asked
    problem: UsageError | None = None
    try:
        submission_of(ctx, values, name=name or f"{name_prefix(values)}-0", framework=framework)
    except UsageError as error:
        problem = error  # a template may put it right

    async def act(client: "AsyncClient") -> int:
        scope, filled = await _filled(ctx, client, values, problem)
        if asked.dry_run == "client":
            number = name or await client.free_job_name(name_prefix(filled), project=scope)
            made = submission_of(ctx, filled, name=number, project=scope.project, framework=framework)
            _print(_manifests(made, scope), asked.output or "yaml", made.name)
            return 0
        for attempt in range(_NUMBERING_ATTEMPTS):
            number = name or await client.free_job_name(name_prefix(filled), project=scope)
            made = submission_of(ctx, filled, name=number, project=scope.project, framework=framework)
            try:
                done = await client.submit(
                    made, project=scope, dry_run=asked.dry_run == "server", report=_warn
                )
            except DuplicateName:
                if name or attempt == _NUMBERING_ATTEMPTS - 1:
                    raise
                continue
            break
        if asked.dry_run or asked.output:
            _print(done.objects, asked.output or "yaml", made.name)
        else:
            click.echo(f"The job '{made.name}' has been submitted successfully")
            click.echo(f"You can run `muster get {made.name} -p {scope.project}` to check the job status")
        return 0 if asked.dry_run else await _stay(client, scope, made, asked)

    try:
        return run(act)
    except (ConfigurationError, Unreachable) as error:
        if problem is not None:
            raise problem from error
        project = ctx.ensure_object(Settings).project
        if asked.dry_run != "client" or project is None:
            raise
        return _rendered_without_cluster(ctx, values, framework, project, error)


def _asked(values: Values) -> _Asked:
    """Take what is not about the job out of the values. Raises UsageError."""
    from orchestrator.client.port_forward import parse_address

    dry_run = {"true": "client", "false": None}.get(values["dry_run"], values["dry_run"])
    addresses = values.pop("address", ())
    del values["dry_run"]
    return _Asked(
        dry_run=dry_run,
        output=values.pop("output"),
        attach=bool(values.get("attach")),
        token=bool(values.get("jupyter")),
        forward=not values.pop("no_port_forward", None),
        addresses=tuple(parse_address(part) for text in addresses for part in text.split(",")),
        patience_seconds=parse_duration_seconds("--wait-timeout", values.pop("wait_timeout", None)) or 0,
    )


async def _filled(
    ctx: click.Context, client: "AsyncClient", values: Values, problem: UsageError | None
) -> tuple[Scope, Values]:
    """Return the project, and the values with what templates make of them."""
    scope = await client.scope()
    templates = await client.templates_to_apply(values["template"], project=scope)
    if problem is not None and not templates:
        raise problem
    return scope, with_templates(ctx, values, templates) if templates else values


def _rendered_without_cluster(
    ctx: click.Context, values: Values, framework: str, project: str, error: Exception
) -> int:
    scope = Scope(project, f"{NAMESPACE_PREFIX}{project}")
    _warn(f"namespace {scope.namespace} is a guess, and templates are left out: {error}")
    name = given_name(values) or f"{name_prefix(values)}-0"
    made = submission_of(ctx, values, name=name, project=project, framework=framework)
    _print(_manifests(made, scope), "yaml", made.name)
    return 0


def _manifests(asked: Submission, scope: Scope) -> list[Mapping[str, Any]]:
    submitted_at = format_time(time.time_ns() // 1000)
    placement = manifest.Placement(scope.project, scope.namespace, submitted_at)
    beside = manifest.manifests_beside(asked, placement, owner=None)
    return [manifest.workload_manifest(asked, placement), *(body for _, body in beside)]


def _print(objects: Sequence[Mapping[str, Any]], form: str, name: str) -> None:
    if form == "name":
        click.echo(name)
    elif form == "json":
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": objects}, "json"))
    else:
        click.echo("\n---\n".join(document(each, "yaml") for each in objects))


def _warn(line: str) -> None:
    click.echo(f"Warning: {line}", err=True)


async def _stay(client: "AsyncClient", scope: Scope, made: Submission, asked: _Asked) -> int:
    """Wait for the job where something is to be done with it, and do that."""
    forward = made.service_type == "portforward" and asked.forward
    if not (asked.attach or asked.token or forward):
        return 0
    from orchestrator.cli.execute import attached
    from orchestrator.cli.port_forward import forwarded
    from orchestrator.client.port_forward import LOOPBACK, ForwardedPort
    from orchestrator.client.streams import LogRequest

    target = await client.streams.running(
        scope,
        made.name,
        patience_seconds=asked.patience_seconds,
        report=terminal.report,
        or_ended=asked.attach,
    )
    if asked.attach:
        if target.runs:
            return await attached(client.streams, target, stdin=made.stdin, tty=made.tty)
        async with aclosing(client.streams.log(target, LogRequest())) as chunks:
            async for chunk in chunks:
                terminal.write_out(chunk)
        return target.terminated.exit_code if target.terminated else 0
    if asked.token:
        click.echo(f"Jupyter notebook token: {await _token(client, scope, made.name)}")
    if forward:
        ports = [ForwardedPort(port.external, port.internal) for port in made.ports]
        say = "Open access point(s) to service from localhost:{local}"
        await forwarded(client.streams, target, ports, asked.addresses or (LOOPBACK,), say)
    return 0


async def _token(client: "AsyncClient", scope: Scope, name: str) -> str:
    """Return the token that a notebook writes into its log when it starts."""
    from orchestrator.client.streams import LogRequest

    target = await client.streams.target(scope, name)
    said = b""
    async with aclosing(client.streams.log(target, LogRequest(follow=True))) as chunks:
        async for chunk in chunks:
            said += chunk
            if found := _TOKEN.search(said):
                return found[1].decode()
    raise ClusterError(f"the notebook ended without a token; see 'muster logs {name}'")
