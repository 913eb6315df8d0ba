"""The part of OpenID Connect that a sign-in needs: the provider exchanges a code for tokens, and renews them.

A person gets an ID token, which the API server accepts by its own settings (`--oidc-issuer-url`). The API server
decides about rights. This module verifies two things that the API server cannot know:

- the token was issued for this browser's request (its nonce)
- a renewed token belongs to the same person
"""

import base64
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, KeySet

from musterweb.errors import ProviderAway, SignInNeeded
from musterweb.security import is_loopback

LIMIT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 1 << 20
METADATA_SECONDS: Final = 3600.0
KEY_SECONDS: Final = 60.0
"""Minimum time between two reads of the provider's keys. A token with an unknown key causes a read."""
LEEWAY_SECONDS: Final = 10
"""Maximum difference between the clocks of two machines."""
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signature algorithms: those with a private key. `none` and algorithms with a shared secret are refused."""
SCOPES: Final = ("openid", "profile", "email", "groups", "offline_access")
"""Default scopes. Those that the provider does not offer are left out."""
_MAX_TEXT: Final = 300

_Decoded = TypeVar("_Decoded")


@dataclass(frozen=True, slots=True)
class Settings:
    """An identity provider, and muster's registration as its client. Without a secret, muster is a public client.
    Empty `scopes` mean the default ones.
    """

    issuer: str
    client_id: str
    redirect_url: str
    client_secret: str = ""
    authority: Path | None = None
    scopes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the provider on the pages: the host of its URL."""
        return urlsplit(self.issuer).netloc


class Metadata(msgspec.Struct, frozen=True):
    """The used part of the provider's metadata (OpenID Connect Discovery 1.0). null counts as absent."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The URLs to which muster or the browser sends tokens or codes, and the URL of the keys."""
        needed = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri)
        return (*needed, self.revocation_endpoint) if self.revocation_endpoint else needed


class TokenResponse(msgspec.Struct, frozen=True):
    """The provider's answer to a request for tokens, not verified yet."""

    id_token: str | None = None
    refresh_token: str | None = None


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Problem(msgspec.Struct, frozen=True):
    error: str | None = None
    error_description: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The provider's tokens for a code. `refresh_token` is "" if there is none."""

    id_token: str
    refresh_token: str
    subject: str
    expires_at: float


def is_safe_url(url: str) -> bool:
    """Return whether a secret may be sent to a URL: it uses TLS, or names this machine.

    Example: `is_safe_url("http://idp.example.com/token")` returns `False`.
    """
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    if not parts.hostname or parts.username or parts.fragment or not has_port:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc))


