"""Scales a printed scenario to a site of another size: each quota stays the same fraction of the site's GPUs.

All quotas, requests and expected amounts are multiplied by one exact ratio. Example: in the paper, a job has one pod on
a site of 16 GPUs. On 64 GPUs the job has four such pods, and on 8 GPUs one pod of half the size.

Each job stays one job with more pods. Interactive jobs have one pod, so they are submitted several times if a pod
cannot have the scaled amount. An amount that is not a whole number of thousandths of a GPU is refused.
"""

import itertools
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import msgspec

from validation.scenario.commands import Delete, Submit, parse
from validation.scenario.schema import Cluster, Drain, Expect, Scenario, Step

_SIZE = re.compile(r"([1-9]\d*)x([1-9]\d*)")
_MAX_PARTS = 64
_AMOUNT = re.compile(r"\{(\d+(?:\.\d+)?)\}")
_DEVICES = re.compile(r"--num_devices=\d+")


@dataclass(frozen=True, slots=True)
class Size:
    """A number of nodes, and the number of GPUs of each."""

    nodes: int
    gpus_per_node: int

    def __str__(self) -> str:
        """`8x8`, as it is written in options and in the record."""
        return f"{self.nodes}x{self.gpus_per_node}"

    @property
    def gpus(self) -> int:
        """The number of all GPUs."""
        return self.nodes * self.gpus_per_node


