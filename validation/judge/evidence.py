"""The amount of evidence for a verdict, compared with the minimum that the check needs."""

import msgspec


class Evidence(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Nodes with GPUs, the GPUs that they have, distinct pods of the scenario, and events of these pods.

    `samples` counts samples of the use of GPUs, only for checks that judge them; for other checks the key is absent.
    """

    nodes: int = 0
    gpus: int = 0
    pods: int = 0
    events: int = 0
    samples: int | msgspec.UnsetType = msgspec.UNSET

    def count(self, name: str) -> int:
        """Return the number of the kind `name`; 0 if the check does not count it."""
        number: int | msgspec.UnsetType = getattr(self, name)
        return 0 if number is msgspec.UNSET else number


NO_EVIDENCE = Evidence()


def shortfall(least: Evidence, actual: Evidence) -> str:
    """Return a text about the kinds of evidence that are below the minimum. Empty if the evidence suffices."""
    missing = [
        f"{actual.count(name)} of {least.count(name)} {name}"
        for name in Evidence.__struct_fields__
        if actual.count(name) < least.count(name)
    ]
    return f"less evidence than the check needs: {', '.join(missing)}" if missing else ""
