"""Sign-in at an identity provider: makes the cookie of the browser, and verifies the provider's answer.

    POST /sign-in/provider ──a cookie, and a page that leads on──> the provider ──code, state──> /sign-in/callback

State, nonce and PKCE verifier are derived from the cookie and a key of this process. So nothing is stored before the
provider's answer. The answer is valid once, for 10 minutes, and only in the browser that began the sign-in.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from musterweb.errors import NotBegun, SignInNeeded
from musterweb.oidc import Provider, challenge_of
from musterweb.renewal import Renewal
from musterweb.security import new_secret

CALLBACK: Final = "/sign-in/callback"
MAX_SECONDS: Final = 600
MAX_USED: Final = 10_000
"""Maximum number of remembered answers. A remembered answer is refused. Beyond the maximum, the oldest is forgotten.

The number is bounded because any client can add to it. A forgotten answer is refused too: the provider accepts a code
only once (RFC 6749, 4.1.2).
"""
MAX_PROJECT: Final = 253
_MAX_TEXT: Final = 300
_AGAIN: Final = "this sign-in was not begun in this browser, or too long ago: sign in again"


class ProviderSignIn:
    """The sign-ins at one provider; see the module. `clock` returns seconds since the epoch."""

    def __init__(
        self, provider: Provider, *, clock: Callable[[], float] = time.time, max_used: int = MAX_USED
    ) -> None:
        self.provider = provider
        self._max_used = max_used
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._used: dict[str, float] = {}

    async def begin(self, project: str) -> tuple[str, str]:
        """Return the value of the browser's cookie, and the provider's address to open. Raises ProviderAway."""
        encoded = base64.urlsafe_b64encode(project[:MAX_PROJECT].encode()).decode()
        cookie = f"{int(self._clock())}.{new_secret()}.{encoded}"
        url = await self.provider.authorization_url(
            self._derive("state", cookie),
            self._derive("nonce", cookie),
            challenge_of(self._derive("verifier", cookie)),
        )
        return cookie, url

    async def finish(self, cookie: str, query: Mapping[str, str]) -> tuple[Renewal, str]:
        """Return the token in the provider's answer as a `Renewal`, and the project named at the begin.

        Raises NotBegun if the state is not from this browser, SignInNeeded, ProviderAway.
        """
        project = self._check_cookie(cookie)
        state = self._derive("state", cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
            raise NotBegun(_AGAIN)
        await self.provider.check_sender(query.get("iss"))
        if problem := query.get("error", ""):
            words = f"{problem} {query.get('error_description', '')}".strip()[:_MAX_TEXT]
            raise SignInNeeded(f"the identity provider did not sign you in: {words}")
        code = query.get("code", "")
        if not code:
            raise SignInNeeded("the identity provider's answer has no code: sign in again")
        # Remember the state only now. Any client can send answers without a code, and those would displace
        # remembered ones.
        self._use(state)
        tokens = await self.provider.exchange(
            code, self._derive("verifier", cookie), self._derive("nonce", cookie)
        )
        return Renewal(self.provider, tokens, clock=self._clock), project

    def _check_cookie(self, cookie: str) -> str:
        """Return the project in the cookie. Raises NotBegun for an old or invalid cookie."""
        began, _, rest = cookie.partition(".")
        _, _, encoded = rest.partition(".")
        if not (began.isascii() and began.isdigit() and len(began) < 16):
            raise NotBegun(_AGAIN)
        if not 0 <= self._clock() - int(began) <= MAX_SECONDS:
            raise NotBegun(_AGAIN)
        try:
            return base64.urlsafe_b64decode(encoded.encode()).decode()
        except (binascii.Error, ValueError) as error:
            raise NotBegun(_AGAIN) from error

    def _use(self, state: str) -> None:
        """Remember an answer by its state. Raises SignInNeeded if it was remembered before."""
        now = self._clock()
        self._used = {used: at for used, at in self._used.items() if now - at <= MAX_SECONDS}
        if state in self._used:
            raise SignInNeeded(_AGAIN)
        if len(self._used) >= self._max_used:
            del self._used[next(iter(self._used))]
        self._used[state] = now

    def _derive(self, purpose: str, cookie: str) -> str:
        digest = hmac.new(self._key, f"{purpose}:{cookie}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
