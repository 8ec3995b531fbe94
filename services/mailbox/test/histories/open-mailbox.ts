/** A mailbox without HTTP, on a disk of the test, with its lease clock. */
import { loadConfig } from '@ron/config';
import type { FileSystem } from '@ron/log';
import { schema } from '../../src/config.ts';
import { Mailbox } from '../../src/mailbox/mailbox.ts';
import type { MailboxOperations } from '../../src/mailbox/operations.ts';
import { Compactor } from '../../src/store/compaction/compactor.ts';

const DIR = '/mailbox';
/** A few records each. */
const SEGMENT_BYTES = 8192;
export const MAX_DELIVERIES = 5;
const FLAGS = [`--data_dir=${DIR}`, `--topics.max_deliveries=${MAX_DELIVERIES}`];
const config = loadConfig({ schema, flags: FLAGS });

export interface OpenMailbox {
  readonly operations: MailboxOperations;
  /** Why the ledger does not balance. */
  readonly problem: string | undefined;
  /** Compacts the oldest segment. */
  compact(): Promise<void>;
  close(): Promise<void>;
}

export async function openMailbox(fs: FileSystem): Promise<OpenMailbox> {
  const stop = new AbortController();
  const { signal } = stop;
  const mailbox = await Mailbox.open({
    dir: DIR,
    fs,
    segment_bytes: SEGMENT_BYTES,
    config: { value: config },
    holds_max: 16,
    onEvent: () => undefined,
    signal,
  });
  const { clock, log, live } = mailbox.parts;
  const compactor = new Compactor({ log, live, onEvent: () => undefined });
  const ticking = clock.run(signal).catch(() => undefined);
  return {
    operations: mailbox,
    problem: mailbox.ledgerProblem,
    compact: async () => void (await compactor.compactOldest(signal)),
    close: async () => {
      stop.abort();
      await ticking;
      await mailbox.close();
    },
  };
}
