"""Runs the command lines of a step, as users of a cluster do."""

import msgspec

from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.report import record
from validation.run.programs import with_programs
from validation.scenario.images import NO_MAP, ImageMap
from validation.targets.base import Target
from validation.targets.process import for_the_record
from validation.targets.recorder import Recorder


class StepFailed(MusterError):
    """A command of the step failed, or succeeded although it must be refused."""


class StepCommands:
    """Runs command lines on the target, with the site's names of images and the texts of programs.

    It stores each line with its output in a result, without the text of a program.
    """

    def __init__(
        self, target: Target, recorder: Recorder, progress: Reporter, images: ImageMap = NO_MAP
    ) -> None:
        self._target = target
        self._recorder = recorder
        self._progress = progress
        self._images = images

    async def run(self, line: str, result: record.CheckResult) -> None:
        """Run a command that must succeed. Raises StepFailed if it does not."""
        command = await self._execute(line, result)
        if command.exit_code:
            output = (command.stderr or command.stdout).splitlines()
            raise StepFailed(
                f"`{line}` ended with exit code {command.exit_code}: {output[-1] if output else 'no output'}"
            )

    async def run_refused(self, line: str, result: record.CheckResult) -> None:
        """Run a command that must fail, with the word "quota" in its error. Raises StepFailed if it does not."""
        command = await self._execute(line, result)
        if not command.exit_code:
            raise StepFailed(f"`{line}` was done, and should have been refused")
        words = command.stderr.strip().rpartition("\n")[2]
        if "quota" not in words:  # the command failed for another reason
            raise StepFailed(f"`{line}` ended with exit code {command.exit_code}: {words or 'no output'}")

    async def _execute(self, line: str, result: record.CheckResult) -> record.Command:
        self._progress.update(f"{result.id}: {line}")
        line = self._images.line(line)
        command = await self._target.execute(with_programs(line), started_ms=self._recorder.now_ms())
        command = msgspec.structs.replace(command, line=line)
        result.volatile.commands = [*result.volatile.commands, for_the_record(command)]
        return command
