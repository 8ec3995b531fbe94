import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cell } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { BreakerTable, LABELS_MAX, newBreakerEntries, TARGETS_MAX, type BreakerTableInit } from './breaker-table.ts';

const SETTINGS = { error_window_s: 10, trip_threshold: 0.5, cooldown_s: 5, half_open_probes: 2 };

function open(init: Partial<BreakerTableInit> = {}): BreakerTable {
  return new BreakerTable({
    entries: new Cell('breaker_table', 3, newBreakerEntries()),
    settings: () => SETTINGS,
    ...init,
  });
}

function fail(table: BreakerTable, target: string, times = 3): void {
  for (let at = 0; at < times; at += 1) table.admit(target)?.settle('failure');
}

test('a breaker opens above its threshold, refuses for the cooldown, then lets the half-open probes through', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const table = open();
    fail(table, 'peer', 2);
    assert.equal(table.state('peer'), 'closed', 'two calls are too few');
    fail(table, 'peer', 1);
    assert.equal(table.state('peer'), 'open');
    assert.equal(table.admit('peer'), undefined);
    assert.deepEqual(table.notClosed(), [{ target: 'peer', state: 'open' }]);
    clock.advanceSync(5000);
    const [one, two, three] = [table.admit('peer'), table.admit('peer'), table.admit('peer')];
    assert.ok(one !== undefined && two !== undefined);
    assert.equal(three, undefined);
    one.settle('success');
    two.settle('success');
    assert.equal(table.state('peer'), 'closed');
    assert.equal(table.state('unknown'), 'closed', 'reading a state creates no breaker');
    assert.equal(table.size, 1);
  });
});

test('[index I-2] the janitor advances breakers with time and drops those that are no longer used', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const changes: string[] = [];
    const table = open({ onChange: (target, state) => void changes.push(`${target} ${state}`) });
    const stop = new AbortController();
    const running = table.run(stop.signal).catch(() => undefined);
    fail(table, 'peer');
    table.admit('idle')?.settle('success');
    await clock.advance(7000);
    assert.deepEqual(changes, ['peer open', 'peer half_open']);
    await clock.advance(61_000);
    assert.equal(table.size, 0);
    assert.equal(table.series().find(({ target }) => target === 'peer')?.opened, 1, 'a counter does not decrease');
    stop.abort();
    await running;
  });
});

test('the table is bounded: a closed breaker makes room first, and metrics name 64 targets', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const table = open();
    fail(table, 'bad');
    for (let at = 0; at < TARGETS_MAX + 100; at += 1) table.of(`peer ${at}`);
    assert.equal(table.size, TARGETS_MAX);
    assert.equal(table.state('bad'), 'open', 'the open one was kept');
    const series = table.series();
    assert.equal(series.length, LABELS_MAX + 1);
    assert.ok(series.some(({ target }) => target === 'other'));
  });
});
