/** `ron queue stats` reports a ledger that does not balance. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CliError, EXITS } from '../exits.ts';
import { requireBalance } from './stats.ts';

test('a ledger that does not balance ends the command with 65, like a failed proof', () => {
  const ledger = { sent: 3, acked: 1, ready: 1, delayed: 0, leased: 0, dead: 0, gone: 1 };
  requireBalance([{ topic: 'good', ledger }]);
  const isBroken = (error: unknown): boolean =>
    error instanceof CliError && EXITS[error.exit].code === 65 && error.message.endsWith(': lost');
  assert.throws(() => requireBalance([{ topic: 'lost', ledger: { ...ledger, ready: 0 } }]), isBroken);
});
