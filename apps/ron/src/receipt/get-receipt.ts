/**
 * `ron receipt get`.
 *
 * Bound: `WAIT_MS` with `--wait`; each call waits up to 2 s in the service. Cancellation: by the signal of the invocation.
 */
import { writeFile } from 'node:fs/promises';
import { InteropClient } from '@ron/client';
import { sched } from '@ron/kernel/core';
import { isUlid, type SignedReceipt } from '@ron/proto';
import type { ReceiptInvocation } from '../commands/receipt.ts';
import { CliError, systemCode } from '../exits.ts';
import { withClient } from '../service-client.ts';

const WAIT_MS = 60_000;

export async function getReceipt({ values, io, signal }: ReceiptInvocation, id: string): Promise<void> {
  if (!isUlid(id)) throw new CliError('usage', `${JSON.stringify(id)} is not the id of a receipt`);
  const { output, wait = false } = values;
  const receipt = await withClient(
    'interop',
    (init) => new InteropClient(init),
    values,
    io,
    signal,
    (client) => fetchReceipt(client, id, wait, signal),
  );
  const text = JSON.stringify(receipt, undefined, 2);
  if (output === undefined) return io.result(text, receipt);
  try {
    await writeFile(output, `${text}\n`);
  } catch (error) {
    throw new CliError('no_output', `cannot write ${output} (${systemCode(error) ?? 'unknown'})`);
  }
  io.result(`wrote ${output}: signed by ${receipt.kid}`, { ok: true, file: output, kid: receipt.kid });
}

async function fetchReceipt(
  client: InteropClient,
  id: string,
  wait: boolean,
  signal: AbortSignal,
): Promise<SignedReceipt> {
  const until_ms = sched.now_ms() + (wait ? WAIT_MS : 0);
  for (;;) {
    const receipt = await client.receipt(id, { wait, signal });
    if (receipt !== undefined) return receipt;
    if (sched.now_ms() < until_ms) continue;
    throw new CliError('temporary', `kms has not signed the receipt ${id} yet: use --wait, or try again later`);
  }
}
