import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Mpsc, RonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { eventually } from '@ron/testkit';
import type { AuditEvent } from './audit-event.ts';
import { AuditSink, type AuditSinkInit } from './audit-sink.ts';

const EVENTS_MAX = 128;
const event = (corr_id: string): AuditEvent => ({
  kind: 'delivery',
  seq: 1,
  at_ms: 1,
  provider: 'shop',
  outcome: 'accepted',
  corr_id,
});

function make(init: Partial<AuditSinkInit> = {}) {
  const channel = new Mpsc<AuditEvent>('audit', 512);
  const writes: string[] = [];
  const problems: string[] = [];
  const stop = new AbortController();
  const sink = new AuditSink({
    channel,
    write: async (lines) => void writes.push(lines),
    onSecond: () => undefined,
    onProblem: (problem) => problems.push(problem),
    ...init,
  });
  const ids = (): string[] =>
    writes
      .flatMap((lines) => lines.split('\n').slice(0, -1))
      .map((line) => (JSON.parse(line) as { corr_id: string }).corr_id);
  return { channel, writes, problems, stop, sink, ids };
}

test('events are written in order, as complete lines, at most 128 at a time', async () => {
  const { channel, writes, stop, sink, ids } = make();
  const sent = Array.from({ length: 300 }, (_, at) => String(at));
  for (const id of sent) channel.trySend(event(id));
  const run = sink.run(stop.signal);
  await eventually('all are written', () => ids().length === sent.length);
  assert.deepEqual(ids(), sent);
  for (const lines of writes) assert.ok(lines.endsWith('}\n') && lines.split('\n').length - 1 <= EVENTS_MAX);
  stop.abort();
  await run;
});

test('a stop ends the task; flush writes the queued events', async () => {
  const { channel, stop, sink, ids } = make();
  stop.abort();
  channel.trySend(event('a'));
  channel.trySend(event('b'));
  await sink.run(stop.signal);
  await sink.flush();
  assert.deepEqual(ids(), ['a', 'b']);
  assert.equal(channel.depth, 0);
});

test('a stop while a write is in progress waits for it and loses nothing', async () => {
  const gate = Promise.withResolvers<void>();
  const written: string[] = [];
  const write = async (lines: string): Promise<void> => {
    await gate.promise;
    written.push(lines);
  };
  const { channel, stop, sink } = make({ write });
  const run = sink.run(stop.signal);
  channel.trySend(event('a'));
  stop.abort();
  channel.trySend(event('b'));
  gate.resolve();
  await run;
  await sink.flush();
  assert.equal(written.join('').split('\n').length - 1, 2);
});

test('events that cannot be written are counted, the problem is reported once until a write succeeds', async () => {
  let failure: Error | undefined = new RonError('internal', 'the disk is full');
  const write = async (): Promise<void> => {
    if (failure !== undefined) throw failure;
  };
  const { channel, problems, stop, sink } = make({ write });
  const run = sink.run(stop.signal);
  const send = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) channel.trySend(event('x'));
    await eventually('the events are taken', () => channel.depth === 0);
    await new VirtualSched().settle();
  };
  await send(3);
  await send(2);
  assert.equal(sink.failed_total, 5);
  assert.deepEqual(problems, ['the disk is full']);
  failure = undefined;
  await send(1);
  failure = new Error('EIO');
  await send(1);
  assert.deepEqual(problems, ['the disk is full', 'Error: EIO']);
  assert.equal(sink.failed_total, 6);
  stop.abort();
  await run;
});

test('with a failing disk, flush ends and counts the events that it could not write', async () => {
  const { channel, sink } = make({ write: () => Promise.reject(new Error('EIO')) });
  for (let at = 0; at < 300; at += 1) channel.trySend(event('x'));
  await sink.flush();
  assert.deepEqual([channel.depth, sink.failed_total], [0, 300]);
});

test('in memory mode the events are taken and not counted as failed', async () => {
  const { channel, stop, sink } = make({ write: undefined });
  const run = sink.run(stop.signal);
  for (let at = 0; at < 5; at += 1) channel.trySend(event('x'));
  await eventually('the events are taken', () => channel.depth === 0);
  assert.equal(sink.failed_total, 0);
  stop.abort();
  await run;
});

test('the sums of refusals are recorded each second, until the stop', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    let seconds = 0;
    const { stop, sink } = make({ onSecond: () => (seconds += 1) });
    const run = sink.run(stop.signal);
    await clock.advance(999);
    assert.equal(seconds, 0);
    await clock.advance(3001);
    assert.equal(seconds, 4);
    stop.abort();
    await run;
    assert.equal(clock.timers.length, 0);
  });
});
