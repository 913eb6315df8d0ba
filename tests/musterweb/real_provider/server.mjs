// A real provider of OpenID Connect on loopback: oidc-provider, with its own pages for signing in and for consent.
// Whoever signs in is in a group of the own name; by certificate and key it serves TLS, as API servers want it.
import { readFileSync } from 'node:fs';
import { createServer as createPlainServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createRequire } from 'node:module';

const [, , modules, port, issuer, secret, redirect, certificate, key] = process.argv;
const { Provider } = await import(createRequire(`${modules}/`).resolve('oidc-provider'));
const provider = new Provider(issuer, {
  clients: ['muster', 'another'].map((client_id) => ({
    client_id,
    client_secret: secret,
    redirect_uris: [redirect],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: 'native',
  })),
  claims: { openid: ['sub'], groups: ['groups'] },
  conformIdTokenClaims: false,
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, groups: [`group-of-${id}`] }) }),
  ttl: { IdToken: (ctx) => (ctx.oidc.account?.accountId === 'brief' ? 8 : 3600) },
  features: { revocation: { enabled: true } },
});
provider.on('grant.success', (ctx) => console.log(ctx.oidc.params.grant_type));
const server = certificate
  ? createTlsServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback())
  : createPlainServer(provider.callback());
server.listen(Number(port), '127.0.0.1', () => console.log('up'));
