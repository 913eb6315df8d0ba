"""The identity of a process in the leader election."""

from orchestrator.control.operator import unique_identity


def test_two_processes_of_one_name_are_two_in_the_election() -> None:
    first, second = unique_identity("operator-0"), unique_identity("operator-0")
    assert first != second
    assert all(identity.startswith("operator-0_") for identity in (first, second))
