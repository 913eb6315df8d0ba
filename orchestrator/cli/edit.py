"""`muster edit`: another image, number of GPUs or priority for a job."""

import time
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command
from orchestrator.cli.output import document, output_option
from orchestrator.cli.session import naming_flags, run
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.views.jobs import WorkloadView

_FLAGS: Final = {"gpu_milli": "-g/--gpu", "image": "-i/--image", "priority": "--priority"}


@click.command("edit", cls=Command, no_args_is_help=True)
@click.argument("words", nargs=-1, metavar="[job] JOB", shell_complete=completing("jobs"))
@click.option(
    "-g",
    "--gpu",
    metavar="GPUS",
    help="Another number of GPUs (2) of each pod, or another GPU fraction (0.5) instead of a fraction.",
)
@click.option("-i", "--image", help="Another container image.")
@click.option(
    "--priority",
    metavar="CLASS",
    help="Another priority: train, interactive-preemptible, interactive or inference, from the lowest to the highest.",
)
@click.option(
    "--dry-run", is_flag=True, default=None, help="Let the API server check the change, and change nothing."
)
@output_option("json", "yaml", "name")
def edit(
    *,
    words: tuple[str, ...],
    gpu: str | None,
    image: str | None,
    priority: str | None,
    dry_run: bool | None,
    output: str | None,
) -> None:
    """Change a job: its priority at any time, its image and GPUs while none of its containers runs.

    A training job with another image or number of GPUs is created anew under its name, because Kubernetes does not
    change its pods. It is then the last of its priority in the queue. If the command is interrupted, run it
    again. Until then, the suspended job JOB-edit keeps the description.
    """
    from orchestrator.submit.changes import Change, parse_priority
    from orchestrator.submit.parsing import parse_gpu, parse_image

    name = words[-1] if words else ""
    if len(words) != 1 and (len(words) != 2 or words[0] != "job"):
        raise UsageError("name one job; each job is edited by a command of its own")
    with naming_flags(_FLAGS):
        change = Change(
            None if gpu is None else parse_gpu(gpu),
            None if image is None else parse_image(image),
            None if priority is None else parse_priority(priority),
        )
        if change == Change():
            raise UsageError("nothing is to be changed: give -g/--gpu, -i/--image or --priority")

        async def act(client: "AsyncClient") -> "WorkloadView":
            return await client.edit_job(name, change, dry_run=bool(dry_run))

        view = run(act)
    if output == "name":
        click.echo(name)
    elif output:
        from orchestrator.views.job_record import job_record

        click.echo(document(job_record(view, time.time_ns() // 1000), output))
    elif dry_run:
        click.echo(f"The job '{name}' would be changed")
    else:
        last = (
            ", and is the last of its priority in the queue"
            if change.is_of_pods and view.kind == "Job"
            else ""
        )
        click.echo(f"The job '{name}' has been changed{last}")
