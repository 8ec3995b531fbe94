import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, RonError } from '@ron/kernel';
import { withStepDeadlines } from './step-deadlines.ts';

const piece = (byte: number): Uint8Array => Uint8Array.of(byte);
const later = (delay_ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, delay_ms));

async function* body(count: number, delay_ms = 0): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < count; at += 1) {
    if (delay_ms > 0) await later(delay_ms);
    yield piece(at);
  }
}

const collect = async (pieces: AsyncIterable<Uint8Array>): Promise<number[]> => {
  const seen: number[] = [];
  for await (const bytes of pieces) seen.push(bytes[0]!);
  return seen;
};

/** Deadlines of `budget_ms`; counts how many began and how many expired. */
function steps(budget_ms: number): { step: () => Deadline; begun: number; expired: number } {
  const counts = {
    begun: 0,
    expired: 0,
    step: () => {
      counts.begun += 1;
      return Deadline.after('put', budget_ms, { onExpire: () => (counts.expired += 1) });
    },
  };
  return counts;
}

test('the work gets every piece, and its result is returned', async () => {
  const counts = steps(10_000);
  assert.deepEqual(await withStepDeadlines(body(3), counts.step, collect), [0, 1, 2]);
  assert.equal(counts.begun, 4, 'one for each piece and one for the end');
});

test('a body may take longer than a step if its pieces are processed in time', async () => {
  const counts = steps(200);
  assert.deepEqual(await withStepDeadlines(body(4, 400), counts.step, collect), [0, 1, 2, 3]);
  await later(60);
  assert.equal(counts.expired, 0, 'no deadline is left that could expire');
});

test('work that hangs on a piece, or after the last one, is abandoned, and its signal aborts', async () => {
  for (const hangsAt of [0, 1, 2]) {
    let seen: AbortSignal | undefined;
    const work = async (pieces: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> => {
      seen = signal;
      let at = 0;
      for await (const _ of pieces) {
        if (at === hangsAt) await later(1000);
        at += 1;
      }
      await later(1000);
    };
    const begin_ms = performance.now();
    await assert.rejects(withStepDeadlines(body(2), steps(30).step, work), (error) => isRonError(error, 'timeout'));
    assert.ok(performance.now() - begin_ms < 900);
    assert.ok(isRonError(seen?.reason, 'timeout'));
  }
});

test('a failing body fails the work, and handling the failure is a step too', async () => {
  async function* broken(): AsyncGenerator<Uint8Array, void, void> {
    yield piece(0);
    throw new RonError('canceled', 'the client left');
  }
  const counts = steps(10_000);
  const work = async (pieces: AsyncIterable<Uint8Array>): Promise<string> => {
    try {
      await collect(pieces);
      return 'whole';
    } catch (error) {
      assert.ok(isRonError(error, 'canceled'));
      return 'kept the received bytes';
    }
  };
  assert.equal(await withStepDeadlines(broken(), counts.step, work), 'kept the received bytes');
  assert.equal(counts.begun, 2);
  const cleaning = async (pieces: AsyncIterable<Uint8Array>): Promise<void> => {
    await collect(pieces).catch(() => undefined);
    await later(500);
  };
  await assert.rejects(withStepDeadlines(broken(), steps(20).step, cleaning), (error) => isRonError(error, 'timeout'));
});

test('work that stops early ends the body', async () => {
  let ended = false;
  async function* endless(): AsyncGenerator<Uint8Array, void, void> {
    try {
      for (;;) yield piece(1);
    } finally {
      ended = true;
    }
  }
  const first = await withStepDeadlines(endless(), steps(10_000).step, async (pieces) => {
    for await (const bytes of pieces) return bytes[0];
    return undefined;
  });
  assert.equal(first, 1);
  assert.ok(ended);
});

test('a deadline that is cancelled ends the work with its reason', async () => {
  const parent = Deadline.after('request', 10_000);
  const step = (): Deadline => Deadline.after('put', 10_000, { parent });
  parent.cancel(new RonError('canceled', 'the client left'));
  const pulled = withStepDeadlines(body(1), step, async (pieces) => {
    await collect(pieces);
    await later(500);
  });
  await assert.rejects(pulled, (error) => isRonError(error, 'canceled'));
});
