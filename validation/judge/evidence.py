"""How much a verdict rests on: what was watched, counted, against the least that the check needs."""

import msgspec


class Evidence(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Nodes with GPUs, the GPUs that they have, distinct pods of the scenario, and events of these pods."""

    nodes: int = 0
    gpus: int = 0
    pods: int = 0
    events: int = 0


NO_EVIDENCE = Evidence()


def shortfall(least: Evidence, actual: Evidence) -> str:
    """What there is too little of, in words; empty if the evidence suffices."""
    missing = [
        f"{getattr(actual, name)} of {getattr(least, name)} {name}"
        for name in Evidence.__struct_fields__
        if getattr(actual, name) < getattr(least, name)
    ]
    return f"less evidence than the check needs: {', '.join(missing)}" if missing else ""
