"""Expressions on labels, as node selectors of pods, volumes and devices have them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One expression of a node selector term: operators `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
