import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { test, type TestContext } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { LogSink } from './log-sink.ts';
import { realSched } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';

const failWith = (code: string): never => {
  throw Object.assign(new Error(code), { code });
};
const turn = (): Promise<void> => realSched.pause('test');

/** A sink whose descriptor takes up to `room` bytes at a time; EAGAIN when that is 0. */
function setUp(pending_bytes_max = 1024 * 1024) {
  const out = { text: '', calls: 0, room: Infinity };
  const sink = new LogSink({
    pending_bytes_max,
    writeSync: (_fd, bytes) => {
      out.calls += 1;
      if (out.room === 0) failWith('EAGAIN');
      const taken = bytes.subarray(0, out.room);
      out.text += Buffer.from(taken).toString('latin1');
      return taken.length;
    },
  });
  const written = async (length: number): Promise<void> => {
    while (out.text.length < length) await turn();
  };
  return { sink, out, written };
}

test('lines of one turn are written together, after it', async () => {
  const { sink, out } = setUp();
  for (let line = 0; line < 100; line++) sink.write(`${line}\n`);
  assert.equal(out.calls, 0);
  await turn();
  assert.equal(out.calls, 1);
  assert.equal(out.text, Array.from({ length: 100 }, (_, line) => `${line}\n`).join(''));
  assert.equal(sink.pending_bytes, 0);
});

test('many lines in one turn are written before its end, so that few bytes wait', () => {
  const { sink, out } = setUp();
  for (let line = 0; line < 3000; line++) {
    sink.write(`${'x'.repeat(99)}\n`);
    assert.ok(sink.pending_bytes <= 64 * 1024);
  }
  assert.ok(out.calls >= 4 && out.calls < 10, `${out.calls} calls`);
  assert.equal(sink.dropped_total, 0);
});

test('a full descriptor makes lines wait in order, the newest are dropped, and the loss is reported once', async () => {
  const { sink, out, written } = setUp(10);
  const reports: number[] = [];
  sink.onLost = (lines) => void reports.push(lines);
  out.room = 0;
  for (const line of ['ab\n', 'cd\n']) sink.write(line);
  await turn();
  for (const line of ['ef\n', 'gh\n', 'ij\n']) sink.write(line);
  assert.equal(sink.dropped_total, 2);
  assert.equal(sink.pending_bytes, 9);
  // One byte at a time: a short write neither loses nor repeats anything.
  out.room = 1;
  await written(9);
  assert.equal(out.text, 'ab\ncd\nef\n');
  assert.deepEqual(reports, [2]);
  sink.write('kl\n');
  await written(12);
  assert.deepEqual(reports, [2]);
});

test('flushSync writes the waiting lines at once, and the turn after it repeats nothing', async () => {
  const { sink, out } = setUp();
  sink.write('a\n');
  sink.write('b\n');
  sink.flushSync();
  assert.equal(out.text, 'a\nb\n');
  await turn();
  assert.equal(out.calls, 1);
});

test('flushSync gives up after its budget and keeps the lines; dispose drops and counts them', async () => {
  const { sink, out, written } = setUp();
  out.room = 0;
  sink.write('a\n');
  const began_ms = performance.now();
  sink.flushSync(50);
  assert.ok(performance.now() - began_ms >= 49);
  assert.deepEqual([sink.dropped_total, sink.pending_bytes], [0, 2]);
  out.room = Infinity;
  await written(2);
  out.room = 0;
  sink.write('b\n');
  sink[Symbol.dispose]();
  sink[Symbol.dispose]();
  sink.write('c\n');
  assert.equal(sink.dropped_total, 2);
});

test('a reader that is gone costs the lines, not the process', () => {
  const sink = new LogSink({ writeSync: () => failWith('EPIPE') });
  sink.write('a\n');
  sink.flushSync();
  sink.write('b\n');
  sink.flushSync();
  assert.equal(sink.dropped_total, 2);
  assert.equal(sink.pending_bytes, 0);
});

test('a write that fails keeps the sink alive: lines wait or are counted, and come out when it works again', async () => {
  for (const code of ['ENOSPC', 'EDQUOT', 'EIO', 'EINTR', 'EUNKNOWN']) {
    const out = { text: '', calls: 0, code };
    const sink = new LogSink({
      pending_bytes_max: 6,
      writeSync: (_fd, bytes) => {
        out.calls += 1;
        if (out.code !== '' && out.text.length === 1) failWith(out.code);
        // The first write is short: the disk becomes full in the middle of a line.
        const taken = bytes.subarray(0, out.text === '' ? 1 : bytes.length);
        out.text += Buffer.from(taken).toString('latin1');
        return taken.length;
      },
    });
    const reports: unknown[] = [];
    sink.onLost = (...report) => void reports.push(report);
    for (const line of ['ab\n', 'cd\n']) sink.write(line);
    await turn();
    for (const line of ['ef\n', 'gh\n']) sink.write(line);
    assert.equal(sink.dropped_total, 2, code);
    out.code = '';
    while (sink.pending_bytes > 0) await turn();
    assert.equal(out.text, 'ab\ncd\n', code);
    assert.deepEqual(reports, [[2, code]]);
  }
});

