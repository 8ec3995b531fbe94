/** Opens the receipts of a configuration: on disk or in memory, and with the key in kms that signs them. */
import { join } from 'node:path';
import type { MissingLogs } from '../missing-logs.ts';
import type { InteropContext } from '../service.ts';
import type { KmsAccess } from '../upstreams/kms-access.ts';
import { KmsReceiptKey } from './kms-receipt-key.ts';
import { Receipts } from './receipts.ts';

export interface OpenReceiptsInit {
  /** The data directory; undefined in amnesia. */
  readonly dir: string | undefined;
  /** Undefined in amnesia. */
  readonly missing: MissingLogs | undefined;
  readonly kms: KmsAccess | undefined;
}

export async function openReceipts(
  { config, fs, events, signal }: InteropContext,
  { dir, missing, kms }: OpenReceiptsInit,
): Promise<Receipts> {
  const { receipts, amnesia } = config;
  return await Receipts.open({
    dir: dir && join(dir, 'receipts'),
    fs,
    bytes_max: dir === undefined ? amnesia.bytes_max : receipts.max_bytes,
    max_age_ms: receipts.max_age,
    extent: missing?.extents.receipts,
    isReplaced: missing?.problem('receipts') !== undefined,
    kms: kms && new KmsReceiptKey(kms),
    onEvent: (event) => events.publish(event),
    signal,
  });
}
