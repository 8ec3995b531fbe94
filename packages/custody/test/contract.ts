/** The contract of every backend, see backend.ts. Each backend's own test file runs this suite. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { isRonError, type ErrorCode } from '@ron/kernel';
import {
  AAD_BYTES_MAX,
  ALGORITHMS,
  ALGS,
  BATCH_MAX,
  isKeyName,
  MESSAGE_BYTES_MAX,
  verifyWith,
  WRAP_BYTES_MAX,
  type Alg,
  type Backend,
  type KeyHandle,
  type Use,
} from '../src/index.ts';

export interface Subject {
  readonly backend: Backend;
  /** Opens the same keys in a new backend object, as after a restart; undefined if keys are not persistent. */
  reopen?(): Promise<Backend>;
  close(): Promise<void>;
}

export interface ContractInit {
  /** The reason why the suite cannot run here. */
  skip?: string | undefined;
  /** Runs of property tests. Default 50; fewer for slow backends. */
  runs?: number;
}

const { signal } = new AbortController();
const bytes = (text: string): Uint8Array => Buffer.from(text);
const EMPTY = new Uint8Array(0);
const SOME_KEY = { memory: '0'.repeat(32), file: '0'.repeat(32) } as Readonly<Record<string, string>>;

export async function rejectsWith(code: ErrorCode, work: Promise<unknown>): Promise<void> {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(isRonError(error, code), `expected ${code}, got ${String(error)}`);
    return true;
  });
}

/** Runs `run` for each algorithm of the backend with this use, with a new key. */
async function forEachKey(backend: Backend, use: Use, run: (handle: KeyHandle) => Promise<void>): Promise<number> {
  const algs = [...backend.algs].filter((alg) => ALGORITHMS[alg].use === use);
  for (const alg of algs) {
    const handle = await backend.create(alg, `contract ${alg}`, signal);
    await run(handle);
    await backend.destroy(handle.key, signal);
  }
  return algs.length;
}

/** The backend under test. Assigned before the tests, and again when it is reopened. */
interface Context {
  subject: Subject;
  backend: Backend;
}

export function backendContract(name: string, open: () => Promise<Subject>, init: ContractInit = {}): void {
  const { skip, runs = 50 } = init;
  // A separate test, so that the suite counts as skipped.
  if (skip !== undefined) return void test(`${name} keeps the contract of a backend`, { skip }, () => undefined);
  describe(`${name} keeps the contract of a backend`, () => {
    const context = {} as Context;
    before(async () => {
      context.subject = await open();
      context.backend = context.subject.backend;
    });
    after(() => context.subject?.close());
    readinessTests(context);
    signingTests(context);
    wrappingTests(context, runs);
    derivingTests(context);
    useTests(context);
    limitTests(context);
    lookupTests(context);
    cancellationTests(context);
    secrecyTests(context);
    lifetimeTests(context);
  });
}

function readinessTests(context: Context): void {
  test('it is ready and describes itself', () => {
    const { backend } = context;
    assert.deepEqual(backend.state(), { ok: true, reason: '' });
    assert.ok(backend.algs.size > 0 && backend.attestation_class.length > 0);
  });
}

function signingTests(context: Context): void {
  test('signatures verify against the public key, over exactly the bytes that were signed', async () => {
    const { backend } = context;
    await forEachKey(backend, 'sign', async ({ key, alg, public: parts }) => {
      assert.deepEqual(
        parts.map((part) => part.alg),
        ALGORITHMS[alg].signs,
      );
      const message = bytes('ron-kms/v1\nkid\nhash\n');
      const signatures = await backend.sign(key, message, signal);
      assert.deepEqual(
        signatures.map((each) => each.alg),
        ALGORITHMS[alg].signs,
      );
      for (const [index, part] of parts.entries()) {
        const { signature } = signatures[index] as { signature: Uint8Array };
        assert.equal(verifyWith(part, message, signature), true);
        assert.equal(verifyWith(part, bytes('something else'), signature), false);
        assert.equal(verifyWith(part, message, signature.with(3, (signature[3] as number) ^ 1)), false);
        assert.equal(verifyWith(part, message, EMPTY), false);
      }
    });
  });

  test('a batch equals its messages signed one by one, in order, including empty messages', async () => {
    const { backend } = context;
    await forEachKey(backend, 'sign', async ({ key, public: parts }) => {
      const messages = [EMPTY, ...Array.from({ length: 20 }, (_, index) => bytes(`message ${index}`))];
      const signed = await backend.signMany(key, messages, signal);
      assert.equal(signed.length, messages.length);
      for (const [index, message] of messages.entries()) {
        for (const [at, part] of parts.entries()) {
          assert.equal(verifyWith(part, message, signed[index]?.[at]?.signature ?? EMPTY), true);
        }
      }
    });
  });
}

