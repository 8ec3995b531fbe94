/** A token whose process is killed under load and started again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, sleep } from '@ron/kernel';
import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, RemoteHsm, TEST_TOOLS } from '../src/testing/index.ts';

const { signal } = new AbortController();
const skip = missing(TEST_TOOLS.remote_hsm) ?? false;
/** The deadline that a service gives a call. */
const DEADLINE_MS = 2000;

for (const sessions of [1, 2, 4]) {
  const promise =
    'callers are refused in time while the token is dead, and served again with the same keys after it restarts';
  test(`${promise} (sessions: ${sessions})`, { skip }, async () => {
    await using hsm = await RemoteHsm.start();
    const { module, token, pin } = hsm;
    const opening_ms = performance.now();
    await using backend = await Pkcs11Backend.open({ module, token, pin, sessions, signal });
    // One caller has to wait while the token is reopened; that time depends on the machine.
    const open_ms = performance.now() - opening_ms;
    const { key } = await backend.create('hmac-sha256', '', signal);
    const secret = await backend.derive(key, 'label', 32, signal);
    const load = { isWanted: true, served: 0, refused: 0, slowest_ms: 0 };
    const callers = Array.from({ length: 8 }, async () => {
      while (load.isWanted) {
        const started_ms = performance.now();
        try {
          assert.deepEqual(await backend.derive(key, 'label', 32, signal), secret);
          load.served += 1;
        } catch (error) {
          assert.ok(isRonError(error, 'not_ready'), String(error));
          load.refused += 1;
          // Like a client that honours Retry-After.
          await sleep(Math.min(error.retry_after_ms ?? 0, 20), signal);
        }
        load.slowest_ms = Math.max(load.slowest_ms, performance.now() - started_ms);
      }
    });
    const until = async (condition: () => boolean): Promise<void> => {
      const deadline = AbortSignal.timeout(20_000);
      while (!condition()) await sleep(2, deadline);
    };
    for (let death = 0; death < 3; death++) {
      const { served, refused } = load;
      await until(() => load.served > served + 50);
      await hsm.kill();
      // With several sessions, faster answers arrive in between.
      await until(() => load.refused > refused + 10 && !backend.state().ok);
      await hsm.revive();
      const before = load.served;
      await until(() => load.served > before && backend.state().ok);
      assert.equal(backend.state().reason, '');
    }
    load.isWanted = false;
    await Promise.all(callers);
    const { slowest_ms } = load;
    assert.ok(slowest_ms < DEADLINE_MS + open_ms, `the slowest call took ${slowest_ms} ms, opening ${open_ms} ms`);
  });
}

test(
  'the module is not finalized under a hanging call; the token recovers once the call has ended',
  { skip },
  async () => {
    await using hsm = await RemoteHsm.start();
    const { module, token, pin } = hsm;
    await using backend = await Pkcs11Backend.open({ module, token, pin, sessions: 2, call_ms_max: 3000, signal });
    const { key } = await backend.create('hmac-sha256', '', signal);
    const secret = await backend.derive(key, 'label', 32, signal);
    hsm.freeze();
    const refused = (error: unknown): boolean => isRonError(error, 'timeout') || isRonError(error, 'not_ready');
    const hanging = Array.from({ length: 4 }, () => assert.rejects(backend.derive(key, 'label', 32, signal), refused));
    await Promise.all(hanging);
    assert.equal(backend.state().ok, false);
    // Probes meet the hanging calls and must not restart the module under them.
    for (let probe = 0; probe < 3; probe++) await assert.rejects(backend.probe(signal), refused);
    await hsm.kill();
    await hsm.revive();
    const deadline = AbortSignal.timeout(20_000);
    const isBack = (): Promise<boolean> =>
      backend.probe(signal).then(
        () => true,
        () => false,
      );
    while (!(await isBack())) await sleep(20, deadline);
    assert.deepEqual(await backend.derive(key, 'label', 32, signal), secret);
  },
);
