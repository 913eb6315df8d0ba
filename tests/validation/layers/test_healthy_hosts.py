"""Healthy hosts cause no findings; if an element is missing or a line differs, they do not pass silently."""

import re

import pytest

from deployment.matrix import gpus_of, tables
from hostfacts.kernel_log import read_log
from tests.validation.layers.healthy_hosts import KINDS, Kind, kernel_log, nvidia_smi, outputs, seeded
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.judge.check_verdict import Circumstances, Judgement, Window
from validation.judge.events import ToolRan
from validation.judge.hosts.gpu_elements import SILENT
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.judge.verdict import Verdict
from validation.layers.checks import judge_layer

OF_GPUS = ("gpus", "equality", "state", "memory", "pcie", "fabric", "faults")
FIGURES = load_thresholds()


def judge(kind: Kind, texts: dict[str, str], layers: tuple[str, ...] = OF_GPUS) -> dict[str, Judgement]:
    """Return the judgement of each layer on a site of one host."""
    site = HostSite([DeclaredHost("n1", kind.model, kind.gpus)], driver=kind.driver, nonce="n")
    scope = HostScope(site, FIGURES.systems, FIGURES.hosts, figures_sha256())
    events = [ToolRan(0, "n1", tool, tool, 0, text, boot_id="b") for tool, text in texts.items()]
    window = Window(0, 0, len(events), 0, 10)
    return {name: judge_layer(name, scope, Circumstances(), events, window)[0] for name in layers}


def alarms(found: dict[str, Judgement]) -> dict[str, str]:
    return {
        name: judged.reason
        for name, judged in found.items()
        if judged.verdict != Verdict.PASS and "no subject" not in judged.reason
    }


def at_rest(texts: dict[str, str]) -> dict[str, str]:
    """Return the outputs with samples during a load added, which prove that idle links work."""
    busy = re.sub(r"(gpu_idle>)Active", r"\1Not Active", texts["nvidia-smi"])
    return {**texts, "samples": busy}


@pytest.mark.parametrize("kind", KINDS, ids=[kind.model for kind in KINDS])
def test_healthy_hosts_of_each_kind_raise_no_alarm(kind: Kind) -> None:
    assert alarms(judge(kind, at_rest(outputs(kind, seeded(kind.model))))) == {}


@pytest.mark.rare
@pytest.mark.parametrize("kind", KINDS, ids=[kind.model for kind in KINDS])
def test_a_hundred_healthy_hosts_of_each_kind_raise_no_alarm(kind: Kind) -> None:
    for seed in range(100):
        found = alarms(judge(kind, at_rest(outputs(kind, seeded(1000 + seed)))))
        assert found == {}, seed


def test_healthy_logs_have_no_fault_and_no_line_that_is_not_known() -> None:
    for seed in range(20):
        log = read_log(kernel_log(seeded(seed)))
        assert (log.faults, log.unknown, log.is_whole) == ([], [], True)


SMALL = [kind._replace(gpus=2) for kind in KINDS[1:]]
H100 = SMALL[1]


@pytest.mark.parametrize("kind", SMALL, ids=[kind.model for kind in SMALL])
def test_a_gpu_without_one_of_its_elements_does_not_pass(kind: Kind) -> None:
    chance = seeded(kind.model)
    text = nvidia_smi(kind, chance)
    first, last = text.index("<gpu id"), text.index("</gpu>")
    leaves = list(re.finditer(r"<(\w+)>([^<>]+)</\1>\s*", text[first:last]))
    said = [
        leaf
        for leaf in leaves
        if leaf[2].strip() not in {*SILENT, "None", ""} and not leaf[1].startswith("latest_")
    ]
    silent = []
    for leaf in chance.sample(said, 4):
        cut = text[: first + leaf.start()] + text[first + leaf.end() :]
        found = judge(kind, {"nvidia-smi": cut}, ("gpus", "equality", "state", "memory", "pcie"))
        if not alarms(found):
            silent.append(leaf[0].strip())
    assert silent == []


