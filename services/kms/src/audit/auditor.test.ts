import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, RonError } from '@ron/kernel';
import { Auditor } from './auditor.ts';
import type { LogEntry } from './event.ts';

const KID = 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';

test('a busy or draining operation has an entry if its work began, and none if it was only refused', async () => {
  const results: unknown[] = [];
  let pending = 0;
  const auditor = new Auditor({
    trail: {
      begin: (count) => void (pending += count ?? 1),
      cancel: () => void (pending -= 1),
      note: ({ bytes }: LogEntry) => {
        pending -= 1;
        results.push((JSON.parse(Buffer.from(bytes).toString()) as { result: unknown }).result);
      },
      record: () => assert.fail('it fails'),
      count: () => assert.fail('it has an entry'),
    },
    mode: () => 'strict',
    space: { refusal: () => undefined, hold: () => undefined, reserve: () => () => undefined },
    summaries: { takeTurn: () => true },
    isUnsound: () => false,
    onNoRoom: () => undefined,
  });
  using deadline = Deadline.after('sign', 60_000);
  const caller = { actor: 'a', subject: 's', chain: [], deadline };
  const used = (): never => assert.fail('it fails');
  for (const code of ['busy', 'draining'] as const) {
    const refuse = (): Promise<never> => Promise.reject(new RonError(code, 'not now'));
    const attempt = { op: 'sign', kid: KID } as const;
    await assert.rejects(auditor.runRecorded(caller, attempt, refuse, refuse, used), /not now/);
    assert.deepEqual(results, []);
    await assert.rejects(
      auditor.runRecorded(caller, attempt, (work) => work(), refuse, used),
      /not now/,
    );
    assert.deepEqual(results.splice(0), [code]);
  }
  assert.equal(pending, 0);
});
