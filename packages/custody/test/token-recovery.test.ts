/** A token that loses its sessions, its module or its device: the errors that callers see, and its automatic recovery. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { isRonError, sleep } from '@ron/kernel';
import { verifyWith, type KeyHandle } from '../src/index.ts';
import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, SoftHsm, TEST_TOOLS } from '../src/testing/index.ts';

const { signal } = new AbortController();
const skip = missing(TEST_TOOLS.softhsm);
const MESSAGE = Buffer.from('message');

if (skip !== undefined) test('a token that dies recovers', { skip }, () => undefined);
else {
  describe('a token that dies recovers', () => {
    let hsm: SoftHsm;
    let backend: Pkcs11Backend;
    let handle: KeyHandle;
    before(async () => {
      hsm = await SoftHsm.start();
      backend = await Pkcs11Backend.open({ module: hsm.module, token: hsm.token, pin: hsm.pin, signal });
      handle = await backend.create('ed25519', '', signal);
    });
    after(() => backend.close());

    const signOnce = async (): Promise<void> => {
      const [signed] = await backend.sign(handle.key, MESSAGE, signal);
      assert.ok(verifyWith(handle.public[0] as never, MESSAGE, signed?.signature ?? new Uint8Array(0)));
    };

    test('killed sessions are reopened without an error', async () => {
      for (let kill = 0; kill < 5; kill++) {
        await Promise.all(Array.from({ length: 16 }, signOnce));
        // Between calls: SoftHSM itself crashes if a session is closed during a call.
        hsm.killSessions();
      }
      await Promise.all(Array.from({ length: 16 }, signOnce));
      assert.deepEqual(backend.state(), { ok: true, reason: '' });
    });

    test('a logged-out session logs in again; a hidden key is never reported as missing', async () => {
      const { module, token, pin } = hsm;
      hsm.logOut();
      await signOnce();
      await using fresh = await Pkcs11Backend.open({ module, token, pin, signal });
      const { key } = await backend.create('hmac-sha256', '', signal);
      hsm.logOut();
      // A backend that has not seen the key has to search for it.
      const derived = await fresh.derive(key, 'label', 32, signal);
      hsm.logOut();
      await fresh.destroy(key, signal);
      assert.equal(derived.length, 32);
      await assert.rejects(backend.derive(key, 'label', 32, signal), (error) => isRonError(error, 'not_found'));
      const pair = await backend.create('ed25519', '', signal);
      hsm.logOut();
      await backend.destroy(pair.key, signal);
      await assert.rejects(backend.sign(pair.key, MESSAGE, signal), (error) => isRonError(error, 'not_found'));
    });

    test('a module that was finalized elsewhere is restarted', async () => {
      hsm.finalize();
      await signOnce();
    });

    test('calls are refused immediately while the token is missing, and succeed once it returns', async () => {
      hsm.pullOut();
      hsm.finalize();
      await assert.rejects(signOnce, (error) => isRonError(error, 'not_ready'));
      assert.equal(backend.state().ok, false);
      assert.match(backend.state().reason, /no token with the label/);
      const refused_ms: number[] = [];
      for (let call = 0; call < 20; call++) {
        const started_ms = performance.now();
        await assert.rejects(signOnce, (error) => isRonError(error, 'not_ready') && (error.retry_after_ms ?? 0) > 0);
        refused_ms.push(performance.now() - started_ms);
      }
      assert.ok(
        (refused_ms.toSorted((a, b) => a - b)[10] as number) < 5,
        'most calls are refused without a call to the token',
      );
      await assert.rejects(backend.probe(signal), (error) => isRonError(error, 'not_ready'));
      hsm.plugIn();
      // SoftHSM searches for tokens when it starts; a real token is detected in its slot.
      hsm.finalize();
      const deadline = AbortSignal.timeout(10_000);
      while (
        !(await signOnce().then(
          () => true,
          () => false,
        ))
      )
        await sleep(20, deadline);
      assert.deepEqual(backend.state(), { ok: true, reason: '' });
    });

    test('probe restores the token without a caller', async () => {
      hsm.killSessions();
      await backend.probe(signal);
      assert.equal(backend.state().ok, true);
    });

    test('an aborted caller returns immediately, and the token keeps working', async () => {
      const calls = Array.from({ length: 10 }, (_, index) => {
        const controller = new AbortController();
        const batch = backend.signMany(
          handle.key,
          Array.from({ length: 128 }, () => MESSAGE),
          controller.signal,
        );
        if (index % 2 === 0) controller.abort(new Error('enough'));
        return batch.then(
          () => 'signed',
          (error: Error) => error.message,
        );
      });
      const outcomes = await Promise.all(calls);
      assert.deepEqual(outcomes, Array.from({ length: 5 }, () => ['enough', 'signed']).flat());
      await signOnce();
    });

    test('calls beyond the queue limit are busy and do not count as token failures', async () => {
      const calls = Array.from({ length: 200 }, () =>
        backend.sign(handle.key, MESSAGE, signal).then(() => 'ok', String),
      );
      const refused = (await Promise.all(calls)).filter((outcome) => outcome !== 'ok');
      assert.ok(refused.length > 0 && refused.every((outcome) => outcome.includes('full')));
      assert.equal(backend.state().ok, true);
    });

    test('a wrong PIN is sent once, and the error does not contain it', async () => {
      const init = JSON.stringify({ module: hsm.module, token: hsm.token, pin: '9999' });
      // A module does not check the PIN in a process that is already logged in.
      const source = `
        import { Pkcs11Backend } from ${JSON.stringify(import.meta.resolve('../src/pkcs11/pkcs11-backend.ts'))};
        const { signal } = new AbortController();
        await Pkcs11Backend.open({ ...${init}, signal }).catch((error) => {
          process.stdout.write(error.code + ': ' + error.message);
        });`;
      const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', source]);
      assert.match(stdout, /^unhealthy: the token refused the PIN \(CKR_PIN_INCORRECT\)/);
      assert.ok(!stdout.includes('9999'));
    });

    test('the error names the missing module or token', async () => {
      await assert.rejects(
        Pkcs11Backend.open({ module: '/nowhere.so', token: 'x', pin: 'x', signal }),
        (error) => isRonError(error, 'unhealthy') && error.message.includes('/nowhere.so'),
      );
      await assert.rejects(
        Pkcs11Backend.open({ module: hsm.module, token: 'no such token', pin: 'x', signal }),
        (error) => isRonError(error, 'not_ready') && error.message.includes('no such token'),
      );
    });
  });
}
