"""`muster submit`, `muster submit-mpi` and `muster submit-dist`: make a Submission from the flags, and create its
objects in the cluster.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli import submit_options as flags
from orchestrator.cli import terminal
from orchestrator.cli.message import say
from orchestrator.cli.output import document
from orchestrator.cli.session import naming_flags, run
from orchestrator.cli.settings import Settings
from orchestrator.cluster.errors import ClusterError, Unreachable
from orchestrator.cluster.quantity import format_time
from orchestrator.errors import ConfigurationError, MusterError, UsageError
from orchestrator.names import NAMESPACE_PREFIX
from orchestrator.submit.values import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.cli.submit_request import SubmitRequest
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope, Submitted
    from orchestrator.submit.network import IngressSettings
    from orchestrator.submit.submission import Submission

Values = dict[str, Any]

_EPILOG: Final = "The words after -- are the arguments of the container."
_TOKEN = re.compile(rb"[?&]token=([0-9A-Za-z]{16,})")
_NUMBERING_ATTEMPTS: Final = 5


@click.command(cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@flags.with_options(*flags.NAME, *flags.INTERACTIVE, *flags.COUNTS, *flags.COMMON)
@click.pass_context
def submit(ctx: click.Context, /, **values: Any) -> int:
    """Submit a job.

    A job is a training job, which ends by itself, or an interactive job. The scheduler starts it within the
    quota of the project, or on GPUs that no other project is entitled to.
    """
    return _submit(ctx, values)


@click.command("submit-mpi", cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@flags.with_options(*flags.NAME, *flags.DISTRIBUTED, *flags.COMMON)
@click.pass_context
def submit_mpi(ctx: click.Context, /, **values: Any) -> int:
    """Submit a job of several numbered processes that start together and know each other's host names."""
    return _submit(ctx, values, "mpi")


