/**
 * Two sends with one idempotency key, on the real mailbox. A sync may fail.
 *
 * The second send waits for the sync of the first. Each answered send survives a crash, and the key has one message.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError, NEVER } from '@ron/kernel';
import type { SendResult } from '@ron/proto';
import type { Mailbox } from '../mailbox.ts';
import type { CrashPoints } from './testing/crash-points.ts';
import type { Files } from './testing/model-disk.ts';
import { onMailbox, type Parts } from './testing/model-mailbox.ts';

/** Its window is longer than the time that passes in a schedule. */
export const HOOK = 'hooks.model';

/** The answers so far. */
export interface Answers {
  readonly sends: { readonly id: string; readonly kind: 'stored' | 'duplicate' }[];
}

export interface RepeatedSendInit {
  readonly failures_max: number;
  readonly files: Files;
}

export const repeatedSend = (parts: Parts, init: RepeatedSendInit, points: CrashPoints<Answers>): Build =>
  onMailbox(parts, init, async (box, world) => {
    const answers: Answers = { sends: [] };
    const note = (): void => points.note(box.disk, answers, world.now_ms());
    box.disk.onChange = note;
    const send = async (): Promise<void> => {
      const message = { topic: HOOK, payload: Buffer.from('a'), idempotency_key: 'key' };
      const results = await box.mailbox.send([message], NEVER).catch((error: unknown) => {
        assert.ok(init.failures_max > 0 && isRonError(error, 'not_ready'), String(error));
        return [];
      });
      for (const result of results) answers.sends.push(answerOf(result));
      note();
    };
    return {
      tasks: { first: send, second: send },
      final: () => {
        const { sends } = answers;
        if (init.failures_max === 0) assert.equal(sends.length, 2, 'a send failed on a good disk');
        const stored = sends.filter(({ kind }) => kind === 'stored');
        assert.equal(stored.length, Math.min(1, sends.length), 'one send stores the message');
        assert.ok(
          sends.every(({ id }) => id === stored[0]!.id),
          'both get the first id',
        );
      },
    };
  });

function answerOf(result: SendResult): Answers['sends'][number] {
  assert.ok('seq' in result, 'a send was refused');
  return { id: result.id, kind: result.duplicate ? 'duplicate' : 'stored' };
}

/** Compares a start with the answers before the crash. */
export function checkStart({ parts, ledgerProblem }: Mailbox, { sends }: Answers): void {
  assert.equal(ledgerProblem, undefined);
  const waiting = parts.topics.find(HOOK)?.state.waiting ?? 0;
  assert.ok(waiting <= 1, `the key has ${waiting} messages`);
  for (const { kind } of sends) assert.equal(waiting, 1, `a ${kind} send was answered and is lost`);
}
