/** Objects of every kind of size, the modes in which their routes are tested, and checks of every answer. */
import assert from 'node:assert/strict';
import { addressOf, type Reply } from '@ron/testkit/service';
import { AMNESIA, FAST_PATH_OFF, startService, type TestService } from './support.ts';
import { bytesOf, KIB } from '@ron/testkit';

export const MODES = {
  'on disk': [],
  'on disk, without the fast path': FAST_PATH_OFF,
  'in memory': AMNESIA,
  'in memory, without the fast path': [...AMNESIA, ...FAST_PATH_OFF],
} as const;

export const SMALL = bytesOf(3000, 1);
export const LARGE = bytesOf(200 * KIB + 17, 2);
export const EMPTY = Buffer.alloc(0);
export const CHUNK = bytesOf(64 * KIB, 3);
export const ABSENT = addressOf(Buffer.from('not stored'));
export const STORED = { small: SMALL, large: LARGE, empty: EMPTY, chunk: CHUNK };
export const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

/** A service that stores `STORED`, each of them read once, so that small objects are in memory. */
export async function startWithObjects(flags: readonly string[]): Promise<TestService> {
  const service = await startService({ flags });
  for (const bytes of Object.values(STORED)) await service.put(bytes, { 'content-type': 'application/x-test' });
  for (const bytes of Object.values(STORED)) await service.send('GET', pathOf(bytes));
  return service;
}

export function assertCommon(reply: Reply): void {
  assert.equal(reply.headers['x-content-type-options'], 'nosniff');
  assert.equal(reply.headers['referrer-policy'], 'no-referrer');
  assert.equal(reply.headers['access-control-allow-origin'], undefined);
  assert.match(String(reply.headers['x-corr-id']), /^[0-9A-Z]{26}$/);
}
