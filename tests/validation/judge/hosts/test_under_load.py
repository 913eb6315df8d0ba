"""Readings of nvidia-smi under load: words that are judged at rest, GPUs that are lost, the repair of an action."""

import pytest

from tests.validation.host_doubles import RECORDED
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import ToolRan
from validation.judge.hosts.gpu_state import read_elements
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers.checks import judge_layer

FIGURES = load_thresholds()
ONE = (RECORDED / "nvidia-smi-v13-h100.xml").read_text()
"""A healthy reading of one GPU."""


def judged(*readings: str) -> tuple[str, str]:
    """Return verdict and reason of the check `load` for a host with one GPU, which is healthy at rest."""
    site = HostSite(hosts=[DeclaredHost("n1", "dgx-h100", 1)])
    scope = HostScope(site, FIGURES.systems, FIGURES.hosts, figures_sha256())
    text = "".join(readings)
    ran = [
        ToolRan(t_ms=0, host="n1", tool=tool, command="", exit_code=0, output=output, boot_id="b", ran_ms=1)
        for tool, output in (("nvidia-smi", ONE), ("samples", text))
    ]
    judgement, _ = judge_layer("load", scope, Circumstances(), ran, Window(0, 0, len(ran), 0, 10))
    return str(judgement.verdict), judgement.reason


def changed(before: str, after: str) -> str:
    assert ONE.count(before) >= 1
    return ONE.replace(before, after, 1)


def test_healthy_readings_pass_of_which_the_last_may_be_cut() -> None:
    assert judged(ONE, ONE) == ("PASS", "")
    assert judged(ONE, ONE[:900]) == ("PASS", "")


@pytest.mark.parametrize(
    ("reading", "verdict", "finding"),
    [
        (changed("<gpu_recovery_action>None", "<gpu_recovery_action>GPU Reset"), "FAIL", "is GPU Reset -> reset"),
        (changed("<remapped_row_pending>No", "<remapped_row_pending>Yes"), "FAIL", "row_pending is Yes -> reset"),
        (changed("<state>Completed", "<state>Not Started"), "FAIL", "state is Not Started -> restart the fabric"),
        (changed("<vbios_version>", "<vbios_version>[GPU requires reset]"), "FAIL", "-> reset the GPU"),
        (changed("Not Active", "Held"), "INCONCLUSIVE", "is Held"),
        (changed("</gpu>", "<hbm_state>Hot</hbm_state></gpu>"), "INCONCLUSIVE", "hbm_state is 'Hot', which"),
        (ONE[: ONE.index("<gpu id")] + "</nvidia_smi_log>", "FAIL", "n1 showed 0 of 1 GPUs under load -> reboot"),
        # NVIDIA/gpu-operator and others: the message of nvidia-smi for a GPU that fell off the bus under load
        (
            "Unable to determine the device handle for GPU0000:81:00.0: Unknown Error\n",
            "INCONCLUSIVE",
            "Unable to determine the device handle",
        ),
    ],
)  # fmt: skip
def test_a_gpu_that_falls_ill_under_load_is_named(reading: str, verdict: str, finding: str) -> None:
    found, reason = judged(ONE, reading)
    assert (found, finding in reason) == (verdict, True), reason


@pytest.mark.parametrize(
    ("action", "repair"),
    [
        ("GPU Reset", "reset the GPU"),
        ("Node Reboot", "reboot the host"),
        ("Drain P2P", "reset the GPU"),
        ("Call Us", "ask support"),
    ],
)
def test_the_recovery_action_names_its_repair(action: str, repair: str) -> None:
    (said,) = read_elements("n1", [("gpu_recovery_action", action)])
    assert said.finding == f"n1: gpu_recovery_action is {action} -> {repair}"
