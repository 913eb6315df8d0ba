// A real provider of OpenID Connect on loopback: oidc-provider, with its own pages for signing in and for consent.
import { createRequire } from 'node:module';

const [, , modules, port, secret, redirect] = process.argv;
const { Provider } = await import(createRequire(`${modules}/`).resolve('oidc-provider'));
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'muster',
    client_secret: secret,
    redirect_uris: [redirect],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: 'native',
  }],
  features: { revocation: { enabled: true } },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('up'));
