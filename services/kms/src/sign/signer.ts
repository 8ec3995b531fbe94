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

/** The messages of one round, handed to the backend key by key. What comes after that goes by itself. */
export class SignRound implements Round {
  readonly #backend: SigningBackend;
  readonly #newDeadline: () => Deadline;
  readonly #groups = new Map<string, Waiting[]>();
  #begun = false;

  constructor(backend: SigningBackend, newDeadline: () => Deadline) {
    this.#backend = backend;
    this.#newDeadline = newDeadline;
  }

  sign(handle: string, message: Uint8Array): Promise<Signature[]> {
    const answer = sched.park<Signature[]>('sign.backend');
    const waiting: Waiting = { message, answer };
    const group = this.#groups.get(handle);
    if (this.#begun) void this.#send(handle, [waiting]);
    else if (group === undefined) this.#groups.set(handle, [waiting]);
    else group.push(waiting);
    return answer.promise;
  }

  begun(): void {
    this.#begun = true;
    for (const [handle, group] of this.#groups) {
      for (let at = 0; at < group.length; at += MESSAGES_MAX) {
        void this.#send(handle, group.length <= MESSAGES_MAX ? group : group.slice(at, at + MESSAGES_MAX));
      }
    }
    this.#groups.clear();
  }

  /** Never rejects: each message is answered. */
  async #send(handle: string, group: readonly Waiting[]): Promise<void> {
    using deadline = this.#newDeadline();
    try {
      const signed = await deadline.run((signal) => this.#signAll(handle, group, signal));
      for (const [at, waiting] of group.entries()) waiting.answer.wake(signed[at]!);
    } catch (error) {
      for (const waiting of group) waiting.answer.fail(error);
    }
  }

  async #signAll(handle: string, group: readonly Waiting[], signal: AbortSignal): Promise<Signature[][]> {
    if (group.length === 1) return [await this.#backend.sign(handle, group[0]!.message, signal)];
    return await this.#backend.signMany(
      handle,
      group.map(({ message }) => message),
      signal,
    );
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
