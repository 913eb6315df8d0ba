"""Parses the words after `muster submit` into a submission, without a cluster."""

import shlex
from collections.abc import Sequence

from orchestrator.cli.options import add_common_options
from orchestrator.cli.session import naming_flags
from orchestrator.cli.settings import Settings
from orchestrator.cli.submit import submit
from orchestrator.cli.submit_options import FLAGS
from orchestrator.cli.submit_request import SubmitRequest
from orchestrator.cli.template_values import with_template_file
from orchestrator.errors import UsageError
from orchestrator.submit.submission import Submission

_NO_IMAGE = "what-if"


def read_submission(words: Sequence[str]) -> tuple[Submission, str | None]:
    """Return the submission and the project that the words name. The words need not name an image.

    Raises UsageError, and click's errors for words that `submit` does not accept.
    """
    if not any(param.name == "kubeconfig" for param in submit.params):
        add_common_options(submit)
    settings = Settings()
    with submit.make_context("submit", list(words), obj=settings) as ctx:
        values = with_template_file(ctx, ctx.params)
        values["image"] = values["image"] or _NO_IMAGE
        with naming_flags(FLAGS):
            request = SubmitRequest(ctx, values)
            if request.name is None:
                raise UsageError(f"submit {shlex.join(words)} has no name for the job: give NAME first")
            return request.submission(), settings.project
