/**
 * What the audit log says about one operation, as canonical JSON: keys in order, no spaces, one spelling.
 *
 * Promise: an entry holds names, hashes, lengths and outcomes; never a payload, a plaintext, a secret or a capability.
 * Bound: an entry has at most `ENTRY_BYTES_MAX` bytes, because every field is bounded where it comes in.
 */
import { hash } from 'node:crypto';

/** What the log format allows. */
export const ENTRY_BYTES_MAX = 65_535;

export type AuditOp =
  | 'create'
  | 'import'
  | 'rotate'
  | 'policy'
  | 'delete'
  | 'restore'
  | 'sign'
  | 'verify'
  | 'wrap'
  | 'unwrap'
  | 'datakey'
  | 'derive';

export interface AuditEvent {
  readonly op: AuditOp;
  readonly tenant: string;
  /** With the version that was used, where one was. */
  readonly kid: string;
  readonly alg: string;
  readonly purpose: string;
  /** `b3:` and the hash that the caller gave, or `sha256:` and that of the bytes; of secrets only their length is told. */
  readonly input_hash?: string | undefined;
  readonly input_bytes?: number | undefined;
  readonly op_id?: string | undefined;
  /** Unix time. */
  readonly time_ms: number;
  /** `ok`, or the code of the error. */
  readonly result: string;
  /** The id of the capability; not the capability. */
  readonly actor: string;
}

/** Operations that got no place in the log. */
export interface Gap {
  readonly count: number;
  /** Unix time in ms of the first and the last of them. */
  readonly from: number;
  readonly to: number;
}

/** The members in the order of their names; those that are not there are left out. */
export function encodeEvent(event: AuditEvent): Buffer {
  const { actor, alg, input_bytes, input_hash, kid, op, op_id, purpose, result, tenant, time_ms } = event;
  // All of these are checked where they come in: letters, digits and -._:/# only. Nothing needs an escape.
  let text = `{"actor":"${actor}","alg":"${alg}"`;
  if (input_bytes !== undefined) text += `,"input_bytes":${input_bytes}`;
  if (input_hash !== undefined) text += `,"input_hash":"${input_hash}"`;
  text += `,"kid":"${kid}","op":"${op}"`;
  if (op_id !== undefined) text += `,"op_id":"${op_id}"`;
  text += `,"purpose":"${purpose}","result":"${result}","tenant":"${tenant}","time_ms":${time_ms}}`;
  return Buffer.from(text, 'latin1');
}

export function encodeGap({ count, from, to }: Gap): Buffer {
  return Buffer.from(`{"count":${count},"from":${from},"op":"gap","to":${to}}`, 'latin1');
}

/** A process ended without a stop in good order: what it did in between may have no entry. Times as in a gap. */
export function encodeInterruption({ from, to }: Omit<Gap, 'count'>): Buffer {
  return Buffer.from(`{"from":${from},"op":"interrupted","to":${to}}`, 'latin1');
}

/** Both as one. */
export function merged(some: Gap | undefined, more: Gap): Gap {
  if (some === undefined) return more;
  const { count, from, to } = some;
  return { count: count + more.count, from: Math.min(from, more.from), to: Math.max(to, more.to) };
}

/** What the entry says about the input of a signature. */
export function inputOf(payload: {
  readonly payload_b3?: string | undefined;
  readonly message?: Uint8Array | undefined;
}): {
  readonly input_hash?: string;
  readonly input_bytes?: number;
} {
  if (payload.payload_b3 !== undefined) return { input_hash: `b3:${payload.payload_b3}` };
  if (payload.message === undefined) return {};
  return { input_hash: `sha256:${hash('sha256', payload.message, 'hex')}`, input_bytes: payload.message.length };
}