test('writes that fail are tried again at a bounded pace, and flushSync does not wait for them', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    let calls = 0;
    const sink = new LogSink({
      writeSync: () => {
        calls += 1;
        return failWith('ENOSPC');
      },
    });
    sink.write('a\n');
    // The clock stands still: a flush that waited for its budget would not end.
    sink.flushSync();
    assert.equal(calls, 1);
    for (let line = 0; line < 100; line++) sink.write('b\n');
    await clock.advance(5000);
    assert.ok(calls > 5 && calls <= 12, `${calls} writes`);
    sink[Symbol.dispose]();
  });
});

test('an onLost that throws does not break the sink', { timeout: 60_000 }, async () => {
  const { sink, out, written } = setUp(5);
  let reports = 0;
  sink.onLost = () => {
    reports += 1;
    throw new Error('broken hook');
  };
  out.room = 0;
  for (const line of ['ab\n', 'cd\n']) sink.write(line);
  await turn();
  out.room = Infinity;
  await written(3);
  sink.write('ef\n');
  await written(6);
  assert.equal(out.text, 'ab\nef\n');
  assert.deepEqual([reports, sink.dropped_total], [1, 1]);
});

const LOG_URL = JSON.stringify(new URL('./log.ts', import.meta.url).href);
const SINK_URL = JSON.stringify(new URL('./log-sink.ts', import.meta.url).href);

const WITH_LOG = `
  const { createLog } = await import(${LOG_URL});
  const log = createLog({ service: 'storage' });`;
/** pino makes standard error non-blocking when it is imported; this shows that the sink does not depend on it. */
const WITH_SINK = `
  const { standardErrorSink } = await import(${SINK_URL});
  const write = (level, fields, msg) => standardErrorSink().write(JSON.stringify({ level, ...fields, msg }) + '\\n');
  standardErrorSink().onLost = (lines) => write('warn', { lines }, 'lost log lines');
  const log = { info: (fields, msg) => write('info', fields, msg) };`;

/** Runs a program that has a `log` to standard error; `stderr` is a pipe of Node (a socket) or a descriptor. */
function run(program: string, stderr: 'pipe' | number = 'pipe', prelude = WITH_LOG): ChildProcess {
  const flags = ['--expose-gc', '--input-type=module', '--eval', `${prelude}\n${program}`];
  return spawn(process.execPath, flags, { stdio: ['pipe', 'pipe', stderr] });
}

async function textOf(stream: Readable): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) text += String(chunk);
  return text;
}

const indexesIn = (text: string): number[] =>
  text.split('\n').flatMap((line) => {
    const { index } = JSON.parse(line === '' ? '{}' : line) as { index?: number };
    return index === undefined ? [] : [index];
  });

const ENDS = {
  'process.exit in the same turn': 'process.exit(3);',
  'an exit code and nothing left to do': 'process.exitCode = 3;',
  'an uncaught error': `process.on('uncaughtException', () => process.exit(3)); throw new Error('broken');`,
};

for (const [name, end] of Object.entries(ENDS)) {
  test(`every line is out when the process ends: ${name}`, async () => {
    const program = `for (let index = 0; index < 2000; index++) log.info({ index }, 'line '.repeat(20)); ${end}`;
    const child = run(program);
    const [text, [exit]] = await Promise.all([textOf(child.stderr!), once(child, 'close')]);
    assert.equal(exit, 3);
    assert.deepEqual(
      indexesIn(text),
      Array.from({ length: 2000 }, (_, index) => index),
    );
  });
}

const LOGS_AT_EXIT = `process.on('exit', () => log.info({ index: 1 }, 'at exit'));`;
const EXIT_HANDLERS = {
  'registered before the log': `${LOGS_AT_EXIT}${WITH_LOG}`,
  'registered after the log': `${WITH_LOG}${LOGS_AT_EXIT}`,
  'followed by one that exits': `${LOGS_AT_EXIT}process.on('exit', () => process.exit(3));${WITH_LOG}`,
};

for (const [name, prelude] of Object.entries(EXIT_HANDLERS)) {
  test(`a line of an exit handler is out: ${name}`, async () => {
    const child = run(`log.info({ index: 0 }, 'first');`, 'pipe', prelude);
    const [text] = await Promise.all([textOf(child.stderr!), once(child, 'close')]);
    assert.deepEqual(indexesIn(text), [0, 1]);
  });
}

test('after the end each line is written at once, and all of them share one budget', () => {
  const { sink, out } = setUp();
  sink.write('a\n');
  sink.end(50);
  sink.write('b\n');
  assert.equal(out.text, 'a\nb\n');
  out.room = 0;
  const began_ms = performance.now();
  while (performance.now() - began_ms < 50) sink.write('c\n');
  const { calls } = out;
  for (let line = 0; line < 100; line++) sink.write('d\n');
  sink.flushSync();
  assert.equal(out.calls - calls, 101, 'one try for each, without a wait');
});

