/**
 * Signs with the current version of a key, and with no other.
 *
 * Promise: a signature is given out only if its version was still the current one when it was done. A rotation that came
 * in between makes it sign again with the new version, or refuse when the caller had named the old one: once a rotation
 * was answered, nobody gets a signature of the retired version any more. The kid in the signed bytes is that of the key
 * that signed.
 * Bound: `ROTATIONS_MAX` tries. Cancellation: by the budget of the round that the work belongs to.
 */
import type { Backend, Signature } from '@ron/custody';
import { RonError, sched, type Deadline, type Parked } from '@ron/kernel';
import type { KeyBook } from '../keys/key-book.ts';
import type { Found } from '../keys/key-index.ts';
import { formatKid } from '../kid.ts';
import { signedBytes, type Payload } from './message.ts';
import type { Round } from './sign-queue.ts';

/** A key that is rotated more often than this while it signs is being attacked or misused. */
const ROTATIONS_MAX = 4;
/** Messages that a backend takes at once. */
const MESSAGES_MAX = 128;

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

/** What waits for one key, and whether the backend signs with it at this moment. */
interface KeyLine {
  waiting: Waiting[];
  isBusy: boolean;
}

/**
 * Messages on their way to the backend: of one key one call at a time, which takes along all that came during the one
 * before. So the busier a key is, the larger its batches are, and the less each signature costs.
 */
export class SignBatches {
  readonly #backend: SigningBackend;
  readonly #newDeadline: () => Deadline;
  /** Keys with something to do. */
  readonly #lines = new Map<string, KeyLine>();

  constructor(backend: SigningBackend, newDeadline: () => Deadline) {
    this.#backend = backend;
    this.#newDeadline = newDeadline;
  }

  /** Waits for `send`, or for the call that is under way. */
  sign(handle: string, message: Uint8Array): Promise<Signature[]> {
    const answer = sched.park<Signature[]>('sign.backend');
    let line = this.#lines.get(handle);
    if (line === undefined) {
      line = { waiting: [], isBusy: false };
      this.#lines.set(handle, line);
    }
    line.waiting.push({ message, answer });
    return answer.promise;
  }

  /** Starts what waits for an idle key. */
  send(): void {
    // It never rejects: each message is answered.
    for (const [handle, line] of this.#lines) if (!line.isBusy) void this.#serve(handle, line);
  }

  async #serve(handle: string, line: KeyLine): Promise<void> {
    line.isBusy = true;
    while (line.waiting.length > 0) {
      const batch = line.waiting.splice(0, MESSAGES_MAX);
      await this.#signBatch(handle, batch);
    }
    this.#lines.delete(handle);
  }

  async #signBatch(handle: string, batch: readonly Waiting[]): Promise<void> {
    using deadline = this.#newDeadline();
    try {
      const signed = await deadline.run((signal) => this.#signAll(handle, batch, signal));
      for (const [at, waiting] of batch.entries()) waiting.answer.wake(signed[at]!);
    } catch (error) {
      for (const waiting of batch) waiting.answer.fail(error);
    }
  }

  async #signAll(handle: string, batch: readonly Waiting[], signal: AbortSignal): Promise<Signature[][]> {
    if (batch.length === 1) return [await this.#backend.sign(handle, batch[0]!.message, signal)];
    return await this.#backend.signMany(
      handle,
      batch.map(({ message }) => message),
      signal,
    );
  }
}

/** The signatures that the jobs of one round ask for. They leave when all jobs have begun. */
export class SignRound implements Round {
  readonly #batches: SignBatches;
  #begun = false;

  constructor(batches: SignBatches) {
    this.#batches = batches;
  }

  sign(handle: string, message: Uint8Array): Promise<Signature[]> {
    const signed = this.#batches.sign(handle, message);
    if (this.#begun) this.#batches.send();
    return signed;
  }

  begun(): void {
    this.#begun = true;
    this.#batches.send();
  }
}

export class Signer {
  readonly #book: Pick<KeyBook, 'index'>;

  constructor(book: Pick<KeyBook, 'index'>) {
    this.#book = book;
  }

  async sign(request: SignRequest, round: Pick<SignRound, 'sign'>): Promise<Signed> {
    for (let tries = 0; tries < ROTATIONS_MAX; tries++) {
      const found = this.#book.index.current(request.kid);
      const { record, version } = found;
      if (version.handle === undefined) throw verifyOnly(record.name);
      const kid = formatKid(record.name, version.version);
      const signatures = await round.sign(version.handle, signedBytes(record.purpose, kid, request));
      // Loaded anew: the key may have been rotated in the meantime.
      if (this.#book.index.current(request.kid).version.version === version.version) return { kid, found, signatures };
    }
    throw new RonError('busy', 'the key was rotated again and again while it signed', { op: 'sign' });
  }
}

export function verifyOnly(name: string): RonError {
  return new RonError('conflict', `${name} is a public key that was imported: it verifies, and nothing else`);
}
