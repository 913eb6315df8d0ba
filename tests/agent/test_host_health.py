"""A fault begins after bad readings and ends after good ones; an unread fact is never good."""

import pytest

from orchestrator.agent.host import HostTexts, Text, unread
from orchestrator.agent.host_health import (
    CLOCK,
    GOOD_READINGS,
    HOST_FAULT,
    KERNEL_LOG,
    LASTING_FAULT,
    LINKS,
    MEMORY,
    NO_FAULT,
    NOT_READ,
    PORTS,
    HostHealth,
    HostReading,
)

BOOT = "<5>[    0.000000] Linux version 6.8.0-51-generic\n<6>[    1.200000] NFS: Registering the id_resolver key type\n"
ERROR = "<0>[ 100.000000] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0\n"
SILENT = "<3>[ {}.000000] nfs: server 10.0.0.5 not responding, still trying\n"
PORT = "/sys/class/infiniband/mlx5_0/ports/1/counters"


def texts(
    log: str = BOOT, *, downed: int | str = 0, errors: int = 0, clock: str = "tsc\n", links: str | None = None
) -> HostTexts:
    counters = f"{PORT}/link_downed:{downed}\n{PORT}/symbol_error:{errors}\n"
    return HostTexts(Text(log), Text(counters if links is None else links), Text(clock))


def after(*readings: HostTexts, health: HostHealth | None = None) -> HostReading:
    health = health or HostHealth()
    states = [health.next(reading) for reading in readings]
    return states[-1]


def test_a_good_host_has_no_fault_and_its_counters_are_kept() -> None:
    reading = after(texts(), texts(errors=7))
    assert (reading.status, reading.reason, reading.faults) == ("False", NO_FAULT, {})
    assert reading.counters == {"mlx5_0/1 link_downed": 0, "mlx5_0/1 symbol_error": 7}
    assert reading.message == "read: kernel-log, links, clock-source"


def test_an_error_of_memory_is_a_fault_at_once_also_after_the_log_has_lost_it() -> None:
    health = HostHealth()
    reading = after(texts(BOOT + ERROR), health=health)
    assert (reading.status, reading.reason) == ("True", LASTING_FAULT)
    assert reading.faults[KERNEL_LOG] == (
        "memory error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (1 times) -> replace the memory module",
    )
    later = after(*[texts("<6>[ 900.000000] eth0: up\n")] * (GOOD_READINGS + 2), health=health)
    assert later.status == "True"


def test_errors_of_gpus_in_the_log_are_left_to_the_health_of_gpus() -> None:
    xid = "<3>[ 100.000000] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
    assert (
        after(texts(BOOT), texts(BOOT + xid), texts(BOOT + xid + xid.replace("100", "900"))).status == "False"
    )


def test_an_error_that_can_end_counts_after_two_readings_and_ends_after_an_hour() -> None:
    health = HostHealth()
    first = BOOT + SILENT.format(50)
    assert after(texts(first), health=health).status == "False", "how old the line is, is not known"
    second = first + SILENT.format(400)
    assert after(texts(second), health=health).status == "False", "once may be an accident"
    third = second + SILENT.format(700)
    reading = after(texts(third), health=health)
    assert (reading.status, reading.reason) == ("True", HOST_FAULT)
    assert reading.faults[KERNEL_LOG] == ("NFS error on 10.0.0.5 (1 times) -> check network and server",)
    assert after(*[texts(third)] * (GOOD_READINGS - 1), health=health).status == "True"
    assert after(texts(third), health=health).status == "False"


def test_a_line_that_flaps_does_not_flap_the_condition() -> None:
    health = HostHealth()
    statuses = [health.next(texts(downed=down)).status for down in (0, 1, 1, 2, 2, 3, 3)]
    assert set(statuses) == {"False"}, "every second reading is good"
    statuses = [health.next(texts(downed=down)).status for down in (4, 5, 5, 6, 6, 7)]
    assert statuses == ["False", *["True"] * 5]


def test_only_counters_of_failed_links_are_faults() -> None:
    assert after(*(texts(errors=count) for count in (0, 5, 9, 12))).status == "False"
    reading = after(*(texts(downed=count) for count in (0, 1, 3)))
    assert reading.faults == {LINKS: ("mlx5_0/1 link_downed: +2 -> reseat or replace the cable",)}


def test_a_missing_link_or_one_that_does_not_count_is_not_read() -> None:
    other = "/sys/class/net/eth0/device/net/eth0/carrier_down_count:0\n"
    missing = after(texts(), texts(links=other))
    assert (missing.status, missing.reason) == ("Unknown", NOT_READ)
    assert missing.message == "not read: links: mlx5_0/1 is missing"
    silent = after(texts(downed="N/A (no PMA)"))
    assert silent.unread == {LINKS: "mlx5_0/1 link_downed: no figure"}


