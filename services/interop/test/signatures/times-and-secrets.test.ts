/** The window of signed times, and live secrets. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { verifyWebhook } from '../../src/signatures/verify.ts';
import {
  accepted,
  hmacSecret,
  OTHER_SECRET,
  refused,
  SECRET,
  TIME,
  TIME_S,
  TIMED,
  TOLERANCE_MS,
  VARIANTS,
  verify,
  WALL_MS,
} from './requests.ts';

const BODY = Buffer.from('{"id":"evt_1", "type":"invoice.paid"}');

test('a time outside the window is EXPIRED_TOKEN; both ends of the window are inside', async () => {
  for (const variant of TIMED) {
    for (const distance_s of [-300, -1, 0, 1, 300])
      await accepted(variant.sign(BODY, SECRET, String(TIME_S + distance_s)), `${variant.name} ${distance_s}`);
    for (const distance_s of [-360, -301, 301, 360])
      await refused(
        variant.sign(BODY, SECRET, String(TIME_S + distance_s)),
        'EXPIRED_TOKEN',
        `${variant.name} ${distance_s}`,
      );
    const lastMoment = { ...variant.sign(BODY), wall_ms: WALL_MS + TOLERANCE_MS + 999 };
    await accepted(lastMoment, `${variant.name}: whole seconds are compared`);
    await refused({ ...lastMoment, wall_ms: lastMoment.wall_ms + 1 }, 'EXPIRED_TOKEN', variant.name);
  }
});

test('a forger learns nothing of the clock: an old time with a wrong signature is BAD_ORIGIN', async () => {
  for (const variant of TIMED) {
    if (variant.name === 'standard v1a') continue;
    await refused(
      { ...variant.sign(BODY, OTHER_SECRET, String(TIME_S - 360)), secrets: [hmacSecret(SECRET)] },
      'BAD_ORIGIN',
      variant.name,
    );
  }
});

test('a time in another notation is refused, even if it is signed', async () => {
  for (const variant of TIMED) {
    for (const time of [
      '',
      ` ${TIME}`,
      `${TIME} `,
      `+${TIME}`,
      `-${TIME}`,
      `${TIME}.0`,
      '1.7e9',
      '0x6553f100',
      `${TIME}000`,
      '１７',
    ]) {
      const sent = variant.sign(BODY, SECRET, time);
      await refused(sent, 'BAD_ORIGIN', `${variant.name} "${time}"`);
    }
  }
});

test('two live secrets are accepted, each with its version; a rotated-out one is refused', async () => {
  for (const variant of VARIANTS) {
    if (variant.name === 'standard v1a') continue;
    const secrets = [hmacSecret(OTHER_SECRET, 4), hmacSecret(SECRET, 3)];
    const older = await verify({ ...variant.sign(BODY, SECRET), secrets });
    assert.equal(older.ok && older.secret_version, 3, variant.name);
    const newer = await verify({ ...variant.sign(BODY, OTHER_SECRET), secrets });
    assert.equal(newer.ok && newer.secret_version, 4, variant.name);
    await refused({ ...variant.sign(BODY, SECRET), secrets: secrets.slice(0, 1) }, 'BAD_ORIGIN', variant.name);
    await refused({ ...variant.sign(BODY, SECRET), secrets: [] }, 'BAD_ORIGIN', `${variant.name} without secrets`);
  }
});

test('a generic provider without a template accepts nothing', async () => {
  const { headers } = VARIANTS[5]!.sign(BODY);
  await refused({ scheme: 'generic', headers, body: BODY }, 'BAD_ORIGIN', 'no template');
});

test('the error of a turn that does not come is passed on', async () => {
  for (const variant of VARIANTS) {
    const { scheme, generic, headers, secrets = [hmacSecret(SECRET)] } = variant.sign(BODY);
    const left = new Error('the client left');
    const init = {
      scheme,
      secrets,
      wall_ms: WALL_MS,
      tolerance_ms: TOLERANCE_MS,
      takeTurn: () => Promise.reject(left),
    };
    const headerValues = (wanted: string): string[] =>
      headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
    const verification = verifyWebhook(
      { headerValues, body: BODY },
      generic === undefined ? init : { ...init, generic },
    );
    await assert.rejects(verification, left);
  }
});