def challenge_of(verifier: str) -> str:
    """Return the challenge of a PKCE verifier (RFC 7636, S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class Provider:
    """One identity provider; see the module. `clock` returns seconds since the epoch. Close it at the end."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._metadata: Metadata | None = None
        self._metadata_at = 0.0
        self._keys: KeySet | None = None
        self._keys_at = 0.0

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def authorization_url(self, state: str, nonce: str, challenge: str) -> str:
        """Return the URL of the provider's page for the sign-in. Raises ProviderAway."""
        metadata = await self._read_metadata()
        scopes = self.settings.scopes or _usual_scopes(metadata)
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_url,
            "scope": " ".join(scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if "offline_access" in scopes:
            # OpenID Connect Core 11: otherwise the provider gives no refresh token
            query["prompt"] = "consent"
        url = metadata.authorization_endpoint
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def check_sender(self, issuer: str | None) -> None:
        """Raise SignInNeeded if an answer has the `iss` of another provider, or lacks a required `iss` (RFC 9207)."""
        metadata = await self._read_metadata()
        is_missing = issuer is None and metadata.authorization_response_iss_parameter_supported
        if is_missing or (issuer is not None and issuer != self.settings.issuer):
            raise SignInNeeded("this answer is not of the identity provider that was asked: sign in again")

    async def exchange(self, code: str, verifier: str, nonce: str) -> Tokens:
        """Return the tokens for a code. Raises SignInNeeded if they are not for this sign-in, and ProviderAway."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_url,
            "code_verifier": verifier,
        }
        answer = await self._request_tokens(fields)
        return await self._prove(answer, {"nonce": {"essential": True, "value": nonce}})

    async def refresh(self, refresh_token: str) -> TokenResponse:
        """Return the provider's new tokens. Raises SignInNeeded if the provider refuses them, and ProviderAway."""
        return await self._request_tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def prove_renewed(self, answer: TokenResponse, subject: str) -> Tokens:
        """Return the tokens in an answer to `refresh`. Raises SignInNeeded for the token of another user, and
        ProviderAway.
        """
        return await self._prove(answer, {"sub": {"essential": True, "value": subject}})

    async def revoke(self, tokens: Tokens) -> None:
        """Let the provider revoke a refresh token, if it has an endpoint for that. Raises ProviderAway."""
        metadata = await self._read_metadata()
        if metadata.revocation_endpoint and tokens.refresh_token:
            fields = {"token": tokens.refresh_token, "token_type_hint": "refresh_token"}
            await self._post(metadata.revocation_endpoint, metadata, fields)

    # --- tokens -----------------------------------------------------------------------------------------

    async def _request_tokens(self, fields: Mapping[str, str]) -> TokenResponse:
        metadata = await self._read_metadata()
        status, body = await self._post(metadata.token_endpoint, metadata, fields)
        if status in (400, 401, 403):
            raise SignInNeeded(f"the identity provider refuses it: {_problem_of(body)}")
        if status != 200:
            raise ProviderAway(f"{self.settings.name} answered {status}: {_problem_of(body)}")
        return self._decode(body, TokenResponse)

    async def _prove(self, answer: TokenResponse, required: Mapping[str, Any]) -> Tokens:
        """Return the tokens in an answer after verifying the ID token: signature, issuer, audience, time, `required`.

        Raises SignInNeeded for an ID token that is not valid, and ProviderAway if there is no ID token or no key.
        """
        if not answer.id_token:
            raise ProviderAway(f"{self.settings.name} gave no ID token: is `openid` among the scopes?")
        registry = jwt.JWTClaimsRegistry(
            now=lambda: int(self._clock()),
            leeway=LEEWAY_SECONDS,
            **{
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
                "sub": {"essential": True},
                "exp": {"essential": True},
                "iat": {"essential": True},
                **required,
            },
        )
        try:
            claims = (await self._verified(answer.id_token)).claims
            registry.validate(claims)
        except (JoseError, ValueError, RecursionError) as error:
            raise SignInNeeded(
                f"the identity provider's token cannot be trusted: {_one_line(error)}"
            ) from error
        parties = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        party = claims.get("azp", self.settings.client_id if len(parties) == 1 else None)
        if party != self.settings.client_id:
            raise SignInNeeded("the identity provider's token is for another client (azp)")
        return Tokens(answer.id_token, answer.refresh_token or "", str(claims["sub"]), float(claims["exp"]))

    async def _verified(self, id_token: str) -> jwt.Token:
        """Return the token after verifying its signature. Raises JoseError, ValueError."""
        keys = await self._read_keys(is_newest=False)
        try:
            return jwt.decode(id_token, keys, ALGORITHMS)
        except (JoseError, ValueError):
            newest = await self._read_keys(is_newest=True)
            if newest is keys:
                raise
            return jwt.decode(id_token, newest, ALGORITHMS)

    async def _read_keys(self, *, is_newest: bool) -> KeySet:
        age_seconds = self._clock() - self._keys_at
        if self._keys is None or age_seconds > METADATA_SECONDS or (is_newest and age_seconds > KEY_SECONDS):
            metadata = await self._read_metadata()
            document = await self._get(metadata.jwks_uri)
            try:
                keys = _usable_keys(document)
            except (ValueError, RecursionError) as error:
                raise ProviderAway(
                    f"the keys of {self.settings.name} cannot be read: {_one_line(error)}"
                ) from error
            self._keys, self._keys_at = keys, self._clock()
        return self._keys

    # --- requests ---------------------------------------------------------------------------------------

    async def _read_metadata(self) -> Metadata:
        if self._metadata is None or self._clock() - self._metadata_at > METADATA_SECONDS:
            issuer = self.settings.issuer
            metadata = self._decode(
                await self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration"), Metadata
            )
            if metadata.issuer != issuer:
                raise ProviderAway(f"{self.settings.name} calls itself {metadata.issuer!r}, not {issuer!r}")
            if unsafe := next((url for url in metadata.addresses if not is_safe_url(url)), None):
                raise ProviderAway(f"{self.settings.name} names an address without TLS: {unsafe!r}")
            self._metadata, self._metadata_at = metadata, self._clock()
        return self._metadata

    def _decode(self, body: bytes, kind: type[_Decoded]) -> _Decoded:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProviderAway(
                f"{self.settings.name} sent an answer that cannot be read: {_one_line(error)}"
            ) from error

    async def _get(self, url: str) -> bytes:
        status, body = await self._send("GET", url)
        if status != 200:
            raise ProviderAway(f"{self.settings.name} answered {status} for {urlsplit(url).path}")
        return body

    async def _post(self, url: str, metadata: Metadata, fields: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a form with the client's credentials. Returns status and body."""
        sent, headers = dict(fields), {}
        identity, secret = self.settings.client_id, self.settings.client_secret
        methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
        if not secret:
            sent["client_id"] = identity
        elif "client_secret_basic" in methods or "client_secret_post" not in methods:
            pair = f"{quote(identity, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            sent |= {"client_id": identity, "client_secret": secret}
        return await self._send("POST", url, data=sent, headers=headers)

    async def _send(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        """Return status and body. Redirects are not followed, because they would pass on a code or a secret."""
        try:
            if self._session is None:
                self._session = self._open()
            request |= {"allow_redirects": False, "proxy": _proxy_of(url)}
            async with self._session.request(method, url, **request) as response:
                body = await response.content.read(MAX_ANSWER_BYTES + 1)
                while len(body) <= MAX_ANSWER_BYTES and (
                    more := await response.content.read(MAX_ANSWER_BYTES)
                ):
                    body += more
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ProviderAway(f"{self.settings.name} cannot be reached: {_one_line(error)}") from error
        if len(body) > MAX_ANSWER_BYTES:
            raise ProviderAway(f"{self.settings.name} answered more than {MAX_ANSWER_BYTES >> 20} MiB")
        return response.status, body

    def _open(self) -> aiohttp.ClientSession:
        authority = self.settings.authority
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(LIMIT_SECONDS),
            # Otherwise cookies of one sign-in would be sent with all others.
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # otherwise the client would send credentials of ~/.netrc instead of the secret
        )


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an address (`https_proxy`, `no_proxy` …), if any."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _usable_keys(document: bytes) -> KeySet:
    """Return the usable keys of a key set. Raises ValueError if there are none, and RecursionError.

    A key with an unknown curve, or with a missing member, is ignored (RFC 7517, 5).
    """
    usable = []
    for key in msgspec.json.decode(document, type=_Keys).keys:
        # the library raises KeyError for an unknown curve, TypeError if `kty` is a list
        with suppress(JoseError, ValueError, TypeError, KeyError):
            usable.append(JWKRegistry.import_key(key))
    if not usable:
        raise ValueError("it has none that can be used")
    return KeySet(usable)


def _usual_scopes(metadata: Metadata) -> tuple[str, ...]:
    supported = metadata.scopes_supported
    if supported is None:
        return ("openid", "profile", "email")
    return tuple(scope for scope in SCOPES if scope == "openid" or scope in supported)


def _problem_of(body: bytes) -> str:
    """Return the error in an answer (RFC 6749, 5.2)."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it does not say why"
    words = f"{problem.error or ''} {problem.error_description or ''}".strip()
    return words[:_MAX_TEXT] or "it does not say why"


def _one_line(error: Exception) -> str:
    """Return the start of an error's message as one line."""
    return " ".join(str(error).split())[:_MAX_TEXT] or type(error).__name__
