/** Requests that are almost right. Each is refused with a reason of the closed set, and nothing throws. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accepted, GENERIC, hmac, refused, SECRET, TIME, VARIANTS, withHeader, withoutHeader } from './requests.ts';

const BODY = Buffer.from('{"id":"evt_1", "type":"invoice.paid"}');

test('a correct request of each scheme is accepted, of any size', async () => {
  for (const variant of VARIANTS) {
    for (const size of [0, 1, 256 * 1024, 256 * 1024 + 1, 1024 * 1024])
      await accepted(variant.sign(Buffer.alloc(size, 'x')), `${variant.name} ${size}`);
  }
});

test('a request without one of its headers is refused', async () => {
  for (const variant of VARIANTS) {
    const sent = variant.sign(BODY);
    for (const [name] of sent.headers)
      await refused(withoutHeader(sent, name.toLowerCase()), 'BAD_ORIGIN', `${variant.name} without ${name}`);
    await refused({ ...sent, headers: [] }, 'BAD_ORIGIN', `${variant.name} without headers`);
  }
});

test('a request with a header twice is refused, even if both are right', async () => {
  for (const variant of VARIANTS) {
    const sent = variant.sign(BODY);
    for (const header of sent.headers)
      await refused({ ...sent, headers: [...sent.headers, header] }, 'BAD_ORIGIN', `${variant.name} ${header[0]}`);
  }
});

test('unsigned headers that describe a delivery must not be repeated either', async () => {
  const github = VARIANTS[0]!.sign(BODY);
  for (const name of ['X-GitHub-Delivery', 'X-GitHub-Event']) {
    const line = [name, 'x'] as const;
    await accepted({ ...github, headers: [...github.headers, line] }, name);
    await refused({ ...github, headers: [...github.headers, line, line] }, 'BAD_ORIGIN', name);
  }
  const template = { ...GENERIC, template: '{timestamp}.{body}' };
  const value = `sha512=${hmac(SECRET, `${TIME}.`, BODY, 'sha512').toString('hex')}`;
  const headers = [['X-Time', TIME] as const, ['X-Sign', value] as const, ['X-Id', 'a'] as const];
  await accepted({ scheme: 'generic', generic: template, headers, body: BODY }, 'generic');
  const doubled = [...headers, ['X-Id', 'a'] as const];
  await refused({ scheme: 'generic', generic: template, headers: doubled, body: BODY }, 'BAD_ORIGIN', 'generic');
});

test('a signature in another spelling is refused: cut, longer, other case, other base, white space, no prefix', async () => {
  const changes: readonly (readonly [string, (value: string) => string])[] = [
    ['empty', () => ''],
    ['upper case', (value) => value.toUpperCase()],
    ['upper-case hex', (value) => value.replace(/[0-9a-f]{64,}/, (hex) => hex.toUpperCase())],
    ['one character less', (value) => value.slice(0, -1)],
    ['two characters less', (value) => value.slice(0, -2)],
    ['half', (value) => value.slice(0, value.length / 2)],
    ['one character more', (value) => `${value}0`],
    ['two characters more', (value) => `${value}00`],
    ['without its prefix', (value) => value.replace(/^(sha256=|v0=|t=\d+,v1=|v1a?,|sha512=)/, '')],
    ['prefix in upper case', (value) => value.replace(/^(sha256|v0|t=\d+,v1|v1a?|sha512)/, (at) => at.toUpperCase())],
    ['another version', (value) => value.replace(/(sha256=|v0=|,v1=|^v1a?,|sha512=)/, 'v9=')],
    ['a space in front', (value) => ` ${value}`],
    ['a space after the prefix', (value) => value.replace(/(sha256=|v0=|,v1=|^v1a?,|sha512=)/, '$1 ')],
    ['base64url', (value) => `${value.slice(0, -4)}-_-_`],
    ['hex with a prefix 0x', (value) => value.replace(/([0-9a-f]{2})([0-9a-f]{62,})/, '0x$2')],
  ];
  for (const variant of VARIANTS) {
    const sent = variant.sign(BODY);
    for (const [name, change] of changes) {
      const changed = withHeader(sent, variant.signature_header, change);
      if (JSON.stringify(changed.headers) === JSON.stringify(sent.headers)) continue;
      await refused(changed, 'BAD_ORIGIN', `${variant.name}: ${name}`);
    }
  }
});

test('base64 with stray bits or without padding is refused', async () => {
  const sent = VARIANTS[3]!.sign(BODY);
  const stray = withHeader(sent, 'webhook-signature', (value) => {
    const last = value.at(-2)!;
    const next = String.fromCharCode(last.charCodeAt(0) + 1);
    return `${value.slice(0, -2)}${next}=`;
  });
  assert.deepEqual(
    Buffer.from(stray.headers[2]![1].slice(3), 'base64'),
    Buffer.from(sent.headers[2]![1].slice(3), 'base64'),
    'both texts have the same bytes',
  );
  await refused(stray, 'BAD_ORIGIN', 'stray bits');
  await refused(
    withHeader(sent, 'webhook-signature', (value) => value.slice(0, -1)),
    'BAD_ORIGIN',
    'no padding',
  );
});

test('the headers of one scheme do not pass for another', async () => {
  for (const from of VARIANTS) {
    for (const to of VARIANTS) {
      if (from.name.split(' ')[0] === to.name.split(' ')[0]) continue;
      const { headers } = from.sign(BODY);
      await refused({ ...to.sign(BODY), headers }, 'BAD_ORIGIN', `${from.name} at ${to.name}`);
    }
  }
});

test('a body that was parsed and serialized again is refused', async () => {
  const again = Buffer.from(JSON.stringify(JSON.parse(BODY.toString())));
  assert.notDeepEqual(again, BODY);
  for (const variant of VARIANTS) await refused({ ...variant.sign(BODY), body: again }, 'BAD_ORIGIN', variant.name);
});
