"""Doubles of clusters with used GPUs: the agents' own collectors and pages on a double of the driver."""

from orchestrator.agent.collector import Collector
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.agent.model import Holder
from orchestrator.agent.pod_resources import HeldDevice
from tests.agent.doubles import FakeDriver, uuid
from tests.validation.fake_target import WitnessedTarget
from validation.scenario.schema import Cluster
from validation.targets.recorder import Recorder
from validation.witness.agents import AgentPod
from validation.witness.reader import ReadFailed


class Uses(WitnessedTarget):
    """All GPUs are used at 97 %, as in the paper. Subclasses change that, or the agents' answers."""

    def __init__(self) -> None:
        super().__init__()
        self.drivers: dict[str, FakeDriver] = {}
        self.collectors: dict[str, Collector] = {}
        self.figures: dict[str, AgentFigures] = {}

    async def start(self, cluster: Cluster) -> bool:
        for number in range(cluster.nodes):
            node = f"n{number + 1}"
            driver = self.drivers[node] = FakeDriver(cluster.gpus_per_node)
            self.collectors[node] = Collector(driver, clock=self.second, wall_clock=self.second)
            self.figures[node] = AgentFigures()
        return await super().start(cluster)

    def recording(self, recorder: Recorder):  # type: ignore[no-untyped-def]
        for node in self.drivers:
            recorder.agents[node] = AgentPod(node, "muster-system-agent", f"agent-of-{node}")
        recorder.read_page = self.page
        return super().recording(recorder)

    def second(self) -> int:
        return self.recorder.now_ms() // 1000 if self.recorder is not None else 0

    def page(self, agent: AgentPod) -> str:
        """Return the agent's page, made anew each second."""
        node = agent.node
        for gpu in range(self.drivers[node].count):
            self.drivers[node].utilization[gpu] = self.percent(node, gpu)
        self.figures[node].samples += 1
        return render(self.collectors[node].read(self.held(node)), self.figures[node])

    def percent(self, node: str, gpu: int) -> int:
        """Return the utilization that the driver shows now."""
        return 97

    def held(self, node: str) -> list[HeldDevice]:
        """Return the GPUs that the kubelet gave to pods."""
        assert self.recorder is not None
        return [
            HeldDevice(Holder(pod.namespace, pod.pod, "c"), uuid(gpu))
            for pod in self.recorder.state.holding()
            if pod.node == node
            for gpu in pod.devices
        ]


class UsesLess(Uses):
    """All GPUs are used at 94 %."""

    def percent(self, node: str, gpu: int) -> int:
        return 94


class LeavesOneIdle(Uses):
    """One GPU is idle, and the others are busier: the mean is 95 %."""

    def percent(self, node: str, gpu: int) -> int:
        return 0 if (node, gpu) == ("n2", 5) else 100


class NeverGivesOne(Uses):
    """The kubelet gave one GPU to no pod, and the driver shows it as busy."""

    def held(self, node: str) -> list[HeldDevice]:
        return [device for device in super().held(node) if (node, device.device) != ("n1", uuid(3))]


class IsSilentForAWhile(Uses):
    """The page of one node cannot be read for a while."""

    silent = range(500, 512)

    def page(self, agent: AgentPod) -> str:
        if agent.node == "n2" and self.second() in self.silent:
            raise ReadFailed("503 Service Unavailable of 10.1.2.3")
        return super().page(agent)


class IsSilentForAMoment(IsSilentForAWhile):
    """The page cannot be read, but not longer than one sample may count."""

    silent = range(500, 507)


class RepeatsItsPage(Uses):
    """The agent of one node stops for a while, and its server repeats the old page."""

    last = ""

    def page(self, agent: AgentPod) -> str:
        if agent.node != "n2" or self.second() not in range(500, 512):
            page = super().page(agent)
            self.last = page if agent.node == "n2" else self.last
            return page
        return self.last


class LosesItsDriver(Uses):
    """The driver of one node stops answering in the middle of the window."""

    def page(self, agent: AgentPod) -> str:
        self.drivers["n2"].is_missing = self.second() > 600
        return super().page(agent)


class HasOneAgentOfTwo(Uses):
    """One node has no agent."""

    def recording(self, recorder: Recorder):  # type: ignore[no-untyped-def]
        body = super().recording(recorder)
        del recorder.agents["n2"]
        return body


class SaysNonsense(Uses):
    """Another program answers at the port of one agent."""

    def page(self, agent: AgentPod) -> str:
        return "<html>404</html>" if agent.node == "n2" else super().page(agent)


class Changes(Uses):
    """Utilization goes up and down, differently on each GPU."""

    def percent(self, node: str, gpu: int) -> int:
        return (self.second() * (gpu + 1) * 7) % 101


class EndsAJob(Uses):
    """A pod ends in the middle of the window: its GPUs are still used, but no pod holds them."""

    def held(self, node: str) -> list[HeldDevice]:
        ended = self.second() > 600
        return [d for d in super().held(node) if not (ended and d.holder.pod.startswith("netapp-heavy-b"))]
