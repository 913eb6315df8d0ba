"""How `muster web` runs beside the operator."""

from dataclasses import dataclass
from typing import Final

DEFAULT_WEB_CERTIFICATE: Final = "muster-web-tls"
PROMETHEUS_URL: Final = r"https?://[A-Za-z0-9.\[\]:-]+(/[A-Za-z0-9_./~-]*)?"
"""What the address of a Prometheus may be: nothing in it has a meaning in YAML."""


@dataclass(frozen=True, slots=True)
class WebDeployment:
    """The choices of a site for the pages; all objects that are named are in the system namespace."""

    certificate: str = DEFAULT_WEB_CERTIFICATE
    """Name of the Secret with the certificate."""
    prometheus: str = ""
    """URL from which Analytics takes what was; "": none."""
    has_history: bool = False
    """Whether the pages record what was themselves."""
    history_claim: str = ""
    """Name of the claim that keeps the record; "": it ends with the pod."""
