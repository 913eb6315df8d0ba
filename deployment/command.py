"""`muster new-site`, `install`, `plan`, `verify`, `upgrade`, `teardown`, `matrix` and `inventory`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.distribution import require_extra
from orchestrator.progress import printable, terminal_reporter

if TYPE_CHECKING:
    from deployment.plan import StagePlan
    from deployment.request import Request
    from deployment.run import Run
    from deployment.stages.steps import Step

_Command = TypeVar("_Command", bound=Callable[..., Any])

_INVENTORY = click.option(
    "-i",
    "--inventory",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="SITE",
    help="Directory of the site, with its site.yml.",
)
_STATE = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the journals.  [default: $XDG_STATE_HOME/muster/sites]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


def _on_a_site(function: _Command) -> _Command:
    for option in (_JSON, _STATE, _INVENTORY):
        function = option(function)
    return function


_LIMIT = click.option(
    "--limit", default="", metavar="HOSTS",
    help="Limit the run to these hosts: names, patterns or groups, separated by commas.",
)  # fmt: skip


def _range(function: _Command) -> _Command:
    for option in (
        click.option("--until", "last", metavar="STAGE", help="Stop after this stage."),
        click.option(
            "--from", "first", metavar="STAGE", help="Start with this stage, and repeat all stages after it."
        ),
        click.option(
            "--check", is_flag=True, help="Change nothing; report the changes (Ansible's check mode)."
        ),
    ):
        function = option(function)
    return function


def _from_a_bundle(function: _Command) -> _Command:
    for option in (
        click.option(
            "--bundle-key", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
            help="Public key of the bundle's signature.",
        ),
        click.option(
            "--bundle-sha256", default="", metavar="DIGEST",
            help="Digest of the bundle's manifest, as `muster bundle build` printed it.",
        ),
        click.option(
            "--bundle", type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Bundle of `muster bundle build`. The installation fetches everything from it.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


_ADD = click.option(
    "--add", default=None, metavar="HOSTS",
    help="Add these hosts of the site file to the installed site, and change no others; separated by commas.",
)  # fmt: skip
_PURGE = click.option(
    "--accept-runtime-purge", is_flag=True,
    help="Remove another container runtime that runs on a host, with all its containers and images.",
)  # fmt: skip


@click.command()
@_on_a_site
@_range
@_LIMIT
@_ADD
@_from_a_bundle
@_PURGE
@click.option("--plan", "plan_only", is_flag=True, help="Print each step with its reason, and do nothing.")
def install(*, as_json: bool, plan_only: bool, add: str | None, **options: Any) -> None:
    """Install a site by its site file, or continue an interrupted run."""
    _install(add, options, as_json=as_json, plan_only=plan_only)


@click.command()
@_on_a_site
@_range
@_LIMIT
@_ADD
@_from_a_bundle
def plan(*, as_json: bool, add: str | None, **options: Any) -> None:
    """Print the stages that `install` would run, with reasons."""
    _install(add, options, as_json=as_json, plan_only=True)


def _install(add: str | None, options: dict[str, Any], *, as_json: bool, plan_only: bool) -> None:
    if add is not None and not add.strip():
        raise click.UsageError("--add names no host")
    if add and options["limit"]:
        raise click.UsageError("--add is a limit: leave out --limit")

    def check_added(run: "Run") -> None:
        from deployment import membership

        names = [name.strip() for name in str(add).split(",")]
        run.refuse(membership.refused_added(run.site, names, run.plan()))

    request = _request("install", options | ({"limit": add} if add else {}))
    _work(request, as_json=as_json, plan_only=plan_only, before=check_added if add else None)


@click.command()
@_on_a_site
@_LIMIT
def verify(*, as_json: bool, **options: Any) -> None:
    """Verify every layer of a site, and change nothing."""
    _work(_request("verify", options), as_json=as_json)


@click.command()
@_on_a_site
@_range
@_LIMIT
@_from_a_bundle
@_PURGE
@click.option("--accept-irreversible", is_flag=True, help="Run irreversible stages too; `--plan` names them.")
@click.option("--plan", "plan_only", is_flag=True, help="Print each step with its reason, and do nothing.")
def upgrade(*, as_json: bool, plan_only: bool, **options: Any) -> None:
    """Upgrade a site to the versions in its site file, storage before Kubernetes."""
    _work(_request("upgrade", options), as_json=as_json, plan_only=plan_only)


@click.command()
@_on_a_site
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--plan", "plan_only", is_flag=True, help="Print each step with its reason, and do nothing.")
def teardown(*, as_json: bool, yes: bool, plan_only: bool, **options: Any) -> None:
    """Uninstall a site in reverse order of its stages. The volumes on the storage are kept."""
    request = _request("teardown", {**options, "extra": ("teardown_confirmed=true",)})
    if not plan_only and not yes:
        click.confirm(f"Remove the installation of {options['inventory']}?", abort=True, err=True)
    _work(request, as_json=as_json, plan_only=plan_only)


@click.command()
@click.argument("host")
@_on_a_site
@click.option(
    "--lost", is_flag=True, help="The host cannot be reached any more: delete its node, and do not reset it."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--plan", "plan_only", is_flag=True, help="Print each step with its reason, and do nothing.")
def remove(*, host: str, lost: bool, as_json: bool, yes: bool, plan_only: bool, **options: Any) -> None:
    """Drain a host, reset it, and delete its node. Other hosts are not changed. `muster install --add` adds one."""
    require_extra("deployment")
    from deployment import membership

    def check_removal(run: "Run") -> None:
        run.refuse(membership.refused_removal(run.site, host))
        if plan_only or yes:
            return
        jobs = membership.jobs_on(*run.cluster, host)
        lose = f"These jobs lose pods and are pending again: {', '.join(jobs)}." if jobs else "It has no job."
        click.confirm(f"{host}: {lose} Remove it?", abort=True, err=True)

    file, at = call_showing_problems(membership.entry, options["inventory"], options["state_dir"], host)
    if at:
        click.echo(f"{host}: removed before, {at}; delete its entry if the site file has one: {file}")
        return
    variables = (f"deepops_leaving={host}", *([membership.LOST] if lost else []))
    request = _request("node remove", {**options, "limit": host, "extra": variables})
    _work(request, as_json=as_json, plan_only=plan_only, before=check_removal)
    if not plan_only:
        click.echo(f"{host}: delete its entry now: {file}")


def resume(*, inventory: Path, state_dir: Path | None) -> None:
    """`muster resume -i SITE`: continue the last run on the site if it was interrupted or failed."""
    require_extra("deployment")
    from deployment.request import unfinished_request

    request = call_showing_problems(unfinished_request, inventory, state_dir)
    if request is None:
        click.echo(f"{inventory}: nothing is to be resumed: the last run came to its end, or there was none")
        return
    click.echo(f"continuing `muster {request.action}` on {inventory}", err=True)
    _work(request, as_json=False)


@click.command()
@_JSON
def matrix(*, as_json: bool) -> None:
    """Print the compatibility matrix: each row with its source and the date of the lookup."""
    require_extra("deployment")
    from deployment.matrix import tables

    if as_json:
        click.echo(json.dumps(tables(), indent=1, default=str))
        return
    for name, rows in tables().items():
        click.echo(f"{name.upper()}")
        for row in rows:
            facts = {
                key: value for key, value in row.items() if key not in {"source", "date"} and value != ""
            }
            click.echo("  " + "; ".join(f"{key} {_cell(value)}" for key, value in facts.items()))
            click.echo(f"      {row['source']}, {row['date']}")


@click.command()
@_INVENTORY
@_STATE
def inventory(inventory: Path, state_dir: Path | None) -> None:
    """Print the Ansible inventory of a site, for your own calls of ansible-playbook."""
    require_extra("deployment")
    from deployment import inventory as built
    from deployment.site_file import load

    click.echo(json.dumps(built.build(call_showing_problems(load, inventory), state_dir), indent=1))


@click.command("new-site")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--like", default="example", show_default=True, metavar="SITE",
    help="Site of muster to copy, for example dgx-h100; an unknown name lists all.",
)  # fmt: skip
def new_site(directory: Path, *, like: str) -> None:
    """Write the site file of a new site into DIRECTORY. The last part of the path is the name of the site."""
    require_extra("deployment")
    from deployment import content
    from deployment.new_site import create

    file = create(content.find().inventories, like, directory)
    click.echo(f"{file}: fill it in, then print the planned stages: muster plan -i {directory}")


def _request(action: str, options: dict[str, Any]) -> "Request":
    require_extra("deployment")
    from deployment.request import Request

    return Request(action=action, **options)


def _work(
    request: "Request",
    *,
    as_json: bool,
    plan_only: bool = False,
    before: "Callable[[Run], None] | None" = None,
) -> None:
    from deployment.run import Run

    reporter = terminal_reporter()
    try:
        run = call_showing_problems(Run, request, reporter)
        if before:
            call_showing_problems(before, run)
        decisions = run.plan() if plan_only else call_showing_problems(run.execute)
        steps, problem = run.steps(decisions) if plan_only else ([], "")
    finally:
        reporter.close()
    if as_json:
        document: dict[str, Any] = {"site": run.site.name, "stages": _records(run, decisions)}
        for stage in document["stages"]:
            stage["proved"] = run.proved.get(stage["stage"], [])
            stage["kept"] = run.kept_objects.get(stage["stage"], [])
        if plan_only:
            document |= {"steps": [step.record() for step in steps], "steps_unknown": problem}
        click.echo(json.dumps(document, indent=1))
    elif plan_only:
        _print_plan(run, decisions, steps)
        if problem and request.action == "upgrade":
            click.echo(
                f"the running releases cannot be read ({problem}), so irreversible steps are unknown",
                err=True,
            )
    else:
        if request.action == "verify":
            _print_proofs(run, decisions)
        if not run.fleet.unreached:
            click.echo(f"{run.site.name}: {request.action}: every stage that applies is {_outcome(request)}")
        for stage, lines in run.kept_objects.items():
            for line in lines:
                click.echo(f"{stage}: {line}")
    run.refuse_unreached()


def _outcome(request: "Request") -> str:
    if request.check:
        return "checked; nothing was changed"
    return "removed" if request.action == "teardown" else "verified"


def _records(run: "Run", decisions: "list[StagePlan]") -> list[dict[str, Any]]:
    from deployment import images

    removal = run.request.action == "teardown"
    missing = [finding.message for finding in run.missing_requirements(decisions)]
    installs = run.request.action in {"install", "upgrade"}
    of_site = images.notes(run.site) if installs else ()
    first = next((decision.stage.name for decision in decisions if decision.verb == "run"), "")
    return [
        {
            **decision.record(),
            **({"reason": "it may have been installed"} if removal and decision.verb == "run" else {}),
            "what": run.sentence(decision),
            "notes": [
                *([*missing, *of_site] if decision.stage.name == first else []),
                *(decision.stage.definition.notes(run.site) if installs and decision.verb == "run" else []),
                *(decision.stage.definition.replaced(run.site) if decision.verb == "run" else []),
            ],
        }
        for decision in decisions
    ]


def _print_plan(run: "Run", decisions: "list[StagePlan]", steps: "list[Step]") -> None:
    """Print a line for each stage. For stages that would run, print their effect, their hosts, and notes."""
    from deployment.plan import listed

    width = max(len(decision.stage.name) for decision in decisions)
    for record in _records(run, decisions):
        click.echo(f"{record['stage']:{width}}  {record['decision']}: {record['reason']}")
        if record["decision"] != "run":
            continue
        hosts = ", ".join(record["hosts"])
        for label, text in (
            ("does", record["what"] or record["title"]),
            ("on", hosts),
            *((("BUT", f"not on {listed(record['left_out'])}"),) if record["left_out"] else ()),
            *(("STEP", step.line()) for step in steps if step.stage == record["stage"]),
            *(("NOTE", note) for note in record["notes"]),
        ):
            click.echo(f"{'':{width}}    {label:4}  {text}")
    running = sum(decision.verb == "run" for decision in decisions)
    click.echo(f"{running} of {len(decisions)} stages would run; a plan asks no host and changes nothing.")
    if run.journal.torn:
        click.echo(run.journal.torn, err=True)


def _print_proofs(run: "Run", decisions: "list[StagePlan]") -> None:
    """Print each stage with the facts that it proved; without any, the reason."""
    width = max(len(decision.stage.name) for decision in decisions)
    for decision in decisions:
        unproved = decision.reason if decision.verb != "run" else "its checks passed"
        for line in run.proved.get(decision.stage.name) or [f"{decision.verb}: {unproved}"]:
            click.echo(f"{decision.stage.name:{width}}  {line}")


def call_showing_problems(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and print each problem of a site file on a line of its own."""
    from deployment.errors import SiteError

    try:
        return function(*arguments)
    except SiteError as error:
        for problem in error.problems:
            if problem != str(error):
                click.echo(printable(problem), err=True)
        raise


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
