/** Opens the receipts of a configuration: on disk or in memory, and with the key in kms that signs them. */
import { join } from 'node:path';
import type { InteropContext } from '../service.ts';
import type { Upstream } from '../upstreams/upstream.ts';
import { ReceiptKey } from './receipt-key.ts';
import { Receipts } from './receipts.ts';

/** `dir` is the data directory; undefined in amnesia. */
export async function openReceipts(
  context: InteropContext,
  dir: string | undefined,
  kms: Pick<Upstream, 'call'>,
): Promise<Receipts> {
  const { config, fs, events, signal } = context;
  const { receipts, amnesia } = config;
  return await Receipts.open({
    dir: dir === undefined ? undefined : join(dir, 'receipts'),
    fs,
    bytes_max: dir === undefined ? amnesia.bytes_max : receipts.max_bytes,
    max_age_ms: receipts.max_age,
    kms: keyOf(context, kms),
    onEvent: (event) => events.publish(event),
    signal,
  });
}

function keyOf({ config, runtime }: InteropContext, kms: Pick<Upstream, 'call'>): ReceiptKey | undefined {
  const { kms_url: url, kms_pin: pin } = config.auth;
  const { kms_capability_file: capability_file } = config.interop;
  if (url === undefined || capability_file === undefined) return undefined;
  using connect = runtime.deadline('connect');
  return new ReceiptKey({
    url,
    pin,
    capability_file,
    connect_ms: connect.budget_ms,
    call: async (op, within, work) => {
      using deadline = runtime.deadline('kms', { signal: within });
      return await kms.call(op, deadline, work);
    },
  });
}
