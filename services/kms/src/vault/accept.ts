/**
 * Goes on after damage: archives the found log and begins a new one under another name.
 *
 *     audit/  --rename-->  audit.<n>/      kept as evidence
 *     audit/  (new)        origin <first origin>/<16 hex digits>, the same keys; its first entry records the acceptance
 *
 * Contract: the log never continues under the same name from an older state, because two logs with one name are
 * equivocation, which witnesses refuse permanently. Each acceptance has a random name, so none is used twice, even after a
 * restore of all data. `<n>` is only the number of the archive. The acceptance is durable in the anchor before anything is
 * moved; `beginAccepted` carries it out at the next start and repeats its steps after a crash: the state is either still
 * unsound or accepted. The name and the first entry are stored with the acceptance, so a repeated start writes the same log.
 * Bound: one acceptance at a time. The route bounds the reason.
 */
import { join } from 'node:path';
import { readWhole, type FileSystem } from '@ron/log';
import type { AcceptedAudit, AuditStatus } from '@ron/proto';
import { inspectLog, isSuccessor, NOTE_BYTES_MAX, successorOf, TransparencyLog, type NoteSigner } from '@ron/tlog';
import { encodeAcceptance, type Accepting } from '../audit/event.ts';
import { headOf, type Anchor, type LogHead } from './anchor.ts';

/** A damage that the operator accepted and that the next start acts on. */
export interface Acceptance {
  /** The number of the archive. */
  readonly number: number;
  /** The name of the new log. */
  readonly origin: string;
  /** The first entry of the new log. */
  readonly entry_b64: string;
}

export interface AcceptInit extends Accepting {
  readonly problem: string;
  readonly reason: string;
}

/** The part of the anchor's document that is used here. */
export interface AnchorDocument {
  readonly value: Anchor | undefined;
  replace(next: Anchor, signal: AbortSignal): Promise<unknown>;
}

export interface LogPlace {
  readonly fs: FileSystem;
  /** The data directory. */
  readonly dir: string;
}

/** Makes the signers of a log by its name. */
export type SignersFor = (anchor: Anchor, signal: AbortSignal) => Promise<readonly NoteSigner[]>;

const ARCHIVE = /^audit\.([1-9]\d{0,8})$/;

/** The name of the log before any acceptance. */
const firstOf = ({ origin, number }: Anchor): string =>
  number === undefined ? origin : origin.slice(0, origin.lastIndexOf('/'));

const archiveOf = (number: number): string => `audit.${number}`;

/**
 * The last checkpoint of the log in `audit/`, if it is signed and the log has its entries. The log may belong to an earlier or
 * later state of the store.
 */
async function findLog(
  { fs, dir }: LogPlace,
  anchor: Anchor,
  signersFor: SignersFor,
  signal: AbortSignal,
): Promise<LogHead | undefined> {
  const note = await readWhole(fs, join(dir, 'audit', 'checkpoint'), NOTE_BYTES_MAX).catch(() => undefined);
  const [origin = ''] = (note?.toString('utf8') ?? '').split('\n', 1);
  const first = firstOf(anchor);
  const named = origin === first || isSuccessor(first, origin) ? { ...anchor, origin } : anchor;
  try {
    const signers = await signersFor(named, signal);
    const { checkpoint } = await inspectLog({ dir: join(dir, 'audit'), origin: named.origin, signers, fs, signal });
    return checkpoint && headOf(checkpoint);
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

async function acceptanceOf(
  { fs, dir }: LogPlace,
  anchor: Anchor,
  found: LogHead | undefined,
  init: AcceptInit,
): Promise<Acceptance> {
  const archived = (await fs.list(dir)).map((name) => Number(ARCHIVE.exec(name)?.[1] ?? 0));
  const number = 1 + Math.max(anchor.number ?? 0, ...archived);
  const entry = encodeAcceptance({ ...init, former: anchor.origin, known: anchor.checkpoint, found });
  return { number, origin: successorOf(firstOf(anchor)), entry_b64: entry.toString('base64') };
}

/** Carries out the acceptance in the anchor, if there is one. Returns whether there was. */
export async function beginAccepted(
  { fs, dir }: LogPlace,
  anchors: AnchorDocument,
  signersFor: SignersFor,
  signal: AbortSignal,
): Promise<boolean> {
  const { accepted, is_closed: _, ...rest } = anchors.value ?? {};
  if (accepted === undefined) return false;
  const { number, origin, entry_b64 } = accepted;
  const names = await fs.list(dir);
  if (names.includes('audit') && !names.includes(archiveOf(number))) {
    await fs.rename(join(dir, 'audit'), join(dir, archiveOf(number)));
    await fs.syncDir(dir);
  }
  const anchor: Anchor = { ...(rest as Anchor), origin, number, published: 0 };
  const signers = await signersFor(anchor, signal);
  await using log = await TransparencyLog.open({ dir: join(dir, 'audit'), origin: anchor.origin, signers, fs, signal });
  if (log.size === 0) await log.append([Buffer.from(entry_b64, 'base64')], signal);
  await log.writeCheckpoint(signal, {
    beforePublish: (checkpoint, within) => anchors.replace({ ...anchor, checkpoint: headOf(checkpoint) }, within),
  });
  return true;
}

/** The part of the vault that reports and accepts damage. */
export interface Accepter {
  /** The last checkpoint in the store and in the log, and the log that the next start begins if the damage was accepted. */
  logState(signal: AbortSignal): Promise<Pick<AuditStatus, 'known' | 'found' | 'next_origin'>>;
  /** Accepts the damage: the next start begins a new log. A second call changes nothing. */
  accept(init: AcceptInit, signal: AbortSignal): Promise<AcceptedAudit>;
}

/** Used once the anchor exists. */
export function accepterOf(
  place: LogPlace,
  anchors: AnchorDocument,
  signersFor: SignersFor,
  log: TransparencyLog | undefined,
): Accepter {
  return {
    async logState(signal) {
      const { checkpoint: known, accepted } = anchors.value!;
      const current = log?.checkpoint;
      const found = current === undefined ? await findLog(place, anchors.value!, signersFor, signal) : headOf(current);
      return { ...(known && { known }), ...(found && { found }), ...(accepted && { next_origin: accepted.origin }) };
    },
    async accept(init, signal) {
      if (anchors.value!.accepted === undefined) {
        const found = await findLog(place, anchors.value!, signersFor, signal);
        const acceptance = await acceptanceOf(place, anchors.value!, found, init);
        await anchors.replace({ ...anchors.value!, accepted: acceptance }, signal);
      }
      const { origin, number } = anchors.value!.accepted!;
      const hasLog = (await place.fs.list(place.dir)).includes('audit');
      return { next_origin: origin, ...(hasLog && { archive: archiveOf(number) }) };
    },
  };
}