test('a fatal line and those before it are out even if the process is killed right after', async () => {
  const child = run(`log.info({ index: 0 }, 'x'); log.fatal({ index: 1 }, 'y'); process.kill(process.pid, 'SIGKILL');`);
  const [text, [, signal]] = await Promise.all([textOf(child.stderr!), once(child, 'close')]);
  assert.equal(signal, 'SIGKILL');
  assert.deepEqual(indexesIn(text), [0, 1]);
});

/** Logs 20 MB, prints a report, and ends once it reads from standard input and the lines are out. */
const FLOOD = `
  const sink = (await import(${SINK_URL})).standardErrorSink();
  gc();
  const before_bytes = process.memoryUsage().rss;
  let turns = 0;
  for (let index = 0; index < 20_000; index++) {
    log.info({ index }, 'x'.repeat(1000));
    if (index % 100 === 99) {
      await new Promise((resolve) => setImmediate(resolve));
      turns += 1;
    }
  }
  gc();
  const report = { turns, dropped: sink.dropped_total, pending: sink.pending_bytes, grown: process.memoryUsage().rss - before_bytes };
  process.stdout.write(JSON.stringify(report) + '\\n');
  await new Promise((resolve) => process.stdin.once('data', resolve));
  while (sink.pending_bytes > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  process.exit(0);`;

interface Report {
  readonly turns: number;
  readonly dropped: number;
  readonly pending: number;
  readonly grown: number;
}

/** The reader takes nothing until the process has reported, which it can only do if its event loop is not blocked. */
async function stall(t: TestContext, child: ChildProcess, open: () => Readable): Promise<void> {
  t.after(() => child.kill('SIGKILL'));
  const [chunk] = (await once(child.stdout!, 'data')) as [Buffer];
  const { turns, dropped, pending, grown } = JSON.parse(chunk.toString()) as Report;
  t.diagnostic(`${dropped} of 20 000 lines dropped, ${pending} bytes wait, memory grew by ${grown} bytes`);
  assert.equal(turns, 200);
  assert.ok(dropped > 15_000 && pending <= 1024 * 1024, `${dropped} dropped, ${pending} bytes wait`);
  assert.ok(grown < 64 * 1024 * 1024, `memory grew by ${grown} bytes`);
  const reading = textOf(open());
  child.stdin!.write('end\n');
  const [text] = await Promise.all([reading, once(child, 'close')]);
  const indexes = indexesIn(text);
  assert.equal(indexes.length + dropped, 20_000, 'a line is written or counted as lost');
  assert.deepEqual(indexes, [...indexes.keys()], 'in order');
  assert.match(text, new RegExp(`"level":"warn".*"lines":${dropped},"msg":"lost log lines`));
}

const within = { timeout: 60_000 };

test('a stalled reader of a socket neither blocks the event loop nor fills the memory', within, async (t) => {
  const child = run(FLOOD);
  await stall(t, child, () => child.stderr!);
});

test('a stalled reader of a named pipe neither blocks the event loop nor fills the memory', within, async (t) => {
  const directory = tempDirFor(t);
  const path = join(directory, 'log');
  execFileSync('mkfifo', [path]);
  // Opened for both, so that neither this nor the open of the writer waits for the other side.
  const reader = openSync(path, 'r+');
  const writer = openSync(path, 'w');
  const child = run(FLOOD, writer, WITH_SINK);
  closeSync(writer);
  await stall(t, child, () => {
    const ends = new Socket({ fd: openSync(path, 'r'), readable: true, writable: false });
    closeSync(reader);
    return ends;
  });
});

test('a descriptor that other processes share stays blocking for them', async (t) => {
  const directory = tempDirFor(t);
  const path = join(directory, 'log');
  execFileSync('mkfifo', [path]);
  const shared = openSync(path, 'r+');
  t.after(() => closeSync(shared));
  const flagsOf = (): string => /flags:\s*(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${shared}`, 'utf8'))![1]!;
  const before = flagsOf();
  const program = `log.info({}, 'x'); sink.flushSync(); process.stdout.write('written'); setInterval(() => {}, 1000);`;
  const child = run(`const sink = standardErrorSink(); ${program}`, shared, WITH_SINK);
  t.after(() => child.kill('SIGKILL'));
  // Node restores the flags at exit, so they are compared while it runs.
  await once(child.stdout!, 'data');
  assert.equal(flagsOf(), before);
});

test('a process whose reader is stalled still exits, within the budget of the last flush', within, async (t) => {
  const child = run(
    `for (let index = 0; index < 2000; index++) log.info({ index }, 'x'.repeat(1000)); process.exit(3);`,
  );
  t.after(() => child.kill('SIGKILL'));
  const [exit] = (await once(child, 'exit')) as [number];
  assert.equal(exit, 3);
  child.stderr!.destroy();
});
