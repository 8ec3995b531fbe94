/**
 * The cost of an idle node: time until `ron up` has three services ready, and the own memory of each idle service.
 *
 * `cold`: the first start on a machine, with an empty compile cache and a new directory. `warm`: the next start. The own
 * memory is `RssAnon`, a few seconds after the node is ready.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { measure, quick, report, scratchDir, type Case } from './lib.ts';
import { ownMemory_bytes, path } from './servers.ts';

const RON = path('../apps/ron/bin/ron.js');
const SETTLE_MS = 3000;
const READY_MS_MAX = 60_000;
const MIB = 1024 * 1024;
const MEMORY_BARS = { storage: 70, kms: 70, passport: 55 } as const;

interface Start {
  readonly ready_s: number;
  readonly memory_mib: Readonly<Record<keyof typeof MEMORY_BARS, number>>;
}

/** The starts of the present repeat: the cases of a repeat read different figures of the same start. */
const starts = new Map<'cold' | 'warm', Start>();

async function start(cache: string, dir: string): Promise<Start> {
  const env: NodeJS.ProcessEnv = { ...process.env, XDG_CACHE_HOME: cache };
  delete env['NODE_COMPILE_CACHE'];
  const began_ms = performance.now();
  const child = spawn(process.execPath, [RON, 'up', '--dir', dir, '--base-port', '0', '--json'], {
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  try {
    await once(child.stdout, 'data', { signal: AbortSignal.timeout(READY_MS_MAX) });
    const ready_s = (performance.now() - began_ms) / 1000;
    await sleep(SETTLE_MS);
    const { pids } = JSON.parse(readFileSync(join(dir, 'node.json'), 'utf8')) as { pids: Record<string, number> };
    const own = (name: string): number => ownMemory_bytes(pids[name]!) / MIB;
    return { ready_s, memory_mib: { storage: own('storage'), kms: own('kms'), passport: own('passport') } };
  } finally {
    const ended = once(child, 'close');
    child.kill('SIGINT');
    await ended;
  }
}

async function startTwice(): Promise<void> {
  const scratch = scratchDir('footprint');
  try {
    starts.set('cold', await start(join(scratch, 'cache'), join(scratch, 'node')));
    starts.set('warm', await start(join(scratch, 'cache'), join(scratch, 'node')));
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

const cases: Case[] = [
  {
    name: 'ron up, three services, cold',
    unit: 's',
    bar: 2.5,
    run: async () => {
      await startTwice();
      return starts.get('cold')!.ready_s;
    },
  },
  { name: 'ron up, three services, warm', unit: 's', bar: 1.5, run: () => starts.get('warm')!.ready_s },
];
for (const kind of ['cold', 'warm'] as const) {
  for (const [name, bar] of Object.entries(MEMORY_BARS)) {
    const memory = (): number => starts.get(kind)!.memory_mib[name as keyof typeof MEMORY_BARS];
    cases.push({ name: `own memory of ${name}, idle, ${kind}`, unit: 'MiB', bar, run: memory });
  }
}

report('footprint', 'An idle node: start and memory', await measure(cases, quick ? 2 : 7));