function wrappingTests(context: Context, runs: number): void {
  test('a wrapped key unwraps only with the same key and the same additional data', async () => {
    const { backend } = context;
    await forEachKey(backend, 'wrap', async ({ key, alg }) => {
      const other = await backend.create(alg, 'other', signal);
      const property = fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), fc.uint8Array(), async (plaintext, aad) => {
        const wrapped = await backend.wrap(key, plaintext, aad, signal);
        assert.deepEqual(Buffer.from(await backend.unwrap(key, wrapped, aad, signal)), Buffer.from(plaintext));
        await rejectsWith('validation', backend.unwrap(key, wrapped, Buffer.concat([aad, bytes('x')]), signal));
        await rejectsWith('validation', backend.unwrap(other.key, wrapped, aad, signal));
        const at = Math.floor(wrapped.length / 2);
        const damaged = Uint8Array.from(wrapped).with(at, (wrapped[at] as number) ^ 1);
        await rejectsWith('validation', backend.unwrap(key, damaged, aad, signal));
      });
      await fc.assert(property, { numRuns: Math.ceil(runs / 5) });
      await backend.destroy(other.key, signal);
    });
  });

  test('arbitrary bytes are refused by unwrap', async () => {
    const { backend } = context;
    await forEachKey(backend, 'wrap', async ({ key }) => {
      const wrapped = await backend.wrap(key, bytes('a data key'), EMPTY, signal);
      const junk = fc.oneof(
        fc.uint8Array({ maxLength: 2000 }),
        fc.nat(wrapped.length - 1).map((length) => wrapped.slice(0, length)),
        fc.uint8Array({ minLength: 1, maxLength: 40 }).map((tail) => Buffer.concat([wrapped, tail])),
        fc
          .nat(255)
          .map((first) => Buffer.concat([Uint8Array.of(first === wrapped[0] ? 0 : first), wrapped.subarray(1)])),
      );
      const property = fc.asyncProperty(junk, (each) =>
        rejectsWith('validation', backend.unwrap(key, each, EMPTY, signal)),
      );
      await fc.assert(property, { numRuns: runs });
    });
  });

  test('wrapping the same plaintext twice gives different bytes', async () => {
    const { backend } = context;
    await forEachKey(backend, 'wrap', async ({ key }) => {
      const wraps = await Promise.all(
        Array.from({ length: 20 }, () => backend.wrap(key, bytes('same'), EMPTY, signal)),
      );
      assert.equal(new Set(wraps.map((each) => Buffer.from(each).toString('hex'))).size, wraps.length);
    });
  });
}

function derivingTests(context: Context): void {
  test('derived secrets depend on key and label only, and a shorter one is a prefix of a longer one', async () => {
    const { backend } = context;
    await forEachKey(backend, 'derive', async ({ key, alg }) => {
      const [once, again, longer, otherLabel] = await Promise.all([
        backend.derive(key, 'audience/storage/k1', 32, signal),
        backend.derive(key, 'audience/storage/k1', 32, signal),
        backend.derive(key, 'audience/storage/k1', 77, signal),
        backend.derive(key, 'audience/kms/k1', 32, signal),
      ]);
      assert.deepEqual(once, again);
      assert.deepEqual(longer.subarray(0, 32), once);
      assert.equal(longer.length, 77);
      assert.notDeepEqual(once, otherLabel);
      const other = await backend.create(alg, 'other', signal);
      assert.notDeepEqual(await backend.derive(other.key, 'audience/storage/k1', 32, signal), once);
      await backend.destroy(other.key, signal);
    });
  });
}