def test_without_an_element_that_a_verdict_needs_no_host_passes() -> None:
    kind = H100._replace(gpus=1)
    text = nvidia_smi(kind, seeded(7))
    for name in (
        "gpu_recovery_action", "uuid", "vbios_version", "product_name", "current_ecc", "dram_uncorrectable",
        "sram_uncorrectable_secded", "remapped_row_pending", "remapped_row_failure", "current_link_gen",
        "current_link_width", "current_power_limit", "clocks_event_reason_hw_slowdown", "state", "status",
    ):  # fmt: skip
        for cut in (
            re.sub(rf"<{name}>[^<]*</{name}>", "", text),
            re.sub(rf"<{name}>[^<]*<", f"<{name}>N/A<", text),
        ):
            assert alarms(judge(kind, {**outputs(kind, seeded(7)), "nvidia-smi": cut})) != {}, name


ELEMENTS = """
<gpu_health>Degraded</gpu_health> <lane_margin_low>1</lane_margin_low> <hang_count>4</hang_count> <ecc_dbe>2</ecc_dbe>
<last_xid>79</last_xid> <dropped_packets>5000</dropped_packets> <foo>0x1</foo> <foo>-1</foo> <foo>1e5</foo> <foo></foo>
<foo>No</foo> <foo>0</foo> <new_group><gpu_temp>40_C</gpu_temp></new_group> <display_mode>Failed</display_mode>
<power_state>Fault</power_state> <serial>ERR!</serial> <gpu_temp>120_C</gpu_temp> <gpu_temp>N/A</gpu_temp>
<replay_counter>1_234</replay_counter> <foo_state="Failed">N/A</foo> <!--_infoROM_is_corrupted_-->
<sram_correctable>999999</sram_correctable> <row_remapper_histogram_max>0_bank(s)</row_remapper_histogram_max>
<remapped_row_unc>1_000</remapped_row_unc> <pending_mig>Enabled</pending_mig> <max_link_gen>x</max_link_gen>
"""


@pytest.mark.parametrize("element", ELEMENTS.split())
def test_an_element_that_is_not_understood_is_named(element: str) -> None:
    kind = H100
    text = nvidia_smi(kind, seeded(3)).replace("</compute_mode>", f"</compute_mode>{words(element)}", 1)
    assert alarms(judge(kind, {"nvidia-smi": text}, ("state", "memory", "pcie"))) != {}


def words(element: str) -> str:
    """Return the element with the whitespace that its text has."""
    return re.sub(r"(?<=\d)_|(?<=<foo)_|(?<=--)_|(?<=infoROM)_|(?<=is)_|_(?=-->)", " ", element)


@pytest.mark.parametrize(
    ("old", "new", "layer", "says"),
    [
        ('id="00000000:1C:00.0"', 'id="00000000:1B:00.0"', "gpus", "two GPUs at 00000000:1B:00.0"),
        ("<max_link_gen>5", "<max_link_gen>4", "pcie", "max_link_gen is 4 of 5"),
        ("<max_device_link_gen>5", "<max_device_link_gen>4", "pcie", "max_device_link_gen is 4 of 5"),
        ("<device_current_link_gen>5", "<device_current_link_gen>1", "pcie", "generation 1 of 5"),
        ("<max_link_width>16x", "<max_link_width>8x", "pcie", "max_link_width is 8 of 16"),
        ("81559 MiB", "81559", "equality", "0 of 80000 MiB"),
        ("<status>Success", "<status>N/A", "fabric", "nothing says whether it is joined"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Disabled", "state", "gpu_recovery_action is Disabled"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>0 1", "memory", "which is no number"),
    ],
)  # fmt: skip
def test_values_that_look_healthy_and_are_not(old: str, new: str, layer: str, says: str) -> None:
    kind = H100
    texts = outputs(kind, seeded(5))
    texts["nvidia-smi"] = (
        texts["nvidia-smi"].replace("gpu_idle>Active", "gpu_idle>Not Active").replace(old, new, 1)
    )
    assert old in outputs(kind, seeded(5))["nvidia-smi"]
    assert says in alarms(judge(kind, texts, (layer,)))[layer]


