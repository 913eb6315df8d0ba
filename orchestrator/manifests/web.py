"""The options of `muster web` that a site chooses for the pages beside the operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_WEB_CERTIFICATE: Final = "muster-web-tls"
PROMETHEUS_URL: Final = r"https?://[A-Za-z0-9.\[\]:-]+(/[A-Za-z0-9_./~-]*)?"
"""Allowed addresses of a Prometheus. They have no characters with a meaning in YAML."""
_PORT: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SERVER: Final = rf"https://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:{_PORT})?"
PUBLIC_URL: Final = f"{_SERVER}/?"
"""Allowed addresses of the pages for browsers: HTTPS, because the pages have a certificate."""
OIDC_ISSUER: Final = rf"{_SERVER}(/[A-Za-z0-9_.~%/-]*)?"
"""Allowed addresses of an identity provider; `muster web` and the API server accept no other."""
OIDC_WORD: Final = r"[A-Za-z0-9_.~:/@+=*-]+"
"""Allowed names of a client or a scope: without expressions that Kubernetes replaces in arguments."""

ARGUMENTS: Final = (
    "web", "--listen=*:8443", "--tls-certificate=/certificate/tls.crt", "--tls-key=/certificate/tls.key",
)  # fmt: skip
CHOSEN_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "prometheus": ("--prometheus=%s",),
    "history": ("--history=/history/history.db", "--history-token=/history-token/token"),
    "public_url": ("--public-url=%s",),
    "oidc_issuer": ("--oidc-issuer=%s",),
    "oidc_client_id": ("--oidc-client-id=%s",),
    "oidc_client_secret": ("--oidc-client-secret=/provider-secret/client-secret",),
    "oidc_authority": ("--oidc-authority=/provider-authority/ca.crt",),
    "oidc_scope": ("--oidc-scope=%s",),
}
"""The arguments of `muster web` for each set field of `WebDeployment`. %s is the field's value."""


@dataclass(frozen=True, slots=True)
class WebDeployment:
    """The choices of a site for the pages. All named objects are in the system namespace."""

    certificate: str = DEFAULT_WEB_CERTIFICATE
    """Name of the Secret with the certificate."""
    prometheus: str = ""
    """URL of the history for Analytics; "": none."""
    history: bool = False
    """Whether the pages record their own history."""
    history_claim: str = ""
    """Name of the PVC that keeps the history; "": the history is lost with the pod."""
    public_url: str = ""
    """The address of the pages for browsers; an identity provider sends browsers back to it."""
    oidc_issuer: str = ""
    """URL of the identity provider; "": people sign in with a token alone."""
    oidc_client_id: str = ""
    """The client id of the pages at the provider."""
    oidc_client_secret: str = ""
    """Name of the Secret whose key `client-secret` authenticates the client; "": a public client."""
    oidc_authority: str = ""
    """Name of the ConfigMap whose key `ca.crt` is the provider's certificate authority. "": the system's authorities.
    """
    oidc_scope: tuple[str, ...] = ()
    """The requested scopes; (): the defaults of `muster web`."""

    def arguments(self) -> list[str]:
        """Return the arguments of the container."""
        arguments = list(ARGUMENTS)
        for name, texts in CHOSEN_ARGUMENTS.items():
            chosen = getattr(self, name)
            for value in chosen if isinstance(chosen, tuple) else (chosen,):
                arguments += [text.replace("%s", str(value)) for text in texts if value]
        return arguments
