/** Opens the way of passport to the audit log. Without kms there is no log. */
import { readSecretFile } from '@ron/log';
import { isRonError, RonError } from '@ron/kernel';
import type { Log } from '@ron/telemetry';
import type { PassportConfig } from '../config.ts';
import { outboxOf, type RevocationStore } from '../revocation-registry.ts';
import type { IssueEntry } from '@ron/proto';
import { appendThroughKms, type AppendEntry } from './entries.ts';
import { OutboxSender } from './outbox.ts';

const RETRY_AFTER_MS = 1000;

export interface Entries {
  readonly append: AppendEntry | undefined;
  readonly outbox: OutboxSender | undefined;
}

export function openEntries(
  { auth, passport }: PassportConfig,
  store: RevocationStore,
  log: Pick<Log, 'warn'>,
): Entries {
  const { kms_url: url, kms_pin: pin } = auth;
  const { log_capability_file: file, issue_deadline: deadline_ms } = passport;
  if (url === undefined || file === undefined) return { append: undefined, outbox: undefined };
  const append = appendThroughKms({ url, pin, capability: () => readSecretFile(file), deadline_ms });
  const onProblem = (error: unknown): void =>
    log.warn({ err: error }, 'failed to record a revocation in the audit log');
  return { append, outbox: new OutboxSender({ store: outboxOf(store), append, onProblem }) };
}

/** Rejects with `not_ready` unless kms took the entry: then the capability must not be handed out. */
export async function recorded(append: AppendEntry, entry: IssueEntry, signal: AbortSignal): Promise<void> {
  try {
    await append(entry, signal);
  } catch (error) {
    signal.throwIfAborted();
    const why = isRonError(error) ? error.message : 'unknown';
    const init = { op: 'issue', retry_after_ms: RETRY_AFTER_MS, cause: error };
    throw new RonError('not_ready', `nothing was issued: the audit log of kms did not take the entry: ${why}`, init);
  }
}