def parse_size(text: str) -> Size:
    """Return the size that is written as `8x8`: nodes, then GPUs of each node. Raises ValueError.

    Example: `str(parse_size("8x16"))` returns `'8x16'`.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a size such as 8x8: nodes, and GPUs of each")
    return Size(int(match[1]), int(match[2]))


def size_of(cluster: Cluster) -> Size:
    """Return the size for which a scenario is printed."""
    return Size(cluster.nodes, cluster.gpus_per_node)


def scale(scenario: Scenario, earlier: Sequence[Scenario], printed: Size, size: Size) -> Scenario:
    """Return the scenario for a site of this size.

    `earlier` are the scenarios that it continues, unscaled and in order.

    Raises ValueError with the part that cannot be scaled.
    """
    if size.gpus % printed.gpus and printed.gpus % size.gpus:
        raise ValueError(
            f"{size.gpus} is neither a multiple nor a part of {printed.gpus}: cordon nodes, and name the rest"
        )
    scaling = _Scaling(Fraction(size.gpus, printed.gpus), size.gpus_per_node)
    for before in earlier:
        for step in before.steps:
            scaling.step(step)
    projects = {
        name: msgspec.structs.replace(
            project,
            quota=project.quota and scaling.gpus(project.quota, f"the quota of {name}"),
            weight=project.weight and scaling.gpus(project.weight, f"the weight of {name}"),
        )
        for name, project in scenario.projects.items()
    }
    cluster = scenario.cluster and msgspec.structs.replace(
        scenario.cluster, nodes=size.nodes, gpus_per_node=size.gpus_per_node
    )
    steps = [scaling.step(step) for step in scenario.steps]
    return msgspec.structs.replace(scenario, cluster=cluster, projects=projects, steps=steps)


def with_titles(scenario: Scenario, ratio: Fraction) -> Scenario:
    """Return the scenario with scaled amounts of GPUs in its titles.

    With the ratio 2, `{16} GPUs` becomes `32 GPUs`.
    """

    def amount(match: re.Match[str]) -> str:
        return f"{_decimal(Fraction(match[1]) * ratio):f}"

    steps = [msgspec.structs.replace(step, title=_AMOUNT.sub(amount, step.title)) for step in scenario.steps]
    return msgspec.structs.replace(scenario, steps=steps)


class _Scaling:
    """Scales the steps of a scenario by a ratio, for nodes with a given number of GPUs."""

    def __init__(self, ratio: Fraction, gpus_per_node: int) -> None:
        self._ratio = ratio
        self._gpus_per_node = gpus_per_node
        self._names: dict[str, list[str]] = {}
        """The names of the workloads that replace a workload, by its name."""

    def gpus(self, gpus: Decimal, subject: str) -> Decimal:
        """Return the scaled amount of GPUs. Raises ValueError."""
        scaled = Fraction(gpus) * self._ratio
        if (scaled * 1000).denominator != 1:
            raise ValueError(f"{subject} would be {scaled} GPUs, which are no thousandths")
        return _decimal(scaled)

    def step(self, step: Step) -> Step:
        """Return the scaled step, or its variant for other sizes."""
        run, expect = step.run, step.expect
        if step.elsewhere is not None:
            run = run if step.elsewhere.run is None else step.elsewhere.run
            expect = step.elsewhere.expect
        lines = []
        for parts, group in itertools.groupby(run, self._parts_of_a_gpu):
            group_lines = list(group)
            if parts is None or self._ratio <= 1:
                lines += [scaled for line in group_lines for scaled in self._lines(line)]
            else:  # jobs that share a GPU are not scaled; one more job has the rest
                lines += [*group_lines, *self._rest(group_lines)]
        refused = [self._refused(line) for line in step.refused]
        return msgspec.structs.replace(
            step,
            run=lines,
            expect=self._expect(expect),
            refused=refused,
            drain=step.drain and self._drain(step.drain),
            elsewhere=None,
        )

    def _drain(self, drain: Drain) -> Drain:
        """Return the drain of the same fraction of the site. Its jobs are those that replace the printed jobs."""
        return Drain(self._all(drain.nodes_of), self.gpus(drain.gpus, "the drained amount"))

    def _refused(self, line: str) -> str:
        """Return the line with its quota scaled. The line must fail on the site too."""
        *words, quota = line.split()
        return " ".join([*words, f"{self.gpus(Decimal(quota), 'subject is refused'):f}"])

    @staticmethod
    def _parts_of_a_gpu(line: str) -> tuple[str, bool] | None:
        """Return the project and the kind of a job of one pod with a GPU fraction; None for other jobs."""
        action = parse(line)
        if isinstance(action, Delete) or action.pods > 1 or not 0 < action.gpu_milli < 1000:
            return None
        return action.project, action.interactive

    def _rest(self, lines: Sequence[str]) -> list[str]:
        """Return the lines that submit a job like the first one.

        Its GPUs are the difference between the total of all these jobs on the site and their total in the printed
        scenario.
        """
        actions = [action for action in map(parse, lines) if isinstance(action, Submit)]
        gpus = Fraction(sum(action.gpu_milli for action in actions), 1000) * (self._ratio - 1)
        pods, request = self._fewest(1, gpus, actions[0].name)
        name = f"{actions[0].name}-rest"
        words = shlex.split(lines[0])
        names = self._names.setdefault(actions[0].name, [actions[0].name])
        submits = self._submits(words, name, actions[0], (pods, request))
        names += [shlex.split(line)[2] for line in submits]
        return submits

    def _lines(self, line: str) -> list[str]:
        action, words = parse(line), shlex.split(line)
        if isinstance(action, Delete):
            return [shlex.join([name for word in words for name in self._names.get(word, [word])])]
        if not action.gpu_milli:
            return [line]
        copies, each = self._ratio.numerator, Fraction(action.gpu_milli, 1000) / self._ratio.denominator
        if action.interactive and action.gpu_milli >= 1000:
            copies, each = 1, each * copies
        pods, request = self._fewest(copies, each, action.name)
        submits = self._submits(words, action.name, action, (pods, request))
        self._names[action.name] = [shlex.split(line)[2] for line in submits]
        return submits

    @staticmethod
    def _submits(words: list[str], name: str, action: Submit, pods_of: tuple[int, Fraction]) -> list[str]:
        """Return the lines that submit these pods under the name; interactive pods become one workload each."""
        pods, request = pods_of
        words = [_DEVICES.sub(f"--num_devices={max(1, int(request))}", word) for word in words]
        words[words.index("-g") + 1] = f"{_decimal(request):f}"
        if action.interactive:
            each = [name if number == 1 else f"{name}-{number}" for number in range(1, pods + 1)]
            return [shlex.join([*words[:2], one, *words[3:]]) for one in each]
        words[2] = name
        for option, printed in (
            ("--min-member", action.min_member),
            ("--completions", 1),
            ("--parallelism", 1),
        ):
            if option in words:
                index = words.index(option) + 1
                words[index] = str(int(words[index]) * pods)
            elif pods > 1:
                words[3:3] = [option, str(printed * pods)]
        return [shlex.join(words)]

    def _fewest(self, copies: int, each: Fraction, name: str) -> tuple[int, Fraction]:
        """Return the lowest number of pods whose request is possible and fits a node, and this request."""
        for parts in range(1, _MAX_PARTS + 1):
            request = each / parts
            possible = request.denominator == 1 or (request < 1 and (request * 1000).denominator == 1)
            if possible and request <= self._gpus_per_node:
                return copies * parts, request
        raise ValueError(f"the pods of {name} would be no whole GPUs, nor thousandths of one")

    def _expect(self, expect: Expect) -> Expect:
        allocated = expect.allocated and {
            name: self.gpus(gpus, f"what {name} has") for name, gpus in expect.allocated.items()
        }
        total = None if expect.total is None else self.gpus(expect.total, "the total")
        held = sum((allocated or {}).values()) if total is None else total
        shares = expect.gpus_in_use is not None or (expect.same_gpu and self._ratio < 1)
        return msgspec.structs.replace(
            expect,
            allocated=allocated,
            total=total,
            running=None,
            pending=self._all(expect.pending),
            evicted=self._all(expect.evicted),
            ended=self._all(expect.ended),
            # On a smaller site other jobs have fractions, too. There, `gpusInUse` proves that jobs share a
            # GPU.
            same_gpu=[] if self._ratio < 1 else expect.same_gpu,
            gpus_in_use=math.ceil(held) if shares else None,
            or_else=[self._expect(other) for other in expect.or_else],
        )

    def _all(self, printed: Sequence[str]) -> list[str]:
        return [name for word in printed for name in self._names.get(word, [word])]


def _decimal(gpus: Fraction) -> Decimal:
    """Return the number as a decimal with at most three places."""
    return (Decimal(int(gpus * 1000)) / 1000).normalize()
