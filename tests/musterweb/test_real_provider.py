"""Signing in at a real provider, whose answers are those of `tests.musterweb.issuers`."""

from __future__ import annotations

import pytest

from musterweb.errors import SignInNeeded
from musterweb.oidc import Provider, Settings
from musterweb.provider_sign_in import CALLBACK, ProviderSignIn
from tests.musterweb.real_issuer import SECRET, answer_of, issuing

REDIRECT = f"http://127.0.0.1:8480{CALLBACK}"


async def test_a_real_provider_signs_in_renews_and_forgets() -> None:
    with issuing(REDIRECT) as issuer:
        provider = Provider(Settings(issuer.url, "muster", REDIRECT, client_secret=SECRET))
        sign_in = ProviderSignIn(provider)
        try:
            cookie, url = await sign_in.begin("team-a")
            answer = await answer_of(url, REDIRECT, "ada")
            assert answer["iss"] == issuer.url
            renewal, project = await sign_in.finish(cookie, answer)
            assert project == "team-a"
            tokens = renewal.tokens
            assert tokens.subject == "ada"
            with pytest.raises(SignInNeeded, match="not begun in this browser"):
                await sign_in.finish(cookie, answer)
            await renewal.renew()
            renewed = renewal.tokens
            assert (renewed.subject, bool(renewed.refresh_token)) == ("ada", True)
            await renewal.forget()
            with pytest.raises(SignInNeeded, match="invalid_grant"):
                await renewal.renew()
        finally:
            await provider.close()
