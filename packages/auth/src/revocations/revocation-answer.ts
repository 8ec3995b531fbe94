/**
 * The answer of passport to a poll for revocations, authenticated for the service that polls.
 *
 * Contract: the answer is bound to the audience, the nonce and the known version of the poll by an HMAC under a key that both sides derive
 * from the audience's capability key, so only a holder of that key can answer, and no answer counts twice. `openAnswer`
 * rejects with `integrity` unless audience, nonce, version and MAC are right and the key is valid; it never rejects with the reason
 * of a malformed document before the MAC was verified.
 * Bound: the answer's size is that of one document. Cancellation: by the signal, while a key is fetched.
 */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { RonError, sched } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { isUsableKey, SECRET_BYTES } from '../keys/key-ring.ts';
import type { KeySource } from '../keys/key-source.ts';
import { requireDocument, type RevocationDocument } from './revocations.ts';

export const NONCE_PATTERN = '^[A-Za-z0-9_-]{22}$';
const NONCE_BYTES = 16;
const INFO = 'ron/auth/v1/revocations';

export interface RevocationAnswer {
  readonly key_id: string;
  /** The authenticated text: JSON of `Signed`. */
  readonly signed: string;
  readonly mac: string;
}

interface Signed {
  readonly audience: Service;
  readonly nonce: string;
  /** The version that the poll named; null: none. */
  readonly after: number | null;
  /** The clock of passport, Unix ms. */
  readonly time_ms: number;
  /** Null: nothing changed since the version that the poll named. */
  readonly document: RevocationDocument | null;
}

/** The poll that an answer must belong to. */
export interface RevocationPoll {
  readonly audience: Service;
  readonly nonce: string;
  /** The version that is known; undefined: none. */
  readonly after: number | undefined;
}

export interface OpenedAnswer {
  readonly time_ms: number;
  readonly document: RevocationDocument | undefined;
}

export function newNonce(): string {
  return Buffer.from(sched.randomBytes(NONCE_BYTES)).toString('base64url');
}

export async function signAnswer(
  keys: KeySource,
  { audience, nonce, after }: RevocationPoll,
  document: RevocationDocument | undefined,
  signal: AbortSignal,
): Promise<RevocationAnswer> {
  const { key_id, key } = await keys.current(audience, signal);
  // The key may have been retired and zeroed since the source returned it. A zeroed key is public.
  if (!isUsableKey(key)) throw new RonError('not_ready', 'the capability keys are being replaced');
  const time_ms = sched.wall_ms();
  const content: Signed = { audience, nonce, after: after ?? null, time_ms, document: document ?? null };
  const signed = JSON.stringify(content);
  return { key_id, signed, mac: macOf(key, signed).toString('base64url') };
}

export async function openAnswer(
  keys: KeySource,
  { audience, nonce, after }: RevocationPoll,
  answer: unknown,
  signal: AbortSignal,
): Promise<OpenedAnswer> {
  const { key_id, signed, mac } = (answer ?? {}) as Partial<RevocationAnswer>;
  if (typeof key_id !== 'string' || typeof signed !== 'string' || typeof mac !== 'string')
    throw refused('it is malformed');
  const key = await keys.key(audience, key_id, signal);
  if (key === undefined || !isUsableKey(key)) throw refused('its key is unknown or retired');
  const given = Buffer.from(mac, 'base64url');
  const expected = macOf(key, signed);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) throw refused('its MAC is wrong');
  const content = JSON.parse(signed) as Signed;
  const isOurs = content.audience === audience && content.nonce === nonce && content.after === (after ?? null);
  if (!isOurs) throw refused('it belongs to another poll');
  return {
    time_ms: content.time_ms,
    document: content.document === null ? undefined : requireDocument(content.document),
  };
}

function macOf(key: Uint8Array, signed: string): Buffer {
  const own = new Uint8Array(hkdfSync('sha256', key, new Uint8Array(0), INFO, SECRET_BYTES));
  const mac = createHmac('sha256', own).update(signed).digest();
  own.fill(0);
  return mac;
}

function refused(why: string): RonError {
  return new RonError('integrity', `an answer in the name of passport was refused: ${why}`, { op: 'revocations' });
}
