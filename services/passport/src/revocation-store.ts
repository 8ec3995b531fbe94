/**
 * Persists the revocation document of passport: a sealed file, or memory in amnesia.
 *
 * Contract: the newest version is also kept as a mark in another file, so that a restored older copy is detected.
 */
import { join } from 'node:path';
import { NO_REVOCATIONS, requireDocument, type RevocationDocument } from '@ron/auth';
import type { ServiceAuth } from '@ron/auth/service';
import { openUnlock, SealedFile } from '@ron/custody/sealed';
import type { FileSystem } from '@ron/log';
import type { Environment } from '@ron/service';
import type { Log } from '@ron/telemetry';
import { EMPTY_OUTBOX, type Outbox } from './audit/outbox.ts';
import { memoryStore, type RevocationState, type RevocationStore } from './revocation-registry.ts';

export interface RevocationStoreInit {
  /** Undefined in amnesia. */
  readonly dir: string | undefined;
  readonly env: Environment;
  readonly fs: FileSystem;
  readonly log: Pick<Log, 'warn'>;
  readonly auth: Pick<ServiceAuth, 'mark' | 'setMark'>;
  readonly signal: AbortSignal;
}

const MARK = 'revocations';

export async function openRevocationStore(init: RevocationStoreInit): Promise<RevocationStore & AsyncDisposable> {
  const { dir, env, fs, log, auth, signal } = init;
  if (dir === undefined) return Object.assign(memoryStore(), { [Symbol.asyncDispose]: () => Promise.resolve() });
  const unlock = await openUnlock({ dir, env, fs, warn: (warning) => log.warn(warning) });
  const path = join(dir, 'revocations');
  const initial: Stored = NO_REVOCATIONS;
  const file = await SealedFile.open({ path, unlock, purpose: 'revocations', initial, fs, signal });
  stateOf(file.value);
  return {
    get state() {
      return stateOf(file.value);
    },
    get version_seen() {
      return auth.mark(MARK) ?? 0;
    },
    async update(change, within) {
      const { version } = file.value;
      await file.update((stored) => {
        const { document, outbox } = change(stateOf(stored));
        return { ...document, outbox };
      }, within);
      if (file.value.version === version) return;
      // The revocation is durable and in force. Without the mark only the detection of an older copy is lost.
      const warn = (error: unknown): void => log.warn({ err: error }, 'failed to persist the revocation version');
      await auth.setMark(MARK, file.value.version, within).catch(warn);
    },
    [Symbol.asyncDispose]: () => file.close(),
  };
}

/** The content of the file. Files of earlier versions have no outbox. */
type Stored = RevocationDocument & { readonly outbox?: Outbox };

/** Throws if the file does not hold revocations. */
function stateOf(stored: Stored): RevocationState {
  return { document: requireDocument(stored), outbox: stored.outbox ?? EMPTY_OUTBOX };
}