@pytest.mark.parametrize(
    ("reading", "fact", "words"),
    [
        (texts(""), KERNEL_LOG, "no times"),
        (texts("hello\n"), KERNEL_LOG, "no times"),
        (texts(links=""), LINKS, "no link with counters"),
        (texts(links="Permission denied"), LINKS, "no counter of a link"),
        (texts(clock="a b"), CLOCK, "not read"),
        (texts(clock="kvm-clock"), CLOCK, "does not know this clock source: kvm-clock"),
        (
            HostTexts(Text(problem="Operation not permitted"), texts().links, texts().clock_source),
            KERNEL_LOG,
            "not permitted",
        ),
    ],
)
def test_a_fact_that_is_not_read_is_unknown_and_never_good(reading: HostTexts, fact: str, words: str) -> None:
    state = after(reading, reading)
    assert (state.status, state.reason) == ("Unknown", NOT_READ)
    assert list(state.unread) == [fact]
    assert words in state.unread[fact]
    assert words in state.message


def test_readings_without_an_answer_end_no_fault() -> None:
    health = HostHealth()
    after(*(texts(downed=count) for count in (0, 1, 2)), health=health)
    reading = after(*[unread("no answer")] * (2 * GOOD_READINGS), health=health)
    assert reading.status == "True"
    assert "not read: clock-source: no answer" in reading.message


def test_a_slow_clock_is_a_fault() -> None:
    reading = after(texts(clock="hpet"), texts(clock="hpet"))
    assert reading.faults == {
        CLOCK: ("clock source is hpet, neither tsc nor arch_sys_counter -> correct the setting",)
    }


def test_a_fault_that_the_agent_before_it_found_ends_as_its_own_does() -> None:
    health = HostHealth((HOST_FAULT, "mlx5_0/1 link_downed: +2 -> reseat; not read: clock-source: x"))
    reading = after(texts(), health=health)
    assert (reading.status, reading.message) == ("True", "mlx5_0/1 link_downed: +2 -> reseat")
    assert after(*[texts()] * (GOOD_READINGS - 1), health=health).status == "False"
    lasting = HostHealth((LASTING_FAULT, "memory error"))
    assert after(*[texts()] * (3 * GOOD_READINGS), health=lasting).reason == LASTING_FAULT


STATE = "/sys/class/infiniband/mlx5_0/ports/1/state"
EDAC = "/sys/devices/system/edac/mc/mc0"


def of_parts(*, ports: str = "", memory: str = "") -> HostTexts:
    """Return the texts of a good host with these states of ports and counters of memory."""
    good = texts()
    return HostTexts(good.kernel_log, good.links, good.clock_source, Text(ports), Text(memory))


def test_a_port_that_is_down_for_two_readings_is_a_fault_until_it_is_up_again() -> None:
    up, down = of_parts(ports=f"{STATE}:4: ACTIVE\n"), of_parts(ports=f"{STATE}:1: DOWN\n")
    assert after(down, down).status == "False", "the port is not in use"
    assert after(up, down).status == "False"
    health = HostHealth()
    reading = after(up, down, down, down, health=health)
    assert reading.faults == {
        PORTS: ("mlx5_0/1 state is 1: DOWN, it was 4: ACTIVE -> reseat or replace the cable",)
    }
    assert after(*[up] * GOOD_READINGS, health=health).status == "False"


@pytest.mark.parametrize(
    ("counts", "finding"),
    [
        ([(0, 0), (0, 9), (0, 18), (0, 27)], ""),
        ([(0, 500), (0, 500), (0, 500)], ""),
        ([(0, 0), (0, 10), (0, 20)], "mc0 ce_count: +10 -> replace the memory module"),
        ([(0, 0), (1, 0), (1, 0)], "mc0 ue_count is 1 -> replace the memory module"),
    ],
)
def test_errors_that_edac_counts(counts: list[tuple[int, int]], finding: str) -> None:
    readings = [
        of_parts(memory=f"{EDAC}/ue_count:{uncorrected}\n{EDAC}/ce_count:{corrected}\n")
        for uncorrected, corrected in counts
    ]
    assert after(*readings).faults == ({MEMORY: (finding,)} if finding else {})


@pytest.mark.parametrize(
    ("reading", "fact"),
    [
        (of_parts(ports=f"{STATE}:not read (Invalid argument)\n"), PORTS),
        (of_parts(ports=f"{STATE}:ACTIVE\n"), PORTS),
        (of_parts(memory=f"{EDAC}/ue_count:many\n"), MEMORY),
    ],
)
def test_a_state_or_count_that_is_not_understood_is_not_read(reading: HostTexts, fact: str) -> None:
    state = after(reading)
    assert (state.status, list(state.unread)) == ("Unknown", [fact])


def test_unknown_lines_of_hardware_are_counted() -> None:
    new = "<3>[  200.000000] mlx5_core 0000:05:00.0: a new word\n"
    health = HostHealth()
    assert after(texts(), health=health).unknown_lines == 0
    assert after(texts(BOOT + new), texts(BOOT + new), health=health).unknown_lines == 1


def test_a_log_that_is_full_of_errors_keeps_the_message_short() -> None:
    lines = "".join(
        f"<0>[ {100 + number}.000000] EDAC MC{number % 40}: 1 UE memory read error\n"
        f"<0>[ {100 + number}.000000] pcieport 0000:{number % 256:02x}:00.0: "
        "PCIe Bus Error: severity=Uncorrected (Fatal)\n"
        for number in range(3000)
    )
    reading = after(texts(BOOT + lines))
    assert len(reading.message) < 2000
    assert "more" in reading.message