function useTests(context: Context): void {
  test('a key has exactly one use', async () => {
    const { backend } = context;
    for (const alg of backend.algs) {
      const { key } = await backend.create(alg, '', signal);
      const { use } = ALGORITHMS[alg];
      if (use !== 'sign') {
        await rejectsWith('validation', backend.sign(key, EMPTY, signal));
        await rejectsWith('validation', backend.signMany(key, [EMPTY], signal));
      }
      if (use !== 'wrap') {
        await rejectsWith('validation', backend.wrap(key, EMPTY, EMPTY, signal));
        await rejectsWith('validation', backend.unwrap(key, EMPTY, EMPTY, signal));
      }
      if (use !== 'derive') await rejectsWith('validation', backend.derive(key, 'label', 32, signal));
      await backend.destroy(key, signal);
    }
  });

  test('an unsupported algorithm is refused', async () => {
    const { backend } = context;
    for (const alg of ALGS.filter((each) => !backend.algs.has(each))) {
      await rejectsWith('validation', backend.create(alg, '', signal));
    }
    await rejectsWith('validation', backend.create('rsa' as Alg, '', signal));
  });
}

function limitTests(context: Context): void {
  test('inputs are refused above the limit, not at it', async () => {
    const { backend } = context;
    await forEachKey(backend, 'sign', async ({ key }) => {
      await backend.sign(key, new Uint8Array(MESSAGE_BYTES_MAX), signal);
      await rejectsWith('payload_too_large', backend.sign(key, new Uint8Array(MESSAGE_BYTES_MAX + 1), signal));
      await rejectsWith(
        'payload_too_large',
        backend.signMany(
          key,
          Array.from({ length: BATCH_MAX + 1 }, () => EMPTY),
          signal,
        ),
      );
    });
    await forEachKey(backend, 'wrap', async ({ key }) => {
      const plaintext = randomBytes(WRAP_BYTES_MAX);
      const aad = randomBytes(AAD_BYTES_MAX);
      const wrapped = await backend.wrap(key, plaintext, aad, signal);
      assert.deepEqual(Buffer.from(await backend.unwrap(key, wrapped, aad, signal)), plaintext);
      await rejectsWith('payload_too_large', backend.wrap(key, new Uint8Array(WRAP_BYTES_MAX + 1), EMPTY, signal));
      await rejectsWith('payload_too_large', backend.wrap(key, EMPTY, new Uint8Array(AAD_BYTES_MAX + 1), signal));
      await rejectsWith('payload_too_large', backend.unwrap(key, new Uint8Array(2 * WRAP_BYTES_MAX), EMPTY, signal));
    });
    await forEachKey(backend, 'derive', async ({ key }) => {
      await rejectsWith('validation', backend.derive(key, '', 32, signal));
      await rejectsWith('validation', backend.derive(key, 'x'.repeat(257), 32, signal));
      for (const count of [0, -1, 1.5, 1025, Number.NaN]) {
        await rejectsWith('validation', backend.derive(key, 'label', count, signal));
      }
    });
    await rejectsWith('validation', backend.create([...backend.algs][0] as Alg, 'x'.repeat(257), signal));
  });
}

function lookupTests(context: Context): void {
  test('unknown keys, keys of another algorithm and invalid names are not found; destroying them succeeds', async () => {
    const { backend } = context;
    const [alg] = backend.algs as ReadonlySet<Alg> & Iterable<Alg>;
    assert.ok(alg !== undefined);
    const unknown = SOME_KEY[backend.name] ?? `${alg}.${'0'.repeat(32)}`;
    for (const key of [unknown, '', '..', '../keys', 'a/b', 'a\0b', `${alg}.`, 'ü', 'x'.repeat(1000)]) {
      await rejectsWith('not_found', backend.open(key, alg, signal));
      await backend.destroy(key, signal);
    }
    const { key } = await backend.create(alg, '', signal);
    assert.ok(isKeyName(key));
    const other = ALGS.find((each) => each !== alg) as Alg;
    await rejectsWith('not_found', backend.open(key, other, signal));
    await backend.destroy(key, signal);
  });

  test('a destroyed key cannot be used, and destroying it again succeeds', async () => {
    const { backend } = context;
    for (const alg of backend.algs) {
      const { key } = await backend.create(alg, '', signal);
      const { use } = ALGORITHMS[alg];
      const work = (): Promise<unknown> => {
        if (use === 'sign') return backend.sign(key, EMPTY, signal);
        return use === 'wrap' ? backend.wrap(key, EMPTY, EMPTY, signal) : backend.derive(key, 'label', 32, signal);
      };
      // Concurrent calls, so that every thread and session of the backend has seen the key.
      await Promise.all(Array.from({ length: 4 }, work));
      await backend.destroy(key, signal);
      await Promise.all(Array.from({ length: 4 }, () => rejectsWith('not_found', work())));
      await rejectsWith('not_found', backend.open(key, alg, signal));
      await backend.destroy(key, signal);
    }
  });
}

