/**
 * Mailbox compared with JetStream, a million waiting messages, and long polls. `node bench/mailbox.ts [PART...] [--quick]`
 *
 * CPU time is that of the server with all its threads. Rounds alternate between the cases and the servers; a figure is the
 * median with its spread. Rates, memory and turns of the loop are measured in separate runs. Needs nats-server
 * (`apt-get install nats-server`), else the rows of JetStream are left out. Parts: `rates`, `million`, `polls`.
 */
import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { FileKeySource, mint } from '@ron/auth';
import { scopesOf } from '@ron/proto';
import { callChild, machineLine, median, quick, scratchDir, table } from './lib.ts';
import type { Turns } from './loop-watch.ts';
import type { MailboxOrder, MailboxReport } from './mailbox-load.ts';
import type { Memory, Syncs } from './mailbox-probe.ts';
import type { NatsOrder, NatsReport } from './nats-load.ts';
import { natsProgram, startNats } from './nats.ts';
import { freePort } from './nginx.ts';
import {
  cpu_us,
  ownMemory_bytes,
  path,
  startService,
  type Server,
  type ServiceProcess,
  type StartInit,
} from './servers.ts';

const MIB = 1024 * 1024;
const PAYLOAD_BYTES = 1024;
const CLIENTS = 16;
const ROUNDS = quick ? 3 : 5;
const MESSAGES = quick ? 16_000 : 48_000;
const WAITING = quick ? 100_000 : 1_000_000;
const FEW = 1000;
const STARTS = 3;
const RECEIVE_ROUNDS = quick ? 20 : 40;
const POLLS = quick ? 500 : 2000;
const PROBE = { preload: [path('./loop-watch.ts'), path('./mailbox-probe.ts')] };

const dir = scratchDir('mailbox');
const children: ChildProcess[] = [];
const rows: string[][] = [];
const notes: string[] = [];

const spread = (values: readonly number[], digits: number): string =>
  `${median([...values]).toFixed(digits)} (${Math.min(...values).toFixed(digits)} .. ${Math.max(...values).toFixed(digits)})`;
const verdict = (isMet: boolean): string => (isMet ? 'pass' : 'FALLS SHORT');
const row = (name: string, value: string, bar = '', isMet?: boolean): void => {
  rows.push([name, value, bar, isMet === undefined ? '' : verdict(isMet)]);
  process.stdout.write(`${rows.at(-1)!.join(' | ')}\n`);
};

function own<P extends { readonly child: ChildProcess }>(started: P): P {
  children.push(started.child);
  return started;
}

const forked = (file: string): ChildProcess => {
  const child = fork(path(file), { execArgv: [] }).setMaxListeners(0);
  children.push(child);
  return child;
};

interface Mailbox extends ServiceProcess {
  readonly authorization: string;
}

async function startMailbox(name: string, init: StartInit, port = 0): Promise<Mailbox> {
  const key_file = join(dir, 'keys');
  const { signal } = new AbortController();
  await using keys = await FileKeySource.open({ path: key_file }, signal);
  const { token } = await mint(keys, { audience: 'mailbox', scopes: scopesOf('mailbox'), ttl_ms: 3_600_000 }, signal);
  const flags = [`--server.bind=127.0.0.1:${port}`, `--data_dir=${join(dir, name)}`, `--auth.key_file=${key_file}`];
  return { ...own(await startService('mailbox', init, flags)), authorization: `Bearer ${token}` };
}

async function end({ child }: ServiceProcess, signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
  const ended = once(child, 'exit');
  child.kill(signal);
  await ended;
}

type Load = Pick<MailboxOrder, 'kind' | 'topic' | 'batch' | 'messages'> & Partial<MailboxOrder>;

const load = forked('./mailbox-load.ts');
const call = ({ port, authorization }: Mailbox, order: Load, generator = load): Promise<MailboxReport> =>
  callChild<MailboxReport>(generator, {
    port,
    authorization,
    clients: CLIENTS,
    payload_bytes: PAYLOAD_BYTES,
    ...order,
  } satisfies MailboxOrder);

/** One line of the table of rates. */
interface Case {
  readonly name: string;
  readonly rate_min?: number;
  readonly cpu_us_max?: number;
  readonly server: Server;
  readonly run: () => Promise<{ readonly seconds: number; readonly messages: number }>;
}

