"""The content of a kernel's log: faults, unknown lines and notes."""

import msgspec


class Xid(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An error of the driver in the kernel's log.

    `kind` is Xid, SXid of an NVSwitch, or the driver's words for an error without a code (0).
    """

    code: int
    bus_id: str
    text: str
    kind: str = "Xid"

    @property
    def name(self) -> str:
        """The name under which documents list the error. Example: `Xid 79`."""
        return f"{self.kind} {self.code}" if self.code else self.kind


class KernelLog(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The lines of a kernel's log about hardware.

    `unknown` has lines of the driver and of hardware that match no pattern; `notes` has lines that are not faults by
    themselves. `is_whole`: the log begins with the boot.
    """

    faults: list[Xid]
    unknown: list[str] = []
    notes: list[str] = []
    is_whole: bool = True
