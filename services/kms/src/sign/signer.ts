/**
 * Signs with the current version of a key, and with no other.
 *
 * Promise: a signature is given out only if its version was still the current one when it was done. A rotation that came
 * in between makes it sign again with the new version, or refuse when the caller had named the old one: once a rotation
 * was answered, no request gets a signature of the retired version any more. The kid in the signed bytes is that of the key
 * that signed.
 * Bound: `ROTATIONS_MAX` tries. Cancellation: by the budget of the round that the work belongs to.
 */
import { BATCH_MAX, signCost_us, type Backend, type Signature } from '@ron/custody';
import { RonError, sched, type Batch, type Parked } from '@ron/kernel';
import type { KeyRegistry } from '../keys/key-registry.ts';
import type { Found } from '../keys/key-index.ts';
import { formatKid } from '../keys/kid.ts';
import { signedBytes, type Payload } from './message.ts';

/** A key that is rotated more often than this while it signs is being attacked or misused. */
const ROTATIONS_MAX = 4;
export interface SignRequest extends Payload {
  /** With a version: only if that is current. */
  readonly kid: string;
}

export interface Signed {
  /** Of the version that signed. */
  readonly kid: string;
  readonly found: Found;
  readonly signatures: readonly Signature[];
}

/** What a signature needs of a backend. */
export type SigningBackend = Pick<Backend, 'sign' | 'signMany'>;

interface Waiting {
  readonly message: Uint8Array;
  readonly answer: Parked<Signature[]>;
}

/**
 * The signatures that the jobs of one round ask for: they leave when all jobs have begun, those of one key together.
 *
 * Promise: each is answered once, with its own signatures or the error of its call.
 * Bound: `BATCH_MAX` messages in a call. Cancellation: by the signal of the round.
 */
export class SignRound implements Batch {
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
      // It never rejects: each message is answered.
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

  /** What signing so many bytes costs. Throws when there is no such key, or it does not sign. */
  cost_us(kid: string, message_bytes: number): number {
    const { record, version } = this.#registry.index.current(kid);
    if (version.handle === undefined) throw verifyOnly(record.name);
    return signCost_us(record.alg, message_bytes);
  }

  async sign(request: SignRequest, round: Pick<SignRound, 'sign'>): Promise<Signed> {
    for (let tries = 0; tries < ROTATIONS_MAX; tries++) {
      const found = this.#registry.index.current(request.kid);
      const { record, version } = found;
      if (version.handle === undefined) throw verifyOnly(record.name);
      const kid = formatKid(record.name, version.version);
      const signatures = await round.sign(version.handle, signedBytes(record.purpose, kid, request));
      // Loaded anew: the key may have been rotated in the meantime.
      if (this.#registry.index.current(request.kid).version.version === version.version)
        return { kid, found, signatures };
    }
    throw new RonError('busy', 'the key was rotated again and again while it signed', { op: 'sign' });
  }
}

export function verifyOnly(name: string): RonError {
  return new RonError('conflict', `${name} is a public key that was imported: it verifies, and nothing else`);
}