LINES = r"""
FAIL pcieport 0000:15:01.0: pciehp: Slot(12): Link Down
FAIL pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000
FAIL vfio-pci 0000:1b:00.0: not ready 65535ms after FLR; giving up
FAIL mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400
FAIL CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)
FAIL NMI: PCI system error (SERR) for reason b1 on CPU 0
FAIL NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 3 timed out
FAIL DMAR: DRHD: handling fault status reg 3
FAIL AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0000 address=0x0]
FAIL XFS (sda1): Corruption detected. Unmount and run xfs_repair
FAIL nvme nvme0: I/O 12 QID 3 timeout, aborting
INCONCLUSIVE NVRM: loading NVIDIA UNIX Open Kernel Module: aborted with failure
INCONCLUSIVE NVRM: GPU at PCI:0000:1b:00: GPU-12345678 has fault
INCONCLUSIVE nvidia-nvswitch0: open (major=510) failed
INCONCLUSIVE nvidia-nvswitch3: quarantined
INCONCLUSIVE nvidia 0000:1b:00.0: enabling device (0000 -> 0002), refused
INCONCLUSIVE EDAC MC1: scrubber stopped
INCONCLUSIVE EDAC MC0: 32000 CE memory read error on CPU_SrcID#0
INCONCLUSIVE mce: CPU0 supports 32 MCE banks but bank 3 is broken
INCONCLUSIVE mlx5_core 0000:18:00.0: Fast teardown
INCONCLUSIVE mlx5_core 0000:18:00.0 ens1f0np0: Link down
INCONCLUSIVE mlx5_core 0000:18:00.0: Port module event: module 0, Cable disabled
INCONCLUSIVE nfs: server 10.0.0.1 refuses mount
INCONCLUSIVE RPC: xprt 1 reconnect storm
INCONCLUSIVE pci 0000:1b:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]
INCONCLUSIVE pci 0000:1b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link
INCONCLUSIVE Out of memory: Killed process 123 (python)
INCONCLUSIVE BERT: Error records from previous boot:
INCONCLUSIVE bnxt_en 0000:18:00.0: Error: firmware reset
"""


@pytest.mark.parametrize("case", LINES.strip().splitlines())
def test_a_line_of_a_fault_in_a_healthy_log_is_not_passed(case: str) -> None:
    verdict, _, line = case.partition(" ")
    log = read_log(kernel_log(seeded(1)) + f"[ 9000.000000] {line}\n")
    assert verdict == ("FAIL" if log.faults else "INCONCLUSIVE" if line in "\n".join(log.unknown) else "PASS")


def test_corrected_errors_are_named_while_they_are_few() -> None:
    log = kernel_log(seeded(2))
    link = "[ 9.0] pcieport 0000:15:01.0: PCIe Bus Error: severity=Correctable, type=Physical Layer\n"
    assert (read_log(log + link).unknown, len(read_log(log + link).notes) > 0) == ([], True)
    assert len(read_log(log + link * 81).unknown) == 81
    gone = "[ 9.0] mlx5_core 0000:a8:00.1: Port module event: module 1, Cable unplugged\n"
    assert read_log(log + gone).unknown == []
    assert len(read_log(log + gone.replace("unplugged", "plugged") + gone).unknown) == 1


def test_a_site_file_can_name_each_model_that_has_figures() -> None:
    models = {name for row in tables()["models"] for name in row["models"]}
    assert {system.model for system in FIGURES.systems} == models
    assert [gpus_of({"model": kind.model}) for kind in KINDS] == [kind.gpus for kind in KINDS]