@click.command("submit-dist", cls=flags.SubmitCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@click.argument("framework", type=click.Choice(FRAMEWORKS))
@flags.with_options(*flags.NAME, *flags.DISTRIBUTED, *flags.COMMON)
@click.pass_context
def submit_dist(ctx: click.Context, /, *, framework: str, **values: Any) -> int:
    """Submit a distributed job: processes that start together, with FRAMEWORK's environment variables."""
    return _submit(ctx, values, framework)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of actions after the submission: wait, attach, show the token, forward ports."""

    dry_run: str | None
    output: str | None
    attach: bool
    token: bool
    forward: bool
    addresses: tuple[str, ...]
    patience_seconds: int
    wait: bool


def _submit(ctx: click.Context, values: Values, framework: str = "") -> int:
    from orchestrator.cli.submit_request import SubmitRequest

    with naming_flags(flags.FLAGS):
        values = _with_file(ctx, values)
        options = _options(values)
        request = SubmitRequest(ctx, values, framework)
        problem = _problem(request)

        async def act(client: AsyncClient) -> int:
            scope = await client.scope()
            filled = await _filled(ctx, client, request, scope, problem)
            if options.dry_run == "client":
                from orchestrator.client.preflight import ingress_of

                numbered = await _numbered(client, request, filled, scope)
                submission = await client.with_clones(numbered, project=scope)
                submission = await client.with_dependencies(submission, project=scope)
                ingress = await ingress_of(client.transport, submission, scope)
                _print(_manifests(submission, scope, ingress), options.output or "yaml", submission.name)
                return 0
            submission, submitted = await _create(client, request, filled, scope, options)
            if options.dry_run:
                _print(submitted.objects, options.output or "yaml", submission.name)
            elif options.output == "name":
                click.echo(submission.name)
            elif options.output:
                from orchestrator.views.job_record import job_record

                click.echo(document(job_record(submitted.view, time.time_ns() // 1000), options.output))
            else:
                click.echo(f"The job '{submission.name}' has been submitted successfully")
                click.echo(
                    f"You can run `muster get {submission.name} -p {scope.project}` to check the job status"
                )
            if options.dry_run:
                return 0
            try:
                return await _follow(client, scope, submission, options)
            except (MusterError, asyncio.CancelledError):
                if not options.wait:
                    say(
                        f"The job '{submission.name}' stays in project {scope.project}: 'muster delete "
                        f"{submission.name}' deletes it",
                        err=True,
                    )
                raise

        try:
            return run(act)
        except (ConfigurationError, Unreachable) as error:
            if problem is not None:
                raise problem from error
            project = ctx.ensure_object(Settings).project
            needs_cluster = request.values["clone_of"] or request.values["after"]
            if options.dry_run != "client" or project is None or needs_cluster:
                raise  # a clone and `--after` need the cluster: the size of the source, the uid of the job
            return _render_without_cluster(request, project, error)


def _with_file(ctx: click.Context, values: Values) -> Values:
    if values["template"] is None:
        return values
    from orchestrator.cli.template_values import with_template_file

    return with_template_file(ctx, values)


def _options(values: Values) -> _Options:
    """Remove the values that do not describe the job, and return them. Raises UsageError."""
    from orchestrator.durations import parse_duration_seconds

    dry_run = {"true": "client", "false": None}.get(values["dry_run"], values["dry_run"])
    addresses = values.pop("address", ())
    del values["dry_run"]
    return _Options(
        dry_run=dry_run,
        output=values.pop("output"),
        attach=bool(values.get("attach")),
        token=bool(values.get("jupyter")),
        forward=not values.pop("no_port_forward", None),
        addresses=tuple(_addresses(addresses)) if addresses else (),
        wait=bool(values.pop("wait", None)),
        patience_seconds=parse_duration_seconds("--wait-timeout", values.pop("wait_timeout", None)) or 0,
    )


def _addresses(texts: Sequence[str]) -> Iterator[str]:
    from orchestrator.client.port_forward import parse_address

    return (parse_address(part) for text in texts for part in text.split(","))


def _problem(request: SubmitRequest) -> UsageError | None:
    """Return the error if the flags alone do not describe a valid job, or None.

    A template can still add the missing values.
    """
    try:
        request.submission(f"{request.name_prefix()}-0")
    except UsageError as error:
        return error
    return None


async def _filled(
    ctx: click.Context,
    client: AsyncClient,
    request: SubmitRequest,
    scope: Scope,
    problem: UsageError | None,
) -> Mapping[str, Any]:
    """Return the values of the flags, completed by the values of templates. Raises `problem`, if set, if no template
    applies.
    """
    templates = await client.templates_to_apply(request.values["template"], project=scope)
    if problem is not None and not templates:
        raise problem
    if not templates:
        return request.values
    from orchestrator.cli.template_values import with_templates

    return with_templates(ctx, request.values, templates)


async def _numbered(
    client: AsyncClient, request: SubmitRequest, filled: Mapping[str, Any], scope: Scope
) -> Submission:
    """Return the submission. A job without a name gets the name with the smallest free number."""
    name = request.name or await client.free_job_name(request.name_prefix(filled), project=scope)
    return request.submission(name, project=scope.project, values=filled)


async def _create(
    client: AsyncClient,
    request: SubmitRequest,
    filled: Mapping[str, Any],
    scope: Scope,
    options: _Options,
) -> tuple[Submission, Submitted]:
    """Create the job. If another job took its number in the meantime, try the next number."""
    from orchestrator.client.jobs import DuplicateName

    attempts = 1 if request.name else _NUMBERING_ATTEMPTS
    while True:
        attempts -= 1
        submission = await _numbered(client, request, filled, scope)
        try:
            dry_run = options.dry_run == "server"
            return submission, await client.submit(submission, project=scope, dry_run=dry_run, report=_warn)
        except DuplicateName:
            if not attempts:
                raise


def _render_without_cluster(request: SubmitRequest, project: str, error: Exception) -> int:
    from orchestrator.client.jobs import Scope

    scope = Scope(project, f"{NAMESPACE_PREFIX}{project}")
    _warn(f"namespace {scope.namespace} is assumed, and templates are not applied: {error}")
    submission = request.submission(f"{request.name_prefix()}-0", project=project)
    _print(_manifests(submission, scope), "yaml", submission.name)
    return 0


def _manifests(
    submission: Submission, scope: Scope, ingress: IngressSettings | None = None
) -> list[Mapping[str, Any]]:
    """Return the objects of a submission; `ingress` is None if the cluster cannot be reached."""
    from orchestrator.submit import manifest
    from orchestrator.submit.network import DEFAULT_INGRESS

    submitted_at = format_time(time.time_ns() // 1000)
    ingress = ingress or DEFAULT_INGRESS
    placement = manifest.Placement(scope.project, scope.namespace, submitted_at, ingress=ingress)
    dependents = manifest.dependent_manifests(submission, placement, owner=None)
    return [manifest.workload_manifest(submission, placement), *(body for _, body in dependents)]


def _print(objects: Sequence[Mapping[str, Any]], form: str, name: str) -> None:
    if form == "name":
        click.echo(name)
    elif form == "json":
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": objects}, "json"))
    else:
        click.echo("\n---\n".join(document(body, "yaml") for body in objects))


def _warn(line: str) -> None:
    say(f"Warning: {line}", err=True)


async def _follow(client: AsyncClient, scope: Scope, submission: Submission, options: _Options) -> int:
    """If an option needs it, wait for the job, then attach to it, print its token, or forward its ports."""
    forward = submission.service_type == "portforward" and options.forward
    if options.wait:
        await client.wait_for_jobs(
            submission.name, until="succeeded", project=scope, report=lambda line: say(line, err=True)
        )
        return 0
    if not (options.attach or options.token or forward):
        return 0
    from orchestrator.cli.execute import attached
    from orchestrator.cli.port_forward import forwarded
    from orchestrator.client.port_forward import LOOPBACK, ForwardedPort
    from orchestrator.client.streams import LogRequest

    target = await client.streams.running(
        scope,
        submission.name,
        patience_seconds=options.patience_seconds,
        report=terminal.report,
        or_ended=options.attach,
    )
    if options.attach:
        if target.runs:
            return await attached(client.streams, target, stdin=submission.stdin, tty=submission.tty)
        async with aclosing(client.streams.log(target, LogRequest())) as chunks:
            async for chunk in chunks:
                terminal.write_out(chunk)
        return target.terminated.exit_code if target.terminated else 0
    if options.token:
        click.echo(f"Jupyter notebook token: {await _token(client, scope, submission.name)}")
    if forward:
        ports = [ForwardedPort(port.external, port.internal) for port in submission.ports]
        message = "Open access point(s) to service from localhost:{local}"
        await forwarded(client.streams, target, ports, options.addresses or (LOOPBACK,), message)
    return 0


async def _token(client: AsyncClient, scope: Scope, name: str) -> str:
    """Return the token that a notebook writes into its log when it starts."""
    from orchestrator.client.streams import LogRequest

    target = await client.streams.target(scope, name)
    log = b""
    async with aclosing(client.streams.log(target, LogRequest(follow=True))) as chunks:
        async for chunk in chunks:
            log += chunk
            if match := _TOKEN.search(log):
                return match[1].decode()
    raise ClusterError(f"the notebook ended without a token; see 'muster logs {name}'")
