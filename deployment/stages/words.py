"""Words that the sentences of several stages share."""

from deployment.site import Site


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hosts_on_removal(site: Site) -> str:
    """Return what becomes of what is installed on hosts; none of it goes unless `teardown_hosts` says so."""
    gone = site.get("vars", "teardown_hosts", default=False)
    return (
        "removed from the hosts, as teardown_hosts says" if gone else "kept; teardown_hosts would remove it"
    )
