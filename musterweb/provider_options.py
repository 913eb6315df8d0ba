"""The options of `muster web` for an identity provider."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from musterweb.oidc import Provider, Settings, is_safe_url
from musterweb.provider_sign_in import CALLBACK
from orchestrator.errors import ConfigurationError, UsageError


def provider_of(
    issuer: str | None,
    client_id: str | None,
    *,
    secret: Path | None,
    authority: Path | None,
    scopes: tuple[str, ...],
    public_url: str,
) -> Provider | None:
    """Return the provider that the flags name, if any. Raises UsageError, and ConfigurationError for a file."""
    if issuer is None:
        if client_id or secret or authority or scopes:
            raise UsageError("options --oidc-… need an OpenID Connect provider: give --oidc-issuer too")
        return None
    if not client_id:
        raise UsageError("--oidc-issuer needs --oidc-client-id, the client id of the pages at the provider")
    if not is_safe_url(issuer) or urlsplit(issuer).query:
        raise UsageError(
            f"--oidc-issuer {issuer!r} is not possible: give its URL, which begins with https://"
        )
    if not is_safe_url(public_url) or urlsplit(public_url).path.strip("/") or urlsplit(public_url).query:
        raise UsageError(
            f"--public-url {public_url!r} is not possible: give the address by which browsers come, "
            "such as https://muster.example.com"
        )
    if scopes and "openid" not in scopes:
        raise UsageError("--oidc-scope: without openid a provider gives no ID token")
    return Provider(
        Settings(
            issuer=issuer,
            client_id=client_id,
            redirect_url=public_url.rstrip("/") + CALLBACK,
            client_secret="" if secret is None else _secret(secret),
            authority=None if authority is None else _checked(authority),
            scopes=scopes,
        )
    )


def _secret(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--oidc-client-secret {path} cannot be read: {error}") from error
    if not text or not text.isprintable():
        raise ConfigurationError(f"--oidc-client-secret {path} has no secret of one line")
    return text


def _checked(path: Path) -> Path:
    try:
        ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--oidc-authority {path} has no certificate in PEM: {error}") from error
    return path
