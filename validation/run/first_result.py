"""Shows the result of the planner target while the programs of the lab are fetched or built."""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

from musterlab import binaries
from orchestrator.progress import Reporter
from validation.targets.process import ENTRY

_COMMAND = (sys.executable, *ENTRY, "validate", "--target", "planner", "--json")


def prepare_lab(arguments: Sequence[str], reporter: Reporter) -> None:
    """Fetch or build the programs of the lab. If they are not in the cache, show the planner target's result meanwhile.

    `arguments` choose the scenarios and parts, as in the run. Raises LabError if a program cannot be fetched or built.
    """
    if binaries.at_hand():
        return
    with _planner_result(arguments, reporter):
        binaries.find(reporter)


@contextlib.contextmanager
def _planner_result(arguments: Sequence[str], reporter: Reporter) -> Iterator[None]:
    """Run the planner target beside the caller's work, and report its result as soon as it exists."""
    with tempfile.TemporaryDirectory() as out:
        process = subprocess.Popen(
            [*_COMMAND, "--out", f"{out}/report", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        reading = threading.Thread(target=_report, args=(process, reporter))
        reading.start()
        try:
            yield
        finally:
            # The result of the lab is about to come and proves more; after SIGTERM the process would print an
            # unfinished result.
            process.kill()
            reading.join()
            process.wait()


def _report(process: "subprocess.Popen[bytes]", reporter: Reporter) -> None:
    assert process.stdout is not None  # noqa: S101 - asked for by PIPE
    with process.stdout:
        output = process.stdout.read()
    # The process was killed or failed; the lab's result follows.
    with contextlib.suppress(ValueError, KeyError):
        result = json.loads(output)
        reporter(f"first result, of the planner alone, without a control plane: {result['headline']}")
        reporter(f"first result: {result['summary']}")
        reporter("the lab is still being prepared; its result follows")
