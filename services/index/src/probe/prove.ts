/**
 * Verifies that a provider has an object: it must return a random group with its proof.
 *
 * Contract: `proven` if every requested group was verified against the address; then the size is proven too. `failed` if the
 * provider does not have the object or sends anything else in its place. `unreachable` if it did not answer in time, or is
 * overloaded: then nothing is known. Never rejects. While the size is unknown, the last group is requested first, because it proves
 * the size; then one at random, so that a provider must have all groups.
 * Bound: two requests, each of one group and its path (`SLICE_BYTES_MAX`). Cancellation: the deadline.
 */
import { BAO_MEDIA_TYPE, GROUP_BYTES_MAX, parseGroupBytes } from '@ron/client';
import { Egress, type Answer } from '@ron/egress';
import { isRonError, sched, type Deadline } from '@ron/kernel';
import { addressBytes, type Address } from '@ron/proto';
import { SliceError, verifySlice } from '@ron/simd';
import { proofUrl, providerRules } from './provider-url.ts';

/** The path of a tree with 2^50 groups, two values each, and the length. */
const PATH_BYTES_MAX = 50 * 64 + 8;
const SLICE_BYTES_MAX = GROUP_BYTES_MAX + PATH_BYTES_MAX;
/** Behind the end of every object: the answer is its last group. */
const LAST_OFFSET = 999_999_999_999_999;
/** Overload and maintenance of the server. */
const TRY_LATER: ReadonlySet<number> = new Set([408, 425, 429]);

/** A closed set: it becomes a metric label. */
export type ProbeFailure = 'absent' | 'refused' | 'false_bytes' | 'url';

export type ProbeResult =
  | { readonly kind: 'proven'; readonly size: number; readonly latency_ms: number }
  | { readonly kind: 'failed'; readonly why: ProbeFailure }
  | { readonly kind: 'unreachable' };

export interface Claim {
  readonly address: Address;
  /** The base URL of the storage of the provider. */
  readonly url: string;
  /** If it is known from an earlier proof. */
  readonly size: number | undefined;
}

interface Slice {
  readonly size: number;
  readonly group_bytes: number;
}

/** The answer is not the proof. */
class Refuted extends Error {
  readonly why: ProbeFailure;
  constructor(why: ProbeFailure) {
    super(why);
    this.why = why;
  }
}

/** The server cannot answer now. */
class Overloaded extends Error {}

export async function prove(claim: Claim, deadline: Deadline): Promise<ProbeResult> {
  try {
    await using egress = new Egress({
      name: 'probe',
      ...providerRules(claim.url),
      breaker: 'none',
      limits: { body_bytes_max: SLICE_BYTES_MAX, total_ms: deadline.budget_ms, idle_sockets_max: 1 },
    });
    const begun_ms = sched.now_ms();
    const { offset, isLast } = firstOffset(claim.size);
    const { size, group_bytes } = await readSlice(egress, claim, offset, deadline);
    const latency_ms = sched.now_ms() - begun_ms;
    const groups = Math.ceil(size / group_bytes);
    if (isLast && groups > 1)
      await readSlice(egress, { ...claim, size }, randomBelow(groups - 1) * group_bytes, deadline);
    return { kind: 'proven', size, latency_ms };
  } catch (error) {
    return resultOf(error);
  }
}

/** A random place in an object of known size, otherwise its end. */
function firstOffset(size: number | undefined): { offset: number; isLast: boolean } {
  return size === undefined ? { offset: LAST_OFFSET, isLast: true } : { offset: randomBelow(size), isLast: false };
}

const randomBelow = (end: number): number => Math.floor(sched.random() * end);

async function readSlice(egress: Egress, claim: Claim, offset: number, deadline: Deadline): Promise<Slice> {
  const request = { url: proofUrl(claim.url, claim.address, offset), bytes_max: SLICE_BYTES_MAX };
  return await egress.exchange(request, { deadline }, (answer) => verified(answer, claim, offset));
}

async function verified(answer: Answer, claim: Claim, offset: number): Promise<Slice> {
  requireProof(answer);
  const group_bytes = parseGroupBytes(answer.headers['ron-group-bytes']?.[0]);
  if (group_bytes === undefined) throw new Refuted('false_bytes');
  let size = 0;
  const onSize = (stated: number): void => void (size = stated);
  const init = { hash: addressBytes(claim.address), offset, length: 1, group_bytes, onSize };
  for await (const _ of verifySlice(answer.body, init));
  if (claim.size !== undefined && claim.size !== size) throw new Refuted('false_bytes');
  return { size, group_bytes };
}

function requireProof({ status, headers }: Answer): void {
  if (status >= 500 || TRY_LATER.has(status)) throw new Overloaded();
  if (status === 404 || status === 410) throw new Refuted('absent');
  if (status !== 200) throw new Refuted('refused');
  if (headers['content-type']?.[0] !== BAO_MEDIA_TYPE) throw new Refuted('false_bytes');
}

function resultOf(error: unknown): ProbeResult {
  if (error instanceof Refuted) return { kind: 'failed', why: error.why };
  if (error instanceof SliceError || isRonError(error, 'payload_too_large'))
    return { kind: 'failed', why: 'false_bytes' };
  if (isRonError(error, 'reject_policy') || isRonError(error, 'validation')) return { kind: 'failed', why: 'url' };
  return { kind: 'unreachable' };
}
