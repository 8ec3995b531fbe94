/** The error of a nack is cut to 1 KiB, and nothing else of its request stays in memory. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MAILBOX_LIMITS } from '@ron/proto';
import { KIB, MIB } from '@ron/testkit';
import { AMNESIA, startService } from '../support.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

const NACKS = 256;

test('[mailbox I-11] errors of 120 KiB are kept as 1 KiB each', async () => {
  await using service = await startService({ flags: AMNESIA });
  const messages = Array.from({ length: NACKS / 2 }, () => ({ topic: 'jobs', payload: '' }));
  for (let half = 0; half < 2; half++) await service.call('POST', '/v1/mailbox/send', { messages });
  const nackOne = async (error: string): Promise<void> => {
    const { json } = await service.call('POST', '/v1/mailbox/jobs/receive', { max: 1 });
    const tokens = json.messages.map(({ token }: { token: string }) => token);
    const { status } = await service.call('POST', '/v1/mailbox/jobs/nack', { tokens, error, delay_ms: 3_600_000 });
    assert.equal(status, 200);
  };
  await nackOne('x');
  const before = usedBytes();
  for (let nacks = 1; nacks < NACKS; nacks++) await nackOne(`${nacks} ${'é'.repeat(60 * KIB)}`);
  const kept = usedBytes() - before;
  assert.ok(kept < 8 * MIB, `${kept} bytes are kept`);
  const error = service.mailbox.mailbox.parts.errors.of(NACKS)!;
  assert.ok(Buffer.byteLength(error) <= MAILBOX_LIMITS.error_bytes && /^\d+ éé/.test(error), error);
  assert.ok(error.isWellFormed() && !error.includes('\u{fffd}'));
});
