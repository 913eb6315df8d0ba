"""Renews the tokens of a person from an identity provider until the sign-out."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from musterweb.errors import ProviderAway, SignInNeeded
from musterweb.oidc import Provider, Tokens


class Renewal:
    """Keeps one person's ID token valid until the sign-out."""

    def __init__(self, provider: Provider, tokens: Tokens, *, clock: Callable[[], float] = time.time) -> None:
        self._provider = provider
        self.tokens = tokens
        self._clock = clock

    def token(self) -> str:
        """Return the present ID token."""
        return self.tokens.id_token

    async def run(self) -> None:
        """Renew the token before each expiry. If the provider gives no new token, return when the last one expires."""
        while self.tokens.refresh_token:
            left_seconds = self.tokens.expires_at - self._clock()
            await asyncio.sleep(max(left_seconds * 0.75, 1.0))
            try:
                await self.renew()
            except SignInNeeded:
                break
            except ProviderAway:
                if self._clock() >= self.tokens.expires_at:
                    break
        await asyncio.sleep(max(self.tokens.expires_at - self._clock(), 0.0))

    async def renew(self) -> None:
        """Replace the tokens by new ones of the same person. Raises SignInNeeded if the provider gives no new
        tokens, and ProviderAway.
        """
        answer = await self._provider.refresh(self.tokens.refresh_token)
        if answer.refresh_token:
            # Store the new refresh token before any other step can fail. If the provider rotates tokens, the
            # old one is invalid from now on, and its use counts as theft (RFC 9700, 4.14.2).
            self.tokens = replace(self.tokens, refresh_token=answer.refresh_token)
        proved = await self._provider.prove_renewed(answer, self.tokens.subject)
        self.tokens = replace(proved, refresh_token=self.tokens.refresh_token)

    async def forget(self) -> None:
        """Let the provider revoke the refresh token. Raises ProviderAway."""
        await self._provider.revoke(self.tokens)
