/** Opens the receipts of a configuration: on disk or in memory, and with the key in kms that signs them. */
import { join } from 'node:path';
import type { InteropContext } from '../service.ts';
import type { KmsAccess } from '../upstreams/kms-access.ts';
import { KmsReceiptKey } from './kms-receipt-key.ts';
import { Receipts } from './receipts.ts';

/** `dir` is the data directory; undefined in amnesia. */
export async function openReceipts(
  { config, fs, events, signal }: InteropContext,
  dir: string | undefined,
  kms: KmsAccess | undefined,
): Promise<Receipts> {
  const { receipts, amnesia } = config;
  return await Receipts.open({
    dir: dir && join(dir, 'receipts'),
    fs,
    bytes_max: dir === undefined ? amnesia.bytes_max : receipts.max_bytes,
    max_age_ms: receipts.max_age,
    kms: kms && new KmsReceiptKey(kms),
    onEvent: (event) => events.publish(event),
    signal,
  });
}
