"""Words that the sentences of several stages share."""

from deployment.site import Site


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    Example: `count(2, "host")` returns `'2 hosts'`.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hosts_on_removal(site: Site) -> str:
    """Return the effect of a removal on software on the hosts. Nothing is removed unless `teardown_hosts` is set."""
    is_removed = site.get("vars", "teardown_hosts", default=False)
    return (
        "removed from the hosts, as teardown_hosts says"
        if is_removed
        else "kept; teardown_hosts would remove it"
    )
