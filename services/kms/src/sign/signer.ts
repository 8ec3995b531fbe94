/**
 * Signs with the current version of a key only.
 *
 * Contract: a signature is returned only if its version was still current when it was made. After a concurrent rotation it
 * signs again with the new version, or refuses if the caller named the old one: once a rotation has been acknowledged, no
 * request gets a signature of the retired version. Likewise a key that was disabled or deleted meanwhile returns none. The
 * kid in the signed bytes is that of the signing key.
 * Bound: `ROTATIONS_MAX` attempts. Cancellation: by the budget of the batch that the work belongs to.
 */
import { BATCH_MAX, signCost_us, type Backend, type Signature } from '@ron/custody';
import { RonError, sched, type Batch, type Parked } from '@ron/kernel';
import type { KeyRegistry } from '../keys/key-registry.ts';
import type { Found } from '../keys/key-index.ts';
import { requireEnabled, type KeyVersion } from '../keys/key-record.ts';
import { formatKid } from '../keys/kid.ts';
import { signedBytes, type Payload } from './message.ts';

/** A key that is rotated more often than this during one signature is being attacked or misused. */
const ROTATIONS_MAX = 4;
export interface SignRequest extends Payload {
  /** If it has a version, that version must be current. */
  readonly kid: string;
}

export interface Signed {
  /** The kid of the version that signed. */
  readonly kid: string;
  readonly found: Found;
  readonly signatures: readonly Signature[];
}

/** A version with key material. */
interface Signing extends Found {
  readonly version: KeyVersion & { readonly handle: string };
}

/** The part of a backend that signs. */
export type SigningBackend = Pick<Backend, 'sign' | 'signMany'>;

interface Waiting {
  readonly message: Uint8Array;
  readonly answer: Parked<Signature[]>;
}

/**
 * Collects the signatures of one batch of jobs and sends them once all jobs have begun, grouped by key.
 *
 * Contract: each request settles once, with its own signatures or the error of its call.
 * Bound: `BATCH_MAX` messages per call. Cancellation: by the signal of the batch.
 */
export class SignBatch implements Batch {
  readonly #backend: SigningBackend;
  readonly #lines = new Map<string, Waiting[]>();
  /** Set when all jobs have begun. */
  #signal: AbortSignal | undefined;

  constructor(backend: SigningBackend) {
    this.#backend = backend;
  }

  sign(handle: string, message: Uint8Array): Promise<Signature[]> {
    if (this.#signal !== undefined) return this.#backend.sign(handle, message, this.#signal);
    const answer = sched.park<Signature[]>('sign.backend');
    const line = this.#lines.get(handle);
    if (line === undefined) this.#lines.set(handle, [{ message, answer }]);
    else line.push({ message, answer });
    return answer.promise;
  }

  begun(signal: AbortSignal): void {
    this.#signal = signal;
    for (const [handle, line] of this.#lines) {
      // Never rejects: each request gets its own error.
      for (let at = 0; at < line.length; at += BATCH_MAX)
        void this.#call(handle, line.slice(at, at + BATCH_MAX), signal);
    }
  }

  async #call(handle: string, batch: readonly Waiting[], signal: AbortSignal): Promise<void> {
    try {
      const messages = batch.map(({ message }) => message);
      const signed = await this.#backend.signMany(handle, messages, signal);
      for (let at = 0; at < batch.length; at++) batch[at]!.answer.wake(signed[at]!);
    } catch (error) {
      for (const { answer } of batch) answer.fail(error);
    }
  }
}

export class Signer {
  readonly #registry: Pick<KeyRegistry, 'index'>;

  constructor(registry: Pick<KeyRegistry, 'index'>) {
    this.#registry = registry;
  }

  /** The cost of signing so many bytes. Throws if the key does not exist or cannot sign. */
  cost_us(kid: string, message_bytes: number): number {
    return signCost_us(this.#current(kid).record.alg, message_bytes);
  }

  async sign(request: SignRequest, batch: Pick<SignBatch, 'sign'>): Promise<Signed> {
    for (let tries = 0; tries < ROTATIONS_MAX; tries++) {
      const found = this.#current(request.kid);
      const { record, version } = found;
      const kid = formatKid(record.name, version.version);
      const signatures = await batch.sign(version.handle, signedBytes(record.purpose, kid, request));
      // Load it again: the key may have been rotated, disabled or deleted meanwhile.
      if (this.#current(request.kid).version.version === version.version) return { kid, found, signatures };
    }
    throw new RonError('busy', 'the key was rotated too often during the signature', { op: 'sign' });
  }

  /** The current version. Throws if the key does not exist or cannot sign. */
  #current(kid: string): Signing {
    const found = this.#registry.index.current(kid);
    requireEnabled(found.record);
    if (found.version.handle === undefined) throw verifyOnly(found.record.name);
    return found as Signing;
  }
}

export function verifyOnly(name: string): RonError {
  return new RonError('conflict', `${name} is an imported public key and can only verify`);
}
