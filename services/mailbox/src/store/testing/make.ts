/** Records and logs for tests of the store. */
import { NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { MailboxLog, type MailboxLogInit } from '../mailbox-log.ts';
import type { MessageInput, MessageMeta, SettledEntry } from '../records.ts';
import { NaiveState } from './naive-state.ts';

export const idOf = (key: number): Uint8Array => new Uint8Array(16).fill(key);

export function metaOf(topic: string, some: Partial<MessageMeta> = {}): MessageMeta {
  return {
    topic,
    key: undefined,
    idempotency_key: undefined,
    sent_ms: 1_800_000_000_000,
    not_before_ms: 0,
    headers: {},
    replay_of: undefined,
    b3: new Uint8Array(32).fill(7),
    ...some,
  };
}

export const messageOf = (topic: string, key: number, bytes = 10, some: Partial<MessageMeta> = {}): MessageInput => ({
  id: idOf(key),
  meta: metaOf(topic, some),
  payload: new Uint8Array(bytes).fill(key),
});

export const acked = (seq: number, topic: string): SettledEntry => ({ outcome: 'acked', seq, topic });
export const removed = (seq: number, topic: string): SettledEntry => ({ outcome: 'removed', seq, topic });
export const dead = (seq: number, topic: string, error?: string): SettledEntry => ({
  outcome: 'dead',
  seq,
  topic,
  reason: 'max_deliveries',
  attempts: 12,
  dead_ms: 5,
  error,
});

export async function openNaive(
  fs: FileSystem,
  some: Partial<MailboxLogInit> = {},
): Promise<{ log: MailboxLog; state: NaiveState }> {
  const state = new NaiveState();
  const init = { dir: '/mailbox', fs, segment_bytes: 64 * 1024, target: state, signal: NEVER, ...some };
  const log = await MailboxLog.open(init);
  state.log = log;
  return { log, state };
}
