import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Check } from '@ron/custody';
import { NEVER } from '@ron/kernel';
import { indexOf } from '../keys/testing.ts';
import type { KeyRecord } from '../keys/key-record.ts';
import { checkSemaphore, Freshness, Verifier } from './verifier.ts';

const nameOf = (tenant: string): string => `${tenant}/raw/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10`;
const keyOf = (tenant: string): KeyRecord => ({
  name: nameOf(tenant),
  tenant,
  purpose: 'raw',
  alg: 'ed25519',
  verify_mode: 'or',
  min_version: 1,
  imported: false,
  versions: [
    { version: 1, handle: 'k1', public: [{ alg: 'ed25519', pubkey_b64: '' }], created_ms: 0 },
  ] as KeyRecord['versions'],
});

/** A verifier whose threads end a check when the test ends it. */
function setUp() {
  const begun: { bytes: number; end: () => void }[] = [];
  const limit = checkSemaphore(512);
  const verifier = new Verifier({
    index: () => indexOf(...['flood', 'zoo'].map(keyOf)),
    freshness: new Freshness(() => 1000),
    threads: {
      verify: (checks: readonly Check[]) => {
        const { promise, resolve } = Promise.withResolvers<boolean[]>();
        begun.push({ bytes: checks[0]!.message.length, end: () => resolve(checks.map(() => true)) });
        return promise;
      },
    },
    limit,
  });
  const verify = (tenant: string, bytes: number) =>
    verifier.verify(
      {
        kid: nameOf(tenant),
        message: new Uint8Array(bytes),
        sigs: [{ alg: 'ed25519', signature: new Uint8Array(64) }],
      },
      NEVER,
    );
  const endAll = async (): Promise<void> => {
    for (let at = 0; at < begun.length || limit.depth > 0; at++) {
      begun[at]!.end();
      await new Promise((resolve) => void setImmediate(resolve));
    }
  };
  return { begun, verify, endAll };
}

test('long messages count by their cost: fewer of them are in the threads at a time', async () => {
  const atOnce = async (bytes: number): Promise<number> => {
    const { begun, verify, endAll } = setUp();
    const all = Array.from({ length: 200 }, () => verify('flood', bytes));
    const count = begun.length;
    await endAll();
    assert.ok((await Promise.all(all)).every(({ ok }) => ok));
    return count;
  };
  const [short, long] = [await atOnce(32), await atOnce(64 * 1024)];
  assert.ok(short > 1 && short < 200, `${short} short ones at once`);
  assert.ok(2 * long < short, `${long} long ones at once, ${short} short ones`);
});

test('a tenant is served between the verifications of another that floods', async () => {
  const { begun, verify, endAll } = setUp();
  const flood = Array.from({ length: 200 }, () => verify('flood', 32));
  const atOnce = begun.length;
  const zoo = verify('zoo', 33);
  await endAll();
  assert.ok((await zoo).ok);
  await Promise.all(flood);
  const place = begun.findIndex(({ bytes }) => bytes > begun[0]!.bytes) - atOnce;
  assert.ok(place < 20, `behind ${place} of ${200 - atOnce} that waited before`);
});
