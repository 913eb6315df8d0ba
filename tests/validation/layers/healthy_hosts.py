"""Output of healthy hosts of five kinds, made of recorded output with the variation of real values."""

import random
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(NamedTuple):
    """A kind of host: the recording of its GPU, and the number of its GPUs."""

    model: str
    recording: str
    gpus: int
    driver: str


KINDS: Final = (
    Kind("dgx-1", "", 8, "580"),
    Kind("dgx-a100", "nvidia-smi-v12-a100-40gb.xml", 8, "570"),
    Kind("dgx-h100", "nvidia-smi-v13-h100.xml", 8, "580"),
    Kind("dgx-b200", "nvidia-smi-v13-b200.xml", 8, "580"),
    Kind("gb200", "nvidia-smi-v13-gb200.xml", 4, "580"),
)
_LOG: Final = (RECORDED / "healthy-boot.txt").read_text()
"""Lines of healthy boots in public logs; %d stands for any digit."""


def seeded(seed: object) -> random.Random:
    """Return a source of random values that are the same in each run."""
    return random.Random(str(seed))  # noqa: S311 - no secret is made of it


def kernel_log(chance: random.Random) -> str:
    """Return a kernel log with most of these lines, in the format of one of the ways to read it."""
    ways: tuple[Callable[[float], str], ...] = (
        lambda seconds: f"[{seconds:12.6f}] ",
        lambda seconds: f"[Sun Feb 23 16:24:{int(seconds) % 60:02} 2025] ",
        lambda seconds: f"kern  :info  : [{seconds:12.6f}] ",
        lambda seconds: f"2025-01-21T04:41:{int(seconds) % 60:02},287197+00:00 ",
        lambda seconds: f"Dec  2 11:49:{int(seconds) % 60:02} worker4 kernel: [{seconds:12.6f}] ",
    )
    stamp, digit = chance.choice(ways), str(chance.randrange(10))
    lines = ["Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075)"]
    lines += [line for line in _LOG.splitlines() if chance.random() < 0.9 or "Link" in line]
    seconds = 0.0
    text = ""
    for line in lines:
        text += f"{stamp(seconds)}{line.replace('%d', digit)}\n"
        seconds += chance.random()
    return text


def nvidia_smi(kind: Kind, chance: random.Random) -> str:
    """Return the GPUs of an idle host of this kind."""
    if not kind.recording:
        text = doubles.nvidia_smi(f"n{chance.randrange(9)}")
        start, end = text.index("    <gpu id"), text.index("    </gpu>") + len("    </gpu>\n")
        rest = text[text.rindex("    </gpu>") + len("    </gpu>\n") :]
    else:
        text = (RECORDED / kind.recording).read_text()
        start, end = text.index("\t<gpu id"), text.index("</gpu>") + len("</gpu>\n")
        rest = text[end:]
    one = text[start:end].replace("<persistence_mode>Disabled", "<persistence_mode>Enabled")
    gpus = [_varied(one, number, chance) for number in range(kind.gpus)]
    head = re.sub(r"<attached_gpus>\d+", f"<attached_gpus>{kind.gpus}", text[:start])
    return head + "".join(gpus) + rest


def _varied(gpu: str, number: int, chance: random.Random) -> str:
    """Return the GPU with other values, all seen on healthy GPUs."""
    uncorrected = chance.choice([0, 0, 0, 0, 1, 3])
    values = {
        "gpu_temp": f"{chance.randint(22, 58)} C",
        "gpu_temp_tlimit": f"{chance.randint(28, 60)} C",
        "memory_temp": f"{chance.randint(24, 70)} C",
        "average_power_draw": f"{chance.uniform(55, 140):.2f} W",
        "instant_power_draw": f"{chance.uniform(55, 140):.2f} W",
        "gpu_util": f"{chance.choice([0, 0, 1, 36])} %",
        "used": f"{chance.randint(0, 500)} MiB",
        "sram_correctable": str(chance.choice([0, 0, 0, 1])),
        "dram_correctable": str(chance.choice([0, 0, 2, 17])),
        "remapped_row_corr": str(chance.choice([0, 0, 1, 4])),
        "remapped_row_unc": str(uncorrected),
        "row_remapper_histogram_partial": f"{uncorrected} bank(s)",
        "replay_counter": str(chance.choice([0, 0, 0, 2, 12])),
        "clocks_event_reasons_counters_sw_power_cap": f"{chance.randrange(10**10)} us",
        "serial": f"16530230{chance.randrange(10**5):05}",
    }
    for name, value in values.items():
        gpu = re.sub(rf"<{name}>(?!N/A)[^<]*<", f"<{name}>{value}<", gpu)
    clock = f"{chance.choice([120, 345, 1410, 1980])} MHz"
    gpu = re.sub(r"(<clocks>(?:(?!</clocks>).)*<sm_clock>)[^<]*", rf"\g<1>{clock}", gpu, flags=re.DOTALL)
    aggregate = re.compile(r"(<aggregate>.*?<dram_uncorrectable>)\d+", re.DOTALL)
    gpu = aggregate.sub(rf"\g<1>{uncorrected}", gpu)
    gpu = re.sub(r"<uuid>[^<]*", f"<uuid>GPU-{chance.randrange(16**8):08x}-{number}", gpu)
    return re.sub(r'<gpu id="[^"]*"', f'<gpu id="00000000:{0x1B + number:02X}:00.0"', gpu)


def outputs(kind: Kind, chance: random.Random) -> dict[str, str]:
    """Return the output of the tools that read GPUs and the kernel's log."""
    return {
        "nvidia-smi": nvidia_smi(kind, chance),
        "kernel-log": kernel_log(chance),
        "fabric-manager": "active\n",
    }
