/**
 * Audit events in canonical JSON: sorted keys, no spaces, one encoding per event.
 *
 * Contract: an entry contains names, hashes, lengths and outcomes; never a payload, a plaintext, a secret or a capability.
 * Bound: an entry has at most `ENTRY_BYTES_MAX` bytes, because every field is bounded at its entry point.
 */
import { hash } from 'node:crypto';
import { sched } from '@ron/kernel';

/** The limit of the log format. */
export const ENTRY_BYTES_MAX = 65_535;

export type AuditOp =
  | 'create'
  | 'import'
  | 'rotate'
  | 'retire'
  | 'policy'
  | 'disable'
  | 'enable'
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
  /** Includes the version if one was used. */
  readonly kid: string;
  readonly alg: string;
  readonly purpose: string;
  /** `b3:` and the caller's hash, or `sha256:` and the hash of the bytes. For secrets only the length is recorded. */
  readonly input_hash?: string | undefined;
  readonly input_bytes?: number | undefined;
  readonly op_id?: string | undefined;
  /** Unix time in ms. */
  readonly time_ms: number;
  /** `ok`, or the error code. */
  readonly result: string;
  /** The id of the capability, not the capability itself. */
  readonly actor: string;
  /** The holder that the capability was issued to. */
  readonly subject: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
}

/** An entry as it is written to the log. */
export interface LogEntry {
  readonly bytes: Uint8Array;
  /** Unix time in ms of the operation. */
  readonly time_ms: number;
}

/** Operations of one capability with one tenant's keys that have no entry of their own. */
export interface Summary {
  readonly actor: string;
  readonly subject: string;
  readonly tenant: string;
  /** `<op> <result>`, such as `verify ok`, and their number. */
  readonly results: ReadonlyMap<string, number>;
  /** Some of the keys. */
  readonly kids: ReadonlySet<string>;
  /** Unix time in ms of the first and the last of them. */
  readonly from: number;
  readonly to: number;
}

/** Operations without an entry in the log. */
export interface Gap {
  readonly count: number;
  /** Unix time in ms of the first and the last of them. */
  readonly from: number;
  readonly to: number;
}

/** Writes the members sorted by name; absent members are omitted. */
export function encodeEvent(event: AuditEvent): Buffer {
  const { actor, alg, chain, input_bytes, input_hash, kid, op, op_id, purpose, result, subject, tenant, time_ms } =
    event;
  // All fields were validated as letters, digits and -._:/#, so none needs an escape.
  let text = `{"actor":"${actor}","alg":"${alg}","chain":${namesOf(chain)}`;
  if (input_bytes !== undefined) text += `,"input_bytes":${input_bytes}`;
  if (input_hash !== undefined) text += `,"input_hash":"${input_hash}"`;
  text += `,"kid":"${kid}","op":"${op}"`;
  if (op_id !== undefined) text += `,"op_id":"${op_id}"`;
  text += `,"purpose":"${purpose}","result":"${result}","subject":"${subject}","tenant":"${tenant}","time_ms":${time_ms}}`;
  return Buffer.from(text, 'latin1');
}

const namesOf = (names: Iterable<string>): string => {
  const quoted = Array.from(names, (name) => `"${name}"`);
  return `[${quoted.join(',')}]`;
};

/** The number of operations that a summary counts. */
export function countOf({ results }: Summary): number {
  let count = 0;
  for (const each of results.values()) count += each;
  return count;
}

export function encodeSummary(summary: Summary): Buffer {
  const { actor, from, kids, results, subject, tenant, to } = summary;
  const counts = [...results].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([name, count]) => `"${name}":${count}`);
  const text =
    `{"actor":"${actor}","count":${countOf(summary)},"from":${from},"kids":${namesOf([...kids].toSorted())},` +
    `"op":"summary","results":{${counts.join(',')}},"subject":"${subject}","tenant":"${tenant}","to":${to}}`;
  return Buffer.from(text, 'latin1');
}

export function encodeGap({ count, from, to }: Gap): Buffer {
  return Buffer.from(`{"count":${count},"from":${from},"op":"gap","to":${to}}`, 'latin1');
}

/** Records that a process ended without a clean shutdown: its last operations may have no entry. Times as in a gap. */
export function encodeInterruption({ from, to }: Omit<Gap, 'count'>): Buffer {
  return Buffer.from(`{"from":${from},"op":"interrupted","to":${to}}`, 'latin1');
}

/** Announces that the entries before `before` are removed. */
export function encodePrune(
  event: Pick<AuditEvent, 'actor' | 'subject' | 'chain' | 'time_ms'> & { before: number },
): Buffer {
  const { actor, before, chain, subject, time_ms } = event;
  const text = `{"actor":"${actor}","before":${before},"chain":${namesOf(chain)},"op":"prune","subject":"${subject}","time_ms":${time_ms}}`;
  return Buffer.from(text, 'latin1');
}

/** Combines two gaps. */
export function mergeGaps(some: Gap | undefined, more: Gap): Gap {
  if (some === undefined) return more;
  const { count, from, to } = some;
  return { count: count + more.count, from: Math.min(from, more.from), to: Math.max(to, more.to) };
}

/** The fields of an entry that describe the input of a signature. */
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

/** The holder of the capability with which damage was accepted. */
export interface Accepting {
  readonly actor: string;
  readonly subject: string;
  readonly chain: readonly string[];
}

interface LogExtent {
  readonly size: number;
  readonly root_b64: string;
}

interface AcceptanceFacts extends Accepting {
  /** The damage, as kms described it. */
  readonly problem: string;
  /** The text of the operator. */
  readonly reason: string;
  /** The name of the log that ends. */
  readonly former: string;
  /** Its last checkpoint in the store. */
  readonly known: LogExtent | undefined;
  /** Its last checkpoint in the directory. */
  readonly found: LogExtent | undefined;
}

/** The first entry of a log that begins after damage was accepted. */
export function encodeAcceptance(facts: AcceptanceFacts): Buffer {
  const { actor, chain, former, problem, reason, subject } = facts;
  const extent = (of: LogExtent | undefined): LogExtent | null =>
    of === undefined ? null : { root_b64: of.root_b64, size: of.size };
  const time_ms = sched.wall_ms();
  const [found, known] = [extent(facts.found), extent(facts.known)];
  return Buffer.from(
    JSON.stringify({ actor, chain, former, found, known, op: 'accept', problem, reason, subject, time_ms }),
  );
}