interface Figures {
  readonly rates: number[];
  readonly costs: number[];
}

function mailboxCases(mailbox: Mailbox): Case[] {
  const of = (kind: 'send' | 'cycle', batch: number, isJson: boolean, bars: Partial<Case>): Case => {
    const body = isJson ? 'JSON' : 'framed';
    const what = kind === 'send' ? 'send' : 'send, receive, ack';
    const topic = `${kind}.${body.toLowerCase()}_${batch}`;
    const messages = kind === 'send' ? MESSAGES : MESSAGES / 2;
    const run = () => call(mailbox, { kind, topic, batch, isJson, messages });
    return { name: `${what}, ${body}, batches of ${batch}`, server: mailbox, run, ...bars };
  };
  return [
    of('send', 16, false, { rate_min: 20_000, cpu_us_max: 45 }),
    of('send', 16, true, {}),
    of('send', 64, false, { rate_min: 40_000 }),
    of('send', 64, true, {}),
    of('cycle', 16, false, { cpu_us_max: 120 }),
    of('cycle', 16, true, {}),
  ];
}

async function natsCases(): Promise<Case[]> {
  const program = natsProgram();
  if (program === undefined) return [];
  const version = spawnSync(program, ['--version'], { encoding: 'utf8' }).stdout.trim();
  notes.push(
    `JetStream: ${version}, one server, file storage, work queue, one connection for each client. It answers a publish ` +
      'before the sync and syncs every two minutes; versions before 2.10 cannot sync each publish. Mailbox syncs before each answer.',
  );
  const server = own(await startNats(join(dir, 'nats')));
  const generator = forked('./nats-load.ts');
  const of = (kind: 'send' | 'cycle', batch: number): Case => ({
    name: `${kind === 'send' ? 'publish' : 'publish, fetch, ack'}, JetStream, ${batch} at a time`,
    server,
    run: async () => {
      const messages = kind === 'send' ? MESSAGES : MESSAGES / 2;
      const order = { kind, batch, messages, port: server.port, clients: CLIENTS, payload_bytes: PAYLOAD_BYTES };
      const { seconds } = await callChild<NatsReport>(generator, order satisfies NatsOrder);
      return { seconds, messages };
    },
  });
  const emptied = (one: Case): Case => ({
    ...one,
    run: async () => {
      const order = { kind: 'empty', batch: 1, messages: 1, port: server.port, clients: 1, payload_bytes: 1 } as const;
      await callChild<NatsReport>(generator, order satisfies NatsOrder);
      return await one.run();
    },
  });
  return [of('send', 16), of('send', 64), of('cycle', 16)].map(emptied);
}

async function rates(): Promise<void> {
  const mailbox = await startMailbox('rates', {});
  const cases = [...mailboxCases(mailbox), ...(await natsCases())];
  const figures = cases.map((): Figures => ({ rates: [], costs: [] }));
  for (let round = -1; round < ROUNDS; round++) {
    for (const [at, { server, run }] of cases.entries()) {
      const before_us = cpu_us(server.pid);
      const { seconds, messages } = await run();
      if (round < 0) continue;
      figures[at]!.rates.push(messages / seconds);
      figures[at]!.costs.push((cpu_us(server.pid) - before_us) / messages);
    }
  }
  for (const [at, { name, rate_min, cpu_us_max }] of cases.entries()) {
    const { rates: per_s, costs } = figures[at]!;
    const isFast = rate_min === undefined ? undefined : median(per_s) >= rate_min;
    const isCheap = cpu_us_max === undefined ? undefined : median(costs) <= cpu_us_max;
    row(`${name}, messages/s`, spread(per_s, 0), rate_min === undefined ? '' : `>= ${rate_min}`, isFast);
    row(`${name}, CPU us per message`, spread(costs, 1), cpu_us_max === undefined ? '' : `<= ${cpu_us_max}`, isCheap);
  }
  await end(mailbox);
}

interface MemoryUse {
  readonly live_mib: number;
  readonly own_mib: number;
}

async function memoryOf({ child, pid }: Mailbox): Promise<MemoryUse> {
  const { live_bytes } = await callChild<Memory>(child, 'memory');
  return { live_mib: live_bytes / MIB, own_mib: ownMemory_bytes(pid) / MIB };
}

