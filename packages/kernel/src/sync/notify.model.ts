/** Notify under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NEVER } from './never.ts';
import type { Notify } from './notify.ts';

export interface NotifyModelInit {
  /** Each makes one change and notifies. */
  writers: number;
  /** Whether a second waiter is there that may abort at any moment. */
  leaves?: boolean;
}

/** A reader processes the latest change, then waits for the next: a notification in between must not be lost. */
export function notifyModel(Class: typeof Notify, init: NotifyModelInit): Build {
  return (world) => {
    const notify = new Class('changes');
    const leaving = new AbortController();
    let changes = 0;
    let seen = 0;
    for (let writer = 0; writer < init.writers; writer++) {
      world.task(`writer ${writer}`, async () => {
        changes += 1;
        notify.notifyOne();
      });
    }
    world.task('reader', async () => {
      for (;;) {
        const latest = changes;
        await world.io('process');
        seen = latest;
        if (seen === init.writers) return;
        assert.equal(await notify.notified(NEVER), true);
      }
    });
    if (init.leaves === true) {
      world.task('leaving waiter', async () => {
        // It was woken in place of the reader, so it passes the notification on.
        const isNotified = await notify.notified(leaving.signal).catch(() => false);
        if (isNotified) notify.notifyOne();
      });
      world.task('leaver', async () => leaving.abort(new Error('gone')));
    }
    return { final: () => assert.equal(seen, init.writers, 'a change was missed') };
  };
}