function cancellationTests(context: Context): void {
  test('an aborted signal rejects every call with its reason', async () => {
    const { backend } = context;
    const [alg] = [...backend.algs];
    const { key } = await backend.create(alg as Alg, '', signal);
    const reason = new Error('enough');
    const aborted = AbortSignal.abort(reason);
    const calls: Promise<unknown>[] = [
      backend.create(alg as Alg, '', aborted),
      backend.open(key, alg as Alg, aborted),
      backend.destroy(key, aborted),
    ];
    for (const call of calls) await assert.rejects(call, reason);
    await backend.open(key, alg as Alg, signal);
    await backend.destroy(key, signal);
  });
}

function secrecyTests(context: Context): void {
  test('no printed form of the backend contains a secret', async () => {
    const { backend } = context;
    const { inspect } = await import('node:util');
    for (const alg of backend.algs) {
      const handle = await backend.create(alg, '', signal);
      assert.deepEqual(Object.keys(handle).toSorted(), ['alg', 'key', 'public']);
      const printed = inspect(backend, { depth: 10, showHidden: true }) + JSON.stringify(backend);
      assert.doesNotMatch(printed, /PrivateKeyObject|SecretKeyObject|Buffer\(|pin|secret/i);
      await backend.destroy(handle.key, signal);
    }
  });
}

function lifetimeTests(context: Context): void {
  test('keys survive reopening if the backend is persistent', async (t) => {
    let { backend } = context;
    const reopen = context.subject.reopen?.bind(context.subject);
    if (reopen === undefined) return t.skip('its keys are not persistent');
    const handles = await Promise.all([...backend.algs].map((alg) => backend.create(alg, 'kept', signal)));
    const gone = await backend.create([...backend.algs][0] as Alg, 'gone', signal);
    const wrapped = new Map<string, Uint8Array>();
    const derived = new Map<string, Uint8Array>();
    for (const { key, alg } of handles) {
      const { use } = ALGORITHMS[alg];
      if (use === 'wrap') wrapped.set(key, await backend.wrap(key, bytes('plain'), EMPTY, signal));
      if (use === 'derive') derived.set(key, await backend.derive(key, 'label', 32, signal));
    }
    await backend.destroy(gone.key, signal);
    await backend.close();
    backend = context.backend = await reopen();
    for (const handle of handles) assert.deepEqual(await backend.open(handle.key, handle.alg, signal), handle);
    for (const [key, each] of wrapped) {
      assert.equal(Buffer.from(await backend.unwrap(key, each, EMPTY, signal)).toString(), 'plain');
    }
    for (const [key, each] of derived) assert.deepEqual(await backend.derive(key, 'label', 32, signal), each);
    for (const { key, alg, public: parts } of handles.filter((each) => ALGORITHMS[each.alg].use === 'sign')) {
      const [signature] = await backend.sign(key, bytes(alg), signal);
      assert.equal(verifyWith(parts[0] as never, bytes(alg), signature?.signature ?? EMPTY), true);
    }
    await rejectsWith('not_found', backend.open(gone.key, gone.alg, signal));
  });

  test('calls after close are refused, and closing again succeeds', async () => {
    const { backend } = context;
    await backend.close();
    await backend.close();
    assert.equal(backend.state().ok, false);
    await rejectsWith('not_ready', backend.create([...backend.algs][0] as Alg, '', signal));
  });
}
