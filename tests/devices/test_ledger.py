"""`orchestrator.devices.ledger`: held devices, and undoing changes."""

from orchestrator.devices.ledger import DeviceLedger
from orchestrator.devices.model import Allocation, DeviceResult

GPU = ("driver", "pool", "gpu-0")


def share(name: str, nano: int) -> Allocation:
    return Allocation((DeviceResult("gpu", GPU, share_id=name, consumed=(("memory", nano),)),))


def test_a_rollback_gives_back_exactly_the_devices_taken_since() -> None:
    ledger = DeviceLedger()
    ledger.take(share("a", 3))
    mark = ledger.checkpoint()
    ledger.take(share("b", 4))
    assert dict(ledger.consumed(GPU)) == {"memory": 7}
    ledger.release(share("a", 3))
    assert not ledger.has_share(GPU, "a")
    ledger.rollback(mark)
    assert dict(ledger.consumed(GPU)) == {"memory": 3}
    assert ledger.has_share(GPU, "a")
    assert not ledger.has_share(GPU, "b")


def test_admin_access_holds_nothing() -> None:
    ledger = DeviceLedger()
    ledger.take(Allocation((DeviceResult("gpu", GPU, admin_access=True),)))
    assert not ledger.is_occupied(GPU)


def test_a_final_allocation_is_not_rolled_back() -> None:
    ledger = DeviceLedger()
    ledger.take(Allocation((DeviceResult("gpu", GPU),)))
    ledger.forget_undo()
    ledger.rollback(0)
    assert ledger.is_held(GPU)
