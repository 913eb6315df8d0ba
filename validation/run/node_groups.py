"""Puts the nodes into the groups of a scenario, and removes them from the groups afterwards."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from validation.errors import TargetError
from validation.judge.convergence import Convergence, ConvergenceResult
from validation.targets.base import Target
from validation.targets.recorder import Recorder

LABEL_MS: Final = 60_000
Wait = Callable[[Callable[[], list[str]], int], Awaitable[Convergence]]
"""Waits until there are no differences, for at most the given milliseconds."""


class NodeGroups:
    """The nodes that this run has put into groups."""

    def __init__(self, target: Target, recorder: Recorder, wait: Wait) -> None:
        self._target = target
        self._recorder = recorder
        self._wait = wait
        self._nodes: list[str] = []

    async def enter(self, types: Sequence[str]) -> str:
        """Divide the nodes with GPUs into these groups, of equal size. Return the reason why that is not possible;
        empty if it is possible.

        Groups of the site itself are not changed, because its users rely on them. Raises TargetError.
        """
        state = self._recorder.state
        nodes = sorted(name for name, gpus in state.nodes.items() if gpus)
        if not types or self._nodes:
            return ""
        foreign = next((name for name in nodes if state.node_types.get(name, "") not in {"", *types}), None)
        if foreign is not None:
            return f"not run: {foreign} is in a group of the site's own, {state.node_types[foreign]}"
        if not nodes or len(nodes) % len(types):
            return f"not run: {len(nodes)} nodes are not {len(types)} equal groups"
        size = len(nodes) // len(types)
        self._nodes = nodes
        await self._set({name: types[index // size] for index, name in enumerate(nodes)})
        return ""

    async def leave(self) -> None:
        """Remove the nodes from their groups, if this run put them there. Raises TargetError."""
        nodes, self._nodes = self._nodes, []
        if nodes:
            await self._set(dict.fromkeys(nodes, ""))

    async def _set(self, types: Mapping[str, str]) -> None:
        """Put each node into its group, and wait until the API server shows it."""
        await self._target.set_node_types(types)

        def differences() -> list[str]:
            seen = self._recorder.state.node_types
            return [name for name, kind in types.items() if seen.get(name, "") != kind]

        convergence = await self._wait(differences, LABEL_MS)
        if convergence.result != ConvergenceResult.CONVERGED:
            raise TargetError(
                f"node {differences()[0]} did not change its group within {LABEL_MS / 1000:g} s"
            )
