"""Utilization from the agent's own pages: a duty that is put into the driver's double is what the judge finds."""

import pytest

from orchestrator.agent.collector import Collector
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.agent.model import Holder
from orchestrator.agent.pod_resources import HeldDevice
from tests.agent.doubles import FakeDriver, uuid
from validation.errors import TargetError
from validation.judge.utilization import Standard, judge_utilization, measure_utilization
from validation.judge.verdict import Verdict
from validation.targets.agent_pages import AgentPages

SECONDS = 40
STANDARD = Standard(window_ms=1000 * (SECONDS - 1))


class Agent:
    """The agent's collector and its page, one round a second."""

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


def watched(agent: Agent, seconds: int = SECONDS) -> AgentPages:
    pages = AgentPages("dgx1-1")
    for _ in range(seconds):
        pages.read(agent.page(), agent.now * 1000)
    return pages


def verdict(pages: AgentPages, gpus_total: int, seconds: int = SECONDS) -> tuple[Verdict, str, float | None]:
    use = measure_utilization(
        pages.samples, pages.held(), from_ms=1000, until_ms=seconds * 1000, gpus_total=gpus_total
    )
    judgement = judge_utilization(use, STANDARD)
    return judgement.verdict, judgement.reason, use.percent


@pytest.mark.parametrize("duty", [0, 1, 50, 94, 95, 100])
def test_a_constant_duty_is_found_to_the_point(duty: int) -> None:
    assert verdict(watched(Agent([[duty]])), 1)[2] == duty


def test_a_duty_that_changes_is_found_within_a_point() -> None:
    found = verdict(watched(Agent([[100] * 5 + [0] * 5, [30, 60]])), 2)[2]
    assert found == pytest.approx((50 + 45) / 2, abs=1.5)


def test_sixteen_busy_gpus_pass_and_one_that_is_held_and_idle_fails() -> None:
    busy = [[97]] * 16
    assert verdict(watched(Agent(busy)), 16)[0] == Verdict.PASS
    idle = verdict(watched(Agent([*busy[:15], [0]])), 16)
    assert idle[:2] == (Verdict.FAIL, "held, and idle for 39.0 s or more: dgx1-1/15")


def test_who_holds_a_gpu_is_the_kubelets_word() -> None:
    agent = Agent([[97], [97]])
    pages = watched(agent)
    assert pages.held()["dgx1-1", 0] == [(1000, 40_000, "muster-team-d/heavy-0")]
    del agent.held[0]
    for _ in range(5):
        pages.read(agent.page(), agent.now * 1000)
    assert pages.held()["dgx1-1", 0][0][1] == 40_000
    assert pages.held()["dgx1-1", 1][0][1] == 45_000


def test_an_agent_that_stands_still_leaves_a_gap() -> None:
    agent = Agent([[97]])
    pages = watched(agent, 20)
    last = render(agent.collector.read(agent.held), agent.figures)
    for number in range(21, 33):
        assert not pages.read(last, number * 1000)
    agent.now = 33
    for _ in range(8):
        pages.read(agent.page(), agent.now * 1000)
    assert verdict(pages, 1, 41)[:2] == (Verdict.INCONCLUSIVE, "nothing is known of dgx1-1/0 for 14.0 s")


def test_an_agent_that_was_restarted_goes_on() -> None:
    agent = Agent([[97]])
    pages = watched(agent, 20)
    agent.figures.samples = 0
    for _ in range(20):
        pages.read(agent.page(), agent.now * 1000)
    assert verdict(pages, 1)[0] == Verdict.PASS


@pytest.mark.parametrize("value", ["2.5", "-1", "nan", "inf", "much"])
def test_what_makes_no_sense_is_refused(value: str) -> None:
    text = f'muster_agent_samples_total 1\nmuster_gpu_utilization_ratio{{gpu="0",uuid="u"}} {value}\n'
    with pytest.raises(TargetError, match="GPU 0 is used at"):
        AgentPages("n").read(text, 0)
    with pytest.raises(TargetError, match="does not answer with its metrics"):
        AgentPages("n").read("<html>404</html>", 0)
