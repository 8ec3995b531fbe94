import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { createIngress, route, text, Type } from '@ron/ingress';
import { PageFiles } from '@ron/pages';
import { formatAddress } from '@ron/proto';
import { Metrics } from '@ron/telemetry';
import { noBrowser, openBrowser } from './browser.ts';

test('the whole client loads in Chromium and computes addresses there', { skip: noBrowser ?? false }, async () => {
  const root = new URL('../../../../', import.meta.url);
  const entries = { client: new URL('./client-in-a-page.ts', import.meta.url) };
  await using files = new PageFiles({ prefix: '/files/', root, entries, files: {} });
  const base = { method: 'GET', scope: null, lane: 'inline', body: 'none' } as const;
  const schema = { params: Type.Object({ '*': Type.String() }) };
  const routes = [
    route({
      ...base,
      path: '/',
      summary: 'The page.',
      handler: async ({ deadline }) => {
        const built = await files.built(deadline.signal);
        const policy = { 'Content-Security-Policy': `default-src 'self'; script-src ${built.script_src}` };
        return text(200, 'text/html', `<!doctype html><head>${built.head('client')}</head>`, policy);
      },
    }),
    route({
      ...base,
      path: '/files/*',
      summary: 'Its files.',
      schema,
      handler: async ({ params, deadline }) => (await files.built(deadline.signal)).answer(`/files/${params['*']}`),
    }),
  ];
  await using ingress = await createIngress({ service: 'page', version: '0', metrics: new Metrics('page'), routes });
  await ingress.listen();
  await using browser = await openBrowser();
  const page = await browser.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  await page.goto(ingress.url);
  const expected = formatAddress(blake3(Buffer.alloc(200_000, 7)));
  await page.waitForFunction(`document.title === '${expected}'`, undefined, { timeout: 60_000 }).catch(() => undefined);
  assert.deepEqual([await page.title(), problems], [expected, []]);
});