/** The longest turn of the loop while `work` runs. */
async function turnsDuring({ child }: Pick<Mailbox, 'child'>, name: string, work: () => Promise<void>): Promise<void> {
  await callChild<Turns>(child, 'watch');
  await work();
  reportTurns(name, [await callChild<Turns>(child, 'stop')]);
}

function reportTurns(name: string, turns: readonly Turns[]): void {
  const longest = turns.map(({ longest_turn_ms }) => longest_turn_ms);
  const above = turns.reduce((sum, { turns_above_5_ms }) => sum + turns_above_5_ms, 0);
  row(`longest turn of the loop, ms of CPU, ${name}`, `${spread(longest, 1)}, ${above} above 5`, '<= 5', above === 0);
}

const BACKLOG = 'backlog';

/** Code is loaded and compiled, buffers are allocated: the first request of a kind has a turn of up to 85 ms. */
async function warmUp(mailbox: Mailbox): Promise<void> {
  await call(mailbox, { kind: 'cycle', topic: 'few', batch: 125, messages: 20_000 });
}

async function million(): Promise<void> {
  const port = await freePort();
  const mailbox = await startMailbox('million', PROBE, port);
  const fresh = await memoryOf(mailbox);
  await warmUp(mailbox);
  const empty = await memoryOf(mailbox);
  await turnsDuring(mailbox, 'while it is filled', async () => {
    await call(mailbox, { kind: 'send', topic: BACKLOG, batch: 125, messages: WAITING });
  });
  reportMemory('after they were sent', empty, await memoryOf(mailbox));
  await receives(mailbox);
  await end(mailbox, 'SIGKILL');
  const started = await starts(port, fresh);
  await compaction(started);
  await end(started);
}

function reportMemory(when: string, empty: MemoryUse, full: MemoryUse): void {
  const name = `${WAITING.toLocaleString('en')} waiting messages, ${when}: memory above the empty service, MiB`;
  const live = full.live_mib - empty.live_mib;
  const own_mib = full.own_mib - empty.own_mib;
  const isMet = quick ? undefined : live <= 120;
  row(`${name}, objects and buffers after a collection`, live.toFixed(0), quick ? '' : '<= 120', isMet);
  row(`${name}, RssAnon`, own_mib.toFixed(0), quick ? '' : '<= 120', quick ? undefined : own_mib <= 120);
}

/** Receives of 960 messages by one client, from a long and a short queue in turn. Both are filled again after each round. */
async function receives(mailbox: Mailbox): Promise<void> {
  const COUNT = 960;
  const one = async (topic: string): Promise<{ cost: number; p50_ms: number }> => {
    const order = { topic, messages: COUNT, clients: 1 };
    const before_us = cpu_us(mailbox.pid);
    const { messages, p50_ms } = await call(mailbox, { ...order, kind: 'receive', batch: 16 });
    const cost = (cpu_us(mailbox.pid) - before_us) / messages;
    await call(mailbox, { ...order, kind: 'ack', batch: 120 });
    await call(mailbox, { ...order, kind: 'send', batch: 120 });
    return { cost, p50_ms };
  };
  await call(mailbox, { kind: 'send', topic: 'few', batch: 125, messages: FEW });
  const [many, few]: [number[], number[]] = [[], []];
  const [many_ms, few_ms]: [number[], number[]] = [[], []];
  for (let round = -5; round < RECEIVE_ROUNDS; round++) {
    const [long, short] = [await one(BACKLOG), await one('few')];
    if (round < 0) continue;
    many.push(long.cost);
    few.push(short.cost);
    many_ms.push(long.p50_ms);
    few_ms.push(short.p50_ms);
  }
  const ratio = median(many) / median(few);
  const names = [WAITING, FEW].map((count) => count.toLocaleString('en'));
  row(`receive of ${names[1]} waiting, CPU us per message`, spread(few, 1));
  row(`receive of ${names[0]} waiting, CPU us per message`, spread(many, 1));
  row(
    `the same, median time of a batch of 16, ms`,
    `${median(many_ms).toFixed(2)} against ${median(few_ms).toFixed(2)}`,
  );
  row(`receive of ${names[0]} against ${names[1]}, CPU`, ratio.toFixed(2), '<= 1.1', ratio <= 1.1);
}

