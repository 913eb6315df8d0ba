"""A tree of `/sys` as a host of 8 GPUs and 10 adapters has it, with links as in the kernel's own."""

from pathlib import Path

from hostfacts.clock import CLOCK_SOURCE
from hostfacts.counters import COUNTERS, MEMORY_COUNTERS

BOOT = "<5>[    0.000000] Linux version 6.8.0-51-generic\n"
ADAPTERS = 10


def make_tree(root: Path, adapters: int = ADAPTERS, clock: str = "tsc") -> Path:
    """Make the tree below `root`, and return `root`."""
    write(root / CLOCK_SOURCE.removeprefix("/"), clock)
    for folder in ("net", "infiniband"):
        (root / "sys/class" / folder).mkdir(parents=True)
    for path in MEMORY_COUNTERS:
        for controller in ("mc0", "mc1"):
            write(root / path.removeprefix("/").replace("mc*", controller), "0")
    for number in range(adapters):
        device = root / f"sys/devices/pci0000:{number:02x}/0000:{number:02x}:00.0"
        links = {"net": f"eth{number}", "infiniband": f"mlx5_{number}"}
        for folder, link in links.items():
            (device / folder / link).mkdir(parents=True)
            (device / folder / link / "device").symlink_to("../..")
            (root / "sys/class" / folder / link).symlink_to(device / folder / link)
        for pattern in COUNTERS:
            name = "/".join(pattern.split("/")[8:] if "/net/" in pattern else pattern.split("/")[5:])
            name = name.replace("*", "1")
            write(
                device
                / ("net" if "/net/" in pattern else "infiniband")
                / (links["net"] if "/net/" in pattern else links["infiniband"])
                / name,
                "0",
            )
        write(device / "infiniband" / links["infiniband"] / "ports/1/state", "4: ACTIVE")
        write(device / "infiniband" / links["infiniband"] / "ports/1/phys_state", "5: LinkUp")
    return root


def counter(root: Path, adapter: int, name: str) -> Path:
    """Return the file of a counter of an adapter's RDMA port."""
    return root / f"sys/class/infiniband/mlx5_{adapter}/ports/1/counters/{name}"


def write(path: Path, text: str) -> None:
    """Write a file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def log_of(lines: int) -> str:
    """Return a kernel's log of a healthy host with this number of lines after the boot."""
    usual = (
        "mlx5_core 0000:05:00.0: firmware version: 28.39.3560",
        "docker0: port 1(veth9d1b2c3) entered blocking state",
        'audit: type=1400 audit(1700000000.1:2): apparmor="STATUS" operation="profile_load"',
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    )
    return BOOT + "".join(
        f"<6>[{second:12.6f}] {usual[second % len(usual)]}\n" for second in range(1, lines + 1)
    )
