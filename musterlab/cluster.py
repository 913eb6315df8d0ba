"""Labs as objects: start one, find one by its name, read its status, stop it."""

import asyncio
import contextlib
import dataclasses
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from musterlab import binaries, build, paths, profiles, startup, state, teardown
from musterlab.errors import LabConflict, StateError
from musterlab.gpus import built
from musterlab.gpus.models import Gpus
from musterlab.nodes import NodeGroup
from musterlab.ports import LOOPBACK, check_free
from musterlab.realnodes import plan, requirements
from musterlab.supervisor_handle import SupervisorHandle
from orchestrator.errors import UsageError
from orchestrator.progress import Reporter, as_reporter

_POLL_SECONDS = 0.02


def _silent(_line: str) -> None:
    pass


class Lab:
    """One lab. `Lab.attached`, `start` and `find` return it."""

    def __init__(self, directory: Path, handle: SupervisorHandle | None = None) -> None:
        self.state_directory = directory
        self.record = state.read_record(directory)
        self._supervisor = handle

    @property
    def name(self) -> str:
        """Name of the lab, unique within the directory that holds it."""
        return self.record.name

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator; its context is `muster-lab-<name>`."""
        return self.state_directory / "kubeconfig"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{LOOPBACK}:{self.record.port}"

    @property
    def kubectl_directory(self) -> Path:
        """Directory that has a `kubectl` of the lab's version."""
        return Path(self.record.kubectl_directory)

    @classmethod
    @contextlib.asynccontextmanager
    async def attached(
        cls,
        nodes: Sequence[tuple[str, int]] = ((profiles.DEFAULT_PROFILE, 2),),
        state_dir: Path | None = None,
        progress: Callable[[str], None] = _silent,
        *,
        name: str | None = None,
        port: int | None = None,
        real_nodes: int = 0,
        image_archives: Sequence[Path] = (),
        gpus: Gpus | None = None,
    ) -> AsyncIterator["Lab"]:
        """Run a lab that ends with this process.

        `nodes` lists profiles, by name or path, with the number of nodes of each.

        Real nodes have the first profile. They can pull the images in `image_archives` (OCI archives) by name. NVIDIA's
        programs give them `gpus`.

        Raises:
            LabError: it cannot be built or started.
        """
        name = paths.check_name(name or f"attached-{os.getpid()}-{secrets.token_hex(3)}")
        groups = _groups(nodes)
        if port is not None:
            check_free(port)
        reporter = as_reporter(progress)
        directory = paths.labs_directory(state_dir) / name
        spec = await asyncio.to_thread(
            _lab_spec,
            directory,
            groups=groups,
            nodes=tuple(nodes),
            port=port,
            real_nodes=real_nodes,
            reporter=reporter,
            image_archives=tuple(image_archives),
            gpus=gpus,
        )
        handle = await startup.launch(spec, reporter)
        lab = cls(spec.directory, handle)
        try:
            yield lab
        finally:
            lab.stop()

    def status(self) -> state.Status:
        """Return which processes of the lab live, from the state directory and /proc, without a request.

        Raises:
            LabNotFound: the lab was removed in the meantime.
        """
        self.record = state.read_record(self.state_directory)
        return state.read_status(self.state_directory, self.record)

    def signal(self, process: str, number: signal.Signals) -> None:
        """Send a signal to one process, such as SIGSTOP, SIGCONT or SIGKILL: for tests of resilience.

        Raises:
            StateError: it does not run.
        """
        try:
            os.kill(self._running(process).pid, number)
        except ProcessLookupError as error:
            raise StateError(f"the process {process!r} of lab {self.name!r} has just ended") from error

    def restart(self, process: str, seconds: float = 30.0) -> None:
        """Kill one process and start it again. Returns when it is started; it may not answer yet.

        Raises:
            StateError: it does not run, does not end or start in time, or the lab was detached.
        """
        if self._supervisor is None:
            raise StateError(f"lab {self.name!r} was detached: a process of it cannot be started again")
        before = self._running(process).pid
        self.signal(process, signal.SIGKILL)
        self._until(lambda status: status.exit_status is not None, process, seconds)
        self._supervisor.start(process)
        self._until(lambda status: status.state == "running" and status.pid != before, process, seconds)

    def _until(self, condition: Callable[[state.ProcessStatus], bool], process: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition(self._process(process)):
            if time.monotonic() > deadline:
                raise StateError(
                    f"the process {process!r} of lab {self.name!r} did not change in {seconds} s"
                )
            time.sleep(_POLL_SECONDS)

    def _running(self, process: str) -> state.ProcessStatus:
        status = self._process(process)
        if status.state != "running":
            raise StateError(f"the process {process!r} of lab {self.name!r} is {status.state}")
        return status

    def _process(self, name: str) -> state.ProcessStatus:
        status = next((candidate for candidate in self.status().processes if candidate.name == name), None)
        if status is None:
            raise StateError(f"lab {self.name!r} has no process {name!r}")
        return status

    def stop(self) -> None:
        """Stop all processes and remove the state directory. A missing lab is no error.

        Raises:
            StateError: something of it cannot be stopped or removed.
        """
        teardown.stop(self.state_directory, self._supervisor)


def start(
    name: str,
    *,
    nodes: int = 2,
    profile: str = profiles.DEFAULT_PROFILE,
    port: int | None = None,
    detach: bool = True,
    state_dir: Path | None = None,
    progress: Callable[[str], None] = _silent,
    real_nodes: int = 0,
    image_archives: Sequence[Path] = (),
    gpus: Gpus | None = None,
    api_server_flags: Sequence[str] = (),
) -> Lab:
    """Start the lab `name`, or return it if it already runs. With `detach` it outlives this process.

    `nodes` is the number of simulated nodes. Simulated and real nodes have the same profile. The real nodes can pull
    the images in `image_archives` (OCI archives) by name, and NVIDIA's programs give them `gpus`. `api_server_flags`
    are flags of kube-apiserver beside the lab's flags or instead of them. A running lab keeps its own flags.

    Raises:
        LabConflict: a lab of that name exists, and differs from the requested one or does not work.
        LabError: it cannot be built or started.
    """
    groups = _groups([(profile, nodes)])
    directory = paths.labs_directory(state_dir) / paths.check_name(name)
    reporter = as_reporter(progress)
    running = _existing(
        directory, ((profile, nodes),), real_nodes=real_nodes, gpus=gpus, port=port, reporter=reporter
    )
    if running is not None:
        if image_archives:
            raise LabConflict(
                f"lab {name!r} runs already, with the images that it was started with: stop it first"
            )
        return running
    if port is not None:
        check_free(port)
    spec = _lab_spec(
        directory,
        groups=groups,
        nodes=((profile, nodes),),
        port=port,
        real_nodes=real_nodes,
        reporter=reporter,
        image_archives=tuple(image_archives),
        gpus=gpus,
    )
    spec = dataclasses.replace(spec, api_server_flags=tuple(api_server_flags))
    handle = asyncio.run(startup.launch(spec, reporter))
    if not detach:
        return Lab(directory, handle)
    handle.detach()
    return Lab(directory)


def find(name: str, state_dir: Path | None = None) -> Lab:
    """Find a lab by its name.

    Raises:
        LabNotFound: there is none.
    """
    return Lab(paths.labs_directory(state_dir) / paths.check_name(name))


def _groups(nodes: Sequence[tuple[str, int]]) -> tuple[NodeGroup, ...]:
    for profile, count in nodes:
        if count < 0:
            raise UsageError(f"{count} nodes of profile {profile!r}: the number must not be negative")
    return tuple(NodeGroup(profiles.load(profile), count) for profile, count in nodes)


def _lab_spec(
    directory: Path,
    *,
    groups: tuple[NodeGroup, ...],
    nodes: tuple[tuple[str, int], ...],
    port: int | None,
    real_nodes: int,
    reporter: Reporter,
    image_archives: tuple[Path, ...] = (),
    gpus: Gpus | None = None,
) -> startup.LabSpec:
    """Find the programs of the lab, and build missing ones."""
    if not real_nodes:
        if image_archives:
            raise UsageError("images are for real nodes: the containers of simulated ones do not run")
        if gpus is not None:
            raise UsageError(
                "GPUs are for real nodes: on simulated ones nothing runs that could tell of them"
            )
        return startup.LabSpec(directory, groups, nodes, port, binaries.find(reporter))
    distribution = requirements.find()
    programs = binaries.find(reporter)
    tool_paths = {**binaries.find(reporter, build.REAL_NODES).paths}
    profile = groups[0].profile
    if gpus is not None:
        tool_paths |= built.choose(gpus, reporter)
        profile = gpus.equip(profile)
    tools = distribution.with_programs(tool_paths)
    return startup.LabSpec(
        directory,
        groups,
        nodes,
        port,
        programs,
        plan.nodes(profile, real_nodes, gpus),
        tools,
        image_archives,
    )


def _existing(
    directory: Path,
    nodes: tuple[tuple[str, int], ...],
    *,
    real_nodes: int,
    gpus: Gpus | None,
    port: int | None,
    reporter: Reporter,
) -> Lab | None:
    if not directory.exists():
        return None
    lab = Lab(directory)
    status = lab.status()
    fix = f"stop it with 'muster lab down --name {lab.name}'"
    if status.state == "dead":
        reporter(f"removing the remains of the killed lab {lab.name!r} in {directory}")
        lab.stop()
        return None
    if status.state == "starting":
        raise LabConflict(
            f"lab {lab.name!r} is being started by process {lab.record.starter_pid}: wait, or {fix}"
        )
    if status.state == "degraded":
        ended = ", ".join(f"{process.name} ended, see {process.log}" for process in status.ended)
        raise LabConflict(f"lab {lab.name!r} does not work ({ended}): {fix}")
    if (lab.record.nodes, lab.record.real_nodes) != (nodes, real_nodes):
        has = ", ".join(f"{count} nodes of {profile}" for profile, count in lab.record.nodes)
        requested = ", ".join(f"{count} of {profile}" for profile, count in nodes)
        if lab.record.real_nodes or real_nodes:
            has, requested = f"{has}, {lab.record.real_nodes} real", f"{requested}, {real_nodes} real"
        raise LabConflict(f"lab {lab.name!r} runs with {has}, not {requested}: give another --name, or {fix}")
    gpus_now, gpus_requested = lab.record.gpus or "of the profile", str(gpus or "of the profile")
    if gpus_now != gpus_requested:
        raise LabConflict(
            f"lab {lab.name!r} runs with GPUs {gpus_now}, not {gpus_requested}: give another --name, or {fix}"
        )
    if port is not None and lab.record.port != port:
        raise LabConflict(
            f"lab {lab.name!r} runs on port {lab.record.port}, not {port}: give another --name, or {fix}"
        )
    return lab
