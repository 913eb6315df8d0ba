"""The operator's settings are written to a snapshot file and read back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner.settings import Settings
from orchestrator.simulation.settings import KEY, SettingsUnknown, decoded, encoded


@given(settings=st.from_type(Settings))
def test_settings_are_written_down_and_read_back_exactly(settings: Settings) -> None:
    assert decoded({KEY: encoded(settings)}) == settings


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({}, "has no settings.yaml"),
        ({KEY: "maxEvictions: many"}, "`int | null`"),
        ({KEY: "fromALaterVersion: 1"}, "fromALaterVersion"),
        ({KEY: "{"}, "cannot be read by this version of muster"),
    ],
)
def test_settings_that_cannot_be_read_are_one_line(data: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsUnknown, match=re.escape(complaint)) as caught:
        decoded(data)
    assert "\n" not in str(caught.value)
