"""Lines of the kernel's log as the Linux sources and public reports have them: faults, links, other languages."""

import pytest

from hostfacts.kernel_log import read_log
from validation.judge.hosts.host_log import judge_logs
from validation.judge.verdict import Verdict, gravest

BOOT = "[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075)\n"
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27 18:22:11 UTC 2025"


def judged(lines: str) -> tuple[Verdict, str]:
    judgements = judge_logs({"n2": read_log(BOOT + lines)})
    return gravest([one.verdict for one in judgements]), "; ".join(one.reason for one in judgements)


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        # arch/x86/kernel/cpu/mce/core.c, mm/memory-failure.c
        ("MCE: Killing a:13 due to hardware memory corruption fault at 46", "memory error (1 times) -> replace"),
        ("Memory error not recovered", "memory error (1 times) -> replace"),
        # arch/arm64/kernel/traps.c, arch/arm64/mm/fault.c
        ("SError Interrupt on CPU12, code 0x00000000be000411 -- SError", "machine check (1 times) -> reseat"),
        ("Internal error: synchronous external abort: 0000000096000410 [#1] SMP", "machine check (1 times) -> reseat"),
        # https://github.com/linux-blktests/blktests/issues/255, drivers/md/raid1.c
        ("md/raid1:md127: Disk failure on nvme1n1, disabling device.", "storage error on md127 (1 times) -> reseat"),
        ("md/raid1:md0: active with 1 out of 2 mirrors", "storage error on md0 (1 times) -> reseat"),
        # https://github.com/raspberrypi/linux/issues/703
        ("EXT4-fs warning (device dm-1): ext4_end_bio:316: I/O error -5 writing", "storage error on dm-1 (1 times)"),
        # fs/jbd2/commit.c, fs/jbd2/journal.c, fs/xfs/xfs_fsops.c, fs/btrfs/volumes.c, drivers/scsi/constants.c
        ("JBD2: Detected IO errors while flushing file data on md0-8", "storage error on md0 (1 times)"),
        ("Aborting journal on device sda2-8.", "storage error on sda2-8 (1 times)"),
        ("XFS (dm-0): Unmount and run xfs_repair", "storage error on dm-0 (1 times)"),
        ("BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0", "storage error on sda1"),
        ("sd 0:0:0:0: [sda] tag#12 Sense Key : Medium Error [current]", "storage error on sda (1 times)"),
        ("print_req_error: I/O error, dev sdc, sector 1098288304 flags 0", "storage error on sdc (1 times)"),
        # arch/x86/kernel/traps.c, arch/arm64/mm/fault.c, kernel/rcu/tree_exp.h
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "kernel error (1"),
        ("Unable to handle kernel paging request at virtual address ffff8000", "kernel error (1 times) -> reboot"),
        ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 12-... }", "kernel error (1 times)"),
    ],
)  # fmt: skip
def test_faults_are_named_with_part_and_repair(line: str, finding: str) -> None:
    verdict, reason = judged(f"[ 9.1] {line}\n")
    assert (verdict, reason.startswith(f"n2: {finding}")) == (Verdict.FAIL, True), reason


@pytest.mark.parametrize(
    "line",
    [
        "ata1.00: exception Emask 0x0 SAct 0x40000000 SErr 0x0 action 0x0",
        "device-mapper: multipath: 253:3: Failing path 8:48.",
        "megaraid_sas 0000:03:00.0: FW in FAULT state Fault code:0x10000 subcode:0x0",
        "ixgbe 0000:03:00.0 enp3s0: Detected Tx Unit Hang",
        "i40e 0000:3d:00.0: TX driver issue detected, PF reset issued",
        "bnxt_en 0000:18:00.0 ens1: Firmware unresponsive, status: 0x8000",
        "nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err -22)",
        'irq 16: nobody cared (try booting with the "irqpoll" option)',
        "clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable because the skew is too",
        "pci 0000:ca:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space",
        "python3: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
        "WARNING: CPU: 3 PID: 1234 at drivers/iommu/dma-iommu.c:123 iommu_dma_unmap+0x1/0x2",
    ],
)
def test_lines_that_may_be_faults_are_shown(line: str) -> None:
    verdict, reason = judged(f"[ 9.1] {line}\n")
    assert (verdict, line[:60] in reason) == (Verdict.INCONCLUSIVE, True), reason


DOWN, UP = (
    "ice 0000:31:00.0 ens1f0: NIC Link is Down",
    "ice 0000:31:00.0 ens1f0: NIC Link is Up 100 Gbps Full Duplex",
)
SLAVE = "bond0: (slave ens1f0): link status definitely"
MLX = "mlx5_core 0000:18:00.0 ens6np0: Link"


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        # https://github.com/ntop/PF_RING/issues/293
        ([UP, DOWN], Verdict.INCONCLUSIVE),
        ([UP, DOWN, UP], Verdict.PASS),
        ([DOWN], Verdict.PASS),  # an adapter without a cable
        ([f"{DOWN} ", UP.replace("ens1f0", "ens1f1")], Verdict.PASS),
        # drivers/net/bonding/bond_main.c
        ([f"{SLAVE} down, disabling slave"], Verdict.INCONCLUSIVE),
        ([f"{SLAVE} down, disabling slave", f"{SLAVE} up, 100000 Mbps full duplex"], Verdict.PASS),
        (["bond0: link status definitely down for interface eth0, disabling it"], Verdict.INCONCLUSIVE),
        # links that flap
        ([f"{MLX} up", f"{MLX} down"] * 10 + [f"{MLX} up"], Verdict.INCONCLUSIVE),
        ([f"{MLX} up", f"{MLX} down"] * 9 + [f"{MLX} up"], Verdict.PASS),
    ],
)
def test_a_link_that_is_down_or_flaps_is_shown(lines: list[str], verdict: Verdict) -> None:
    judgement, reason = judged("".join(f"[ 9.1] {line}\n" for line in lines))
    assert judgement == verdict, reason


@pytest.mark.parametrize(
    "stamp",
    [
        "[   50.689425][ T7914] ",
        "[ven. nov. 28 10:00:01 2026] ",
        "Mär 28 10:00:01 knoten7 kernel: ",
        "[   50.6][   C12] ",
    ],
)
def test_the_time_is_left_out_in_any_language(stamp: str) -> None:
    assert judged(f"{stamp}{LOADING}\n")[0] == Verdict.PASS
    verdict, reason = judged(f"{stamp}general protection fault: 0000 [#1] SMP\n")
    assert verdict == Verdict.FAIL, reason