/** Starts after a kill; the last process stays. */
async function starts(port: number, empty: MemoryUse): Promise<Mailbox> {
  const took_s: number[] = [];
  const cpu_s: number[] = [];
  const turns: Turns[] = [];
  for (let start = 1; ; start++) {
    const begun_ms = performance.now();
    const spawned = Promise.withResolvers<ChildProcess>();
    const starting = startMailbox('million', { ...PROBE, onSpawn: spawned.resolve }, port);
    const child = await spawned.promise;
    // Turns before load code.
    await untilReplaying(port);
    await callChild<Turns>(child, 'watch');
    const mailbox = await starting;
    took_s.push((performance.now() - begun_ms) / 1000);
    cpu_s.push(cpu_us(mailbox.pid) / 1e6);
    turns.push(await callChild<Turns>(child, 'stop'));
    if (start < STARTS) {
      await end(mailbox, 'SIGKILL');
      continue;
    }
    const isMet = quick ? undefined : median(took_s) <= 4;
    row(`start after kill -9 until ready, s (process start included)`, spread(took_s, 2), quick ? '' : '<= 4', isMet);
    row('the same, CPU s', spread(cpu_s, 2));
    reportTurns('while the log is replayed', turns);
    reportMemory('after a start', empty, await memoryOf(mailbox));
    return mailbox;
  }
}

async function untilReplaying(port: number): Promise<void> {
  for (;;) {
    const text = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (answer) => answer.text(),
      () => '',
    );
    if (/replaying|"ready":true/.test(text)) return;
    await sleep(5);
  }
}

async function compacted_bytes({ port }: Mailbox): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  return Number(/^mailbox_compacted_bytes_total (\S+)$/m.exec(text)?.[1] ?? 0);
}

/** Three of four messages are acked: the rest keeps every segment alive until it is moved. */
async function compaction(mailbox: Mailbox): Promise<void> {
  await warmUp(mailbox);
  await turnsDuring(mailbox, 'during receives, acks and compaction', async () => {
    await call(mailbox, { kind: 'drain', topic: BACKLOG, batch: 128, messages: WAITING * 0.9 });
    let last = -1;
    for (let now = 0; now > last; now = await compacted_bytes(mailbox)) {
      last = now;
      await sleep(3000);
    }
  });
  row('compacted, MiB', ((await compacted_bytes(mailbox)) / MIB).toFixed(0));
}

function percentile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)]!;
}

/** From the end of the sync of a send to the arrival of its message at a receiver that waits. */
async function polls(): Promise<void> {
  const mailbox = await startMailbox('polls', PROBE);
  const other = forked('./mailbox-load.ts');
  const order = { kind: 'polls', topic: 'polls', batch: 1, clients: 5 } as const;
  await call(mailbox, { ...order, messages: 500 });
  const one = async (name: string): Promise<void> => {
    await callChild<Syncs>(mailbox.child, 'syncs');
    const { arrivals_ms } = await call(mailbox, { ...order, messages: POLLS });
    const { times_ms } = await callChild<Syncs>(mailbox.child, 'syncs');
    let sync = 0;
    const took_ms = arrivals_ms.map(([sent_ms, arrived_ms]) => {
      // The first sync that began after the send: a later one may have covered it, so this is an upper bound.
      while (times_ms[sync]![0] < sent_ms) sync += 1;
      return arrived_ms - times_ms[sync]![1];
    });
    const p99 = percentile(took_ms, 0.99);
    const value = `${p99.toFixed(2)} (median ${percentile(took_ms, 0.5).toFixed(2)}, most ${Math.max(...took_ms).toFixed(1)})`;
    row(`from the sync of a send to the waiting receiver, p99, ms, ${name}`, value, '< 5', p99 < 5);
  };
  await one('idle otherwise');
  const over = new AbortController();
  const busy = (async () => {
    while (!over.signal.aborted) {
      await call(mailbox, { kind: 'cycle', topic: 'other', batch: 16, messages: 3200, clients: 4 }, other);
    }
  })();
  await one('beside 4 clients that send, receive and ack batches of 16');
  over.abort();
  await busy;
  await end(mailbox);
}

const only = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const parts = { rates, million, polls };
try {
  for (const [name, run] of Object.entries(parts)) if (only.length === 0 || only.includes(name)) await run();
  const text = [machineLine(), '', table(['measured', 'value', 'bar', 'verdict'], rows), '', ...notes];
  process.stdout.write(`\n${text.join('\n')}\n`);
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
}
