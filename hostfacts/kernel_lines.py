"""The patterns of lines of the kernel's log: faults, usual lines, and lines that must match one of these."""

import functools
import re
from typing import Final

BUS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_ADAPTER_WORDS: Final = "|".join(
    (
        r"health compromised|[Ff]atal (?:reported )?error|assert_var|device is in error|internal error|syndrome",
        r"firmware .*(?:failed|hang|dead)|timed? ?out|timeout|[Ii]nsufficient power|TX queue stall",
    )
)
_NVME: Final = (
    r"nvme\S*(?: \S+)*: .*(?:timeout, (?:aborting|reset controller|disable controller)|controller is down)"
)
_SILENT_SERVER: Final = (
    "[Uu]nhandled error|timed out|not responding|[Ll]ock reclaim failed"
    "|lease failed|lease expired|fileid changed"
)
_READ_ONLY: Final = (
    r"(?:EXT4-fs|XFS) \(.*(?:[Rr]emounting filesystem read-only"
    r"|[Cc]orruption|I/O error|[Ss]hut(?:ting)? down|Unmount and run xfs_repair)"
)
_JOURNAL: Final = r"JBD2: Detected IO errors|Aborting journal on device|BTRFS (?:error|critical)"
_BAD_FILES: Final = rf"EXT4-fs error|{_READ_ONLY}|{_JOURNAL}"
_DEGRADED: Final = (
    r"Sense Key : (?:Medium|Hardware) Error|md/raid\S*: Disk failure"
    r"|md/raid\S* .*\bactive with (?P<disks>\d+) out of (?!(?P=disks)\b)\d+"
)
_HOT: Final = "(?:Core|Package) temperature (?:is )?above threshold"
_CRASHED: Final = r"Kernel panic|\bBUG: |\bOops: |^general protection fault|Unable to handle kernel "
_HUNG: Final = (
    r"task .* blocked for more than \d+ seconds"
    r"|rcu.*(?:detected (?:expedited )?stall|self-detected stall)"
)
_LOST_MEMORY: Final = (
    r"Memory failure: |Uncorrect\w+ memory error|due to hardware memory corruption|Memory error not recovered"
)
FAULTS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("Xid", r"\bXid \((?:PCI:)?(?P<bus_id>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)(?:,\s*(?P<text>.*))?$"),
        # Errors of an NVSwitch. The guide of the fabric manager says that errors that are not fatal may be ignored.
        ("SXid", r"SXid \((?:PCI:)?(?P<bus_id>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+), (?P<text>Fatal\b.*)$"),
        ("off the bus", r"(?P<text>fallen off the bus|GPU is lost)"),
        ("off the bus", r"^nvidia .*(?P<text>change power state from D3cold|config space inaccessible)"),
        ("RmInitAdapter failed", r"(?P<text>RmInitAdapter failed.*)$"),
        ("no GPU came up", r"NVRM: .*(?P<text>probe routine failed|No NVIDIA (?:GPU|devices))"),
        ("no GPU came up", r"nvidia: (?P<text>probe of .* failed)"),
        ("memory error", rf"(?P<text>EDAC .*\bUE\b|{_LOST_MEMORY}).*$"),
        ("PCIe error", r"(?P<text>(?:AER|PCIe Bus Error|DPC): .*(?:[Uu]ncorrect\w*|[Ff]atal|containment event).*)$"),
        (
            "PCIe error",
            r"pciehp: (?P<text>Slot\(.*\): (?:Link Down|Card not present|Surprise|Power fault|Failed|Cannot).*)$",
        ),
        ("PCIe error", r"(?P<text>broken device, retraining.*|retraining failed.*|after \w+; giving up)$"),
        (
            "machine check",
            r"(?P<text>\[Hardware Error\]: .*(?:[Uu]ncorrect|\bPCC\b).*|severity: (?:fatal|recoverable).*)$",
        ),
        ("machine check", r"mce: .*(?P<text>[Uu]ncorrect\w*.*|[Ff]atal.*)$"),
        # If bit 61 of a bank's status is set, the hardware did not correct the error.
        ("machine check", r"(?P<text>Bank \d+: [2367abefABEF][0-9a-fA-F]{15}\b.*)$"),
        ("machine check", r"(?P<text>SError Interrupt|Internal error: synchronous external abort).*$"),
        ("machine check", r"(?P<text>NMI: (?:PCI system|IOCK) error.*|NMI received for unknown reason.*)$"),
        ("host too hot", rf"(?P<text>(?:[Cc]ritical temperature reached|{_HOT}).*)$"),
        ("adapter too hot", r"mlx[45]_\w+\b.*(?P<text>[Hh]igh [Tt]emperature.*)$"),
        ("slow PCIe link", r"mlx[45]_\w+\b.*(?P<text>limited by .* PCIe.*)$"),
        ("adapter error", r"mlx[45]_\w+\b.*(?P<text>event\[error\].*)$"),
        ("adapter error", rf"mlx[45]_\w+\b.*(?P<text>(?:{_ADAPTER_WORDS}).*)$"),
        ("adapter error", r"NETDEV WATCHDOG: (?P<text>.*timed out.*)$"),
        ("NFS error", r"\bnfs\d?: server (?P<text>.* (?:not responding|timed out).*)$"),
        (
            "NFS error",
            rf"\b(?:NFS|nfs|RPC|lockd)\w*: .*(?P<text>(?:{_SILENT_SERVER}).*)$",
        ),
        (
            "storage error",
            rf"(?P<text>{_NVME}.*|(?:{_BAD_FILES}|{_DEGRADED}|critical medium error|I/O error).*)$",
        ),
        ("IOMMU fault", r"(?P<text>DMAR: .*\b[Ff]ault.*|AMD-Vi: .*(?:PAGE_FAULT|ILLEGAL_DEV|HARDWARE_ERROR).*)$"),
        (
            "kernel error",
            rf"(?P<text>{_CRASHED}|(?:soft|hard) lockup|hard LOCKUP|{_HUNG}).*$",
        ),
    )
)  # fmt: skip
"""The name of each fault, and the pattern of its line. If several patterns match, the first counts."""
PARTS: Final = {
    "memory error": re.compile(r" on (\S+#\S+)"),
    "NFS error": re.compile(r"\bserver ([^ ,]+)"),
    "storage error": re.compile(
        r"\bdev(?:ice)? ([\w-]+)|\((?:device )?([\w-]+)\)|\b(nvme\d\w*|md\d+)|\[(sd\w+)\]"
    ),
}
"""The name of the part in the line of a fault that has no bus id: a memory module, a server, a disk."""
NOTES: Final = re.compile(
    "|".join(
        (
            r"AER: (?:Multiple )?Correct(?:ed|able)|severity=Correct(?:ed|able)|\bCorrected error|severity: corrected",
            r"EDAC .*: \d CE\b|SXid \(.*\): \d+, Non-fatal|nfs\d?: server .* OK$",
            r"pciehp: Slot\(.*\): (?:Link Up|Card present)",
            r"\[ ?\d+\] (?:RxErr|BadTLP|BadDLLP|Rollover|Timeout|NonFatalErr|CorrIntErr|HeaderOF)\b",
            r"\[ ?\d+\] (?:Receiver Error|Bad [DT]LL?P|Replay Timer Timeout|RELAY_NUM Rollover)",
            r"(?:Core|Package) temperature/speed normal|Memory cgroup out of memory: ",
            r"available PCIe bandwidth, limited by 2\.5 ",
            r"link status (?:up|down)(?: again)? (?:for|after) |Warning: No 802\.3ad response from the link partner",
        )
    )
)
"""Lines that are not faults by themselves."""
LINKS: Final = (
    re.compile(
        r"^mlx[45]_\w+ (?P<bus_id>\S+?):? (?:(?P<port>Port module event: module \d+), Cable"
        r"|(?P<face>\S+: Port: \d+ Link|\S+: Link)) (?P<state>\w+)$"
    ),
    re.compile(
        rf"^\w+ (?P<bus_id>{BUS}) (?P<face>\S+: (?:\w+: \S+ )?(?:NIC )?Link is) (?P<state>[Uu]p|[Dd]own)(?:\W.*)?$"
    ),
    re.compile(
        r"^(?P<bus_id>\w+): (?:\(slave (?P<port>\S+)\): )?link status definitely (?P<state>up|down)"
        r"(?: for interface (?P<face>[^ ,]+))?(?:,.*)?$"
    ),
    re.compile(
        r"^(?P<bus_id>\S+): (?P<face>)(?P<state>now running without any active interface|active interface up) ?!?$"
    ),
)
"""Lines about cables and links of mlx4 and mlx5, of other adapters, and of bonds.

Only the last line of each cable or link counts.
"""
UP: Final = frozenset({"plugged", "up", "Up", "ACTIVE", "active interface up"})
_USUAL: Final = r"""
NVRM: loading NVIDIA UNIX (?:Open )?(?:\w+ )?Kernel Module(?: for \w+)? +\d[\d.]*<build>
NVRM: GPU at (?:PCI:)?[0-9a-fA-F:.]+: GPU-[0-9a-f-]+
NVRM: GPU Board Serial Number: \w+
NVRM: GPU <bus>: GPU serial number is \w+\.
NVRM: Persistence mode is deprecated and will be removed in a future release\. .*instead\.
<module>: module license '[\w ]+' taints kernel\.
<module>: loading out-of-tree module taints kernel\.
<module>: module verification failed: signature and/or required key missing - tainting kernel
<module>: module uses symbols (?:\S+ )?from proprietary module nvidia, inheriting taint\.
nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core), major device number \d+
nvidia-nvswitch: Probing device <bus>, Vendor Id = 0x10de, Device Id = 0x\w+, Class = 0x\w+
nvidia-nvswitch\d+: (?:using MSI|open \(major=\d+\))
nvidia-modeset: Loading NVIDIA (?:UNIX (?:Open )?)?Kernel Mode Setting Driver for [\w ]+? +\d[\d.]*<build>
nvidia-modeset: Unloading
nvidia-uvm: (?:Loaded|Unloaded) the UVM driver(?:, major device number \d+)?\.?
nvidia <bus>: vgaarb: (?:VGA decodes changed|changed VGA decodes): [\w=+,:]+
nvidia <bus>: vgaarb: deactivate vga console
<device>enabling device \(\w{4} -> \w{4}\)
<device>Adding to iommu group \d+
<port>(?:AER|DPC|PME|bwctrl): (?:enabled|Signaling) with IRQ \d+
<port>DPC: error containment capabilities: Int Msg #\d+(?:,? (?:RP PIO Log \d+|\w+[+-]))+
<port>pciehp: Slot #\d+(?: \w+[+-])+(?: \(with Cmd Compl erratum\))?
<port>(?:  )?(?:PCI bridge to|bridge window|BAR \d+: assigned|resource \d+) [\w \[\]:-]+
EDAC MC: Ver: [\d.]+
EDAC MC: UMC\d+ chip selects:
EDAC driver v[\d.]+
EDAC (?:MC|PCI|DEVICE)\d+: Giving out device to module \S+ controller [\w #-]+: DEV \S+ \(\w+\)
EDAC amd64: (?:\w+ detected \(node \d+\)\.|MC: \d:[ \dMB:]+|MCT channel count: \d+|using x\d+ syndromes\.)
EDAC (?:skx|i10nm) MC\d+: Couldn't find mci handler
EDAC i10nm: No hbm memory
mce: CPU\d+: Thermal monitoring enabled \(TM\d\)
mce: (?:CPU\d* supports|Using) \d+ MCE banks
MCE: In-kernel MCE decoding enabled\.
RAS: Correctable Errors collector initialized\.
GHES: APEI firmware first mode is enabled by (?:APEI bit|WHEA _OSC|APEI bit and WHEA _OSC)\.
<mlx>firmware version: [\d.]+
<mlx>[\d.]+ Gb/s available PCIe bandwidth \([\d.]+ GT/s PCIe x\d+ link\)
<mlx>Rate limit: \d+ rates are supported, range: \d+Mbps to \d+Mbps
<mlx>E-Switch: (?:Total vports \d+, per vport: max uc\(\d+\) max mc\(\d+\)|cleanup)
<mlx>MLX5E: StrdRq\(\d\) RqSz\(\d+\) StrdSz\(\d+\) RxCqeCmprss\([\w ]+\)
<mlx>Supported tc (?:offload range - chains: \d+, prios: \d+|chains and prios offload)
<mlx>mlx5_pcie_event:\d+:\(pid \d+\): PCIe slot advertised sufficient power \(\d+W\)\.
<mlx>renamed from \w+
<mlx>is_dpll_supported:\d+:\(pid \d+\): Missing SyncE capability
<mlx>mlx5e: IPSec ESP acceleration enabled
<mlx>Assigned random MAC address [0-9a-f:]+
<mlx>lag map:?(?: active ports: [\d, ]+| port \d:\d)+
<mlx>shared_fdb:\d mode:\w+
infiniband mlx\d_\d+: Couldn't open port \d+
RPC: Registered [\w. -]+ transport (?:backchannel )?module\.
NFS: Registering the id_resolver key type
NFSD: Using nfsdcld client tracking operations\.
NFSD: no clients to reclaim, skipping NFSv4 grace period \(net [0-9a-f]+\)
nfs: Deprecated parameter '\w+'
nfs4\w+: NFSv4 (?:Flexfile|File) Layout Driver Registering\.\.\.
nvme nvme\d+: Shutdown timeout set to \d+ seconds
nvme nvme\d+: missing or invalid SUBNQN field\.
EXT4-fs \(\S+\): (?:re-)?mounted .*
ata\d+: SATA link down \(SStatus \w+ SControl \w+\)
bond\w*: \(slave \S+\): Enslaving as an? (?:active|backup) interface with an? (?:up|down) link
ipmi_si: Unable to find any System Interface\(s\)
"""
_PARTS: Final = {
    "<bus>": BUS,
    "<module>": r"(?:nvidia\w*|mlx\w+|gdrdrv|nv_peer_mem)",
    "<device>": rf"(?:nvidia|mlx[45]_core|pcieport) {BUS}(?: \S+)?: ",
    "<port>": rf"pcieport {BUS}: ",
    "<mlx>": rf"mlx[45]_core(?:\.sf)? {BUS}(?: \S+)?: ",
    "<build>": r"(?: +Release Build)?(?: +\([\w@.-]+\))?(?: +\w{3} \w{3} [ \d]\d(?: \d\d:\d\d:\d\d \w+ \d{4})?)?",
}
USUAL: Final = re.compile(
    "|".join(
        functools.reduce(lambda line, part: line.replace(part, _PARTS[part]), _PARTS, line)
        for line in _USUAL.strip().splitlines()
    )
)
"""Lines that the kernel of a healthy host prints. The pattern matches the whole line."""
STRICT: Final = re.compile(
    "|".join(
        (
            r"\bNVRM|\bnvidia[-_a-z0-9]*:|\bnvidia 0|\bnvidia[-_]peermem\b|SXid|\bEDAC\b|\bmce\b|\bMCE: ",
            r"\[Hardware Error\]",
            r"\bAER: |\bDPC: |PCIe Bus Error|\bpciehp: |\bpcieport\b|\bmlx[45]_|^nfs\w*:|\bNFS\w*:|\bRPC: |\brpc_\w+:",
            r"\blockd: |\bGHES: |\bCPER: |\bBERT: |\bRAS: |[Ss]oft.offlin|\binfiniband\b|^ib_core: |Out of memory: ",
            r"BAR [0-5](?:: .*no space for \[mem| \[mem [^]]*\]: can't assign)|available PCIe bandwidth, limited by",
            r"\bnv_peer_mem\b|Marking (?:clocksource 'tsc' as|TSC) unstable|irq \d+: no\w+ cared|WARNING: CPU: ",
            r"page allocation failure: |hardware is capping power|critical [\w ]+ error, dev ",
        )
    )
)
"""Lines of the driver and of hardware. If such a line matches no other pattern, it is unknown."""
LOOSE: Final = re.compile(
    r"\bbnxt_en\b|\bnvme(?:\d\w*)?\b|\bEXT4-fs\b|\bXFS\b|\bDMAR\b|\bAMD-Vi\b|\bgdrdrv\b|\barm-smmu|\bnvidia-fs|^ata\d"
    r"|^md\d*[:/]|^device-mapper: |\bmegaraid_sas\b|\bmpt[23]sas|\bsmartpqi\b|\bLustre|\bLNet|\b(?:lib)?ceph: |^ib\d+: "
    rf"|^(?:ice|i40e|ixgbe|igb|igc|tg3|bnx2x|be2net|qede|ena|efa|irdma|vfio-pci|e1000e|r8169|cxgb4|mpi3mr|hpsa) {BUS}"
    r"|^aacraid: |^sd [\d:]+: |^scsi |^bond\w*: |\bipmi_\w+|\bIPMI\b|^ib_\w+: |^systemd\[1\]: .*(?i:nvidia)"
)
ILL: Final = re.compile(
    "|".join(
        (
            r"error|fail|fatal|\bfault|time[d]? ?out|fallen|\blost\b|uncorrect|corrupt|unhealthy|degrad|not respond",
            r"assert|hung|stuck|panic|invalid|unable|cannot|can't|could not|overheat|over.?temp|high temp|throttl",
            r"\bdead\b|\bdown\b|exceed|unplugged|\bwarn|critical|violation|\bbad\b|denied|unexpected|unknown",
            r"abort|unsupported|inaccessible|compromised|alarm|poison|reset|event 0x|unresponsive|exception",
            r"\bhang\b|issue detected|incorrect|BMC returned|offline|speed changed to 0",
        )
    ),
    re.IGNORECASE,
)
"""Words about a fault. A line that matches LOOSE and has one of these words is unknown."""
