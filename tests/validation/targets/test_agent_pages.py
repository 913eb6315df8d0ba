"""Utilization from the agent's own pages: the judge finds the duty that the double of the driver has."""

import pytest

from orchestrator.agent.collector import Collector
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.agent.model import Holder
from orchestrator.agent.pod_resources import HeldDevice
from tests.agent.doubles import FakeDriver, uuid
from validation.errors import TargetError
from validation.judge.events import SamplesSeen
from validation.judge.use.utilization import (
    Standard,
    held_by_kubelets,
    judge_utilization,
    measure_utilization,
    samples_of,
)
from validation.judge.verdict import Verdict
from validation.targets.agent_pages import AgentPages

SECONDS = 40
STANDARD = Standard(window_ms=1000 * (SECONDS - 1))


class Agent:
    """An agent's collector and its page, with one round per second."""

    def __init__(self, duty: list[list[int]]) -> None:
        self.driver = FakeDriver(len(duty))
        self.duty = duty
        self.now = 0
        self.figures = AgentFigures()
        self.held = [
            HeldDevice(Holder("muster-team-d", f"heavy-{gpu}", "c"), uuid(gpu)) for gpu in range(len(duty))
        ]
        self.collector = Collector(self.driver, clock=lambda: self.now, wall_clock=lambda: self.now)

    def page(self) -> str:
        for gpu, percents in enumerate(self.duty):
            self.driver.utilization[gpu] = percents[self.now % len(percents)]
        self.now += 1
        self.figures.samples += 1
        return render(self.collector.read(self.held), self.figures)


class Watched:
    """The pages of an agent, and the events made from them."""

    def __init__(self, agent: Agent, seconds: int = SECONDS) -> None:
        self.agent = agent
        self.pages = AgentPages("dgx1-1")
        self.events: list[SamplesSeen] = []
        self.read(seconds)

    def read(self, seconds: int) -> None:
        for _ in range(seconds):
            event = self.pages.read(self.agent.page(), self.agent.now * 1000)
            assert event is not None
            self.events.append(event)

    def verdict(self, gpus_total: int, seconds: int = SECONDS) -> tuple[Verdict, str, int | None]:
        use = measure_utilization(
            samples_of(self.events),
            held_by_kubelets(self.events, 1000, seconds * 1000),
            from_ms=1000,
            until_ms=seconds * 1000,
            gpus_total=gpus_total,
        )
        judgement = judge_utilization(use, STANDARD)
        return judgement.verdict, judgement.reason, use.centi_percent


@pytest.mark.parametrize("duty", [0, 1, 50, 94, 95, 100])
def test_a_constant_duty_is_found_to_the_point(duty: int) -> None:
    assert Watched(Agent([[duty]])).verdict(1)[2] == duty * 100


def test_a_duty_that_changes_is_found_within_a_point() -> None:
    centi_percent = Watched(Agent([[100] * 5 + [0] * 5, [30, 60]])).verdict(2)[2]
    assert centi_percent == pytest.approx((5000 + 4500) / 2, abs=150)


def test_sixteen_busy_gpus_pass_and_one_that_is_held_and_idle_fails() -> None:
    busy = [[97]] * 16
    assert Watched(Agent(busy)).verdict(16)[0] == Verdict.PASS
    idle = Watched(Agent([*busy[:15], [0]])).verdict(16)
    assert idle[:2] == (Verdict.FAIL, "held, and idle for 39.0 s or more: dgx1-1/15")


def test_the_kubelet_reports_the_holders_of_a_gpu() -> None:
    agent = Agent([[97], [97]])
    watched = Watched(agent)
    del agent.held[0]
    watched.read(5)
    held = held_by_kubelets(watched.events, 1000, 45_000)
    assert held["dgx1-1", 0] == [(1000, 40_000, "muster-team-d/heavy-0")]
    assert held["dgx1-1", 1] == [(1000, 45_000, "muster-team-d/heavy-1")]


def test_an_agent_that_stands_still_leaves_a_gap() -> None:
    agent = Agent([[97]])
    watched = Watched(agent, 20)
    last = render(agent.collector.read(agent.held), agent.figures)
    assert all(watched.pages.read(last, number * 1000) is None for number in range(21, 33))
    agent.now = 33
    watched.read(8)
    assert watched.verdict(1, 41)[:2] == (Verdict.INCONCLUSIVE, "nothing is known of dgx1-1/0 for 14.0 s")


def test_a_restarted_agent_continues() -> None:
    agent = Agent([[97]])
    watched = Watched(agent, 20)
    agent.figures.samples = 0
    watched.read(20)
    assert watched.verdict(1)[0] == Verdict.PASS


def test_a_driver_that_does_not_answer_leaves_a_gap_with_its_reason() -> None:
    agent = Agent([[97]])
    watched = Watched(agent, 2)
    agent.driver.is_missing = True
    assert watched.pages.read(agent.page(), 3000) == SamplesSeen(
        3000, "dgx1-1", problem="its agent is not answered by nvml"
    )
    assert watched.pages.read(agent.page(), 4000) is None, "it is said once"


@pytest.mark.parametrize("value", ["2.5", "-1", "nan", "inf", "much"])
def test_a_senseless_page_is_refused(value: str) -> None:
    text = f'muster_agent_samples_total 1\nmuster_gpu_utilization_ratio{{gpu="0",uuid="u"}} {value}\n'
    with pytest.raises(TargetError, match="GPU 0 is used at"):
        AgentPages("n").read(text, 0)
    with pytest.raises(TargetError, match="does not answer with its metrics"):
        AgentPages("n").read("<html>404</html>", 0)
    with pytest.raises(TargetError, match="a GPU without an index"):
        AgentPages("n").read('muster_gpu_allocated{uuid="u",namespace="a",pod="b"} 1\n', 0)
