/**
 * `npm test`: runs the checks, then every `*.test.ts` of the workspace. The last line is `N passed, N failed[, N skipped]`.
 *
 * `npm test -- PATTERN ...` runs only the test files whose path contains one of the patterns, without the checks.
 */
import { globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';
import { runChecks } from './check.ts';
import { installTestTools } from './install-test-tools.ts';

/** A list of test files, each with the reason for its place in it. */
type Reasons = ReadonlyMap<string, string>;

/** More than there are cores: most test files wait for processes, disks and timers. */
const FILES_AT_ONCE = 6;
/** Two of them at a time, after the others: they wait for whole seconds, and need a core when a time is up. */
const NEEDS_A_CORE: Reasons = new Map([
  ['packages/ingress/test/attacks/slow-readers-are-cut.test.ts', 'readers are cut at the limit, those with a pace not'],
  ['packages/ingress/test/attacks/slow-headers-are-cut.test.ts', 'senders are cut at the limit, those with a pace not'],
  ['services/storage/test/disks-that-fail.test.ts', 'a full disk is probed once a second'],
  [
    'services/edge/test/fill/fills-keep-their-deadlines.test.ts',
    'fills end at 5 s, and pauses between tries are measured',
  ],
  ['packages/ingress/test/signals-and-supervision.test.ts', 'a process ends within its drain deadline and a little'],
  ['packages/ingress/test/attacks/slow-bodies-are-cut.test.ts', 'senders are cut at the limit, those with a pace not'],
  ['apps/ron/test/capability-lifecycle.test.ts', 'a revocation reaches every service within 2 s'],
  ['packages/custody/test/token-killed.test.ts', 'the slowest call of a dead token ends within 2 s'],
  ['services/kms/test/outages-are-survived.test.ts', 'a refusal comes within the deadline of a signature'],
  ['services/passport/test/revocations-are-published.test.ts', 'a revocation is published within 2 s'],
  ['services/storage/test/repair-drains.test.ts', 'repairs end within the drain deadline or are cut at it'],
  ['packages/ingress/test/drain-finishes-inflight.test.ts', 'a drain ends within its deadline and a little'],
]);
/** Together, after those: many servers that wait for directories to be noticed, with seconds of patience. */
const MANY_SERVERS: Reasons = new Map([
  ['services/storage/test/histories.test.ts', 'ten servers at a time'],
  ['services/storage/test/directories-vanish-at-every-step.test.ts', 'six servers at a time'],
]);
/**
 * Files that run alone, at the end, because they assert latencies or rates, or use the whole machine. A file that only
 * waits for conditions does not belong here.
 */
const NEEDS_THE_MACHINE: Reasons = new Map([
  ['packages/custody/test/token-recovery.test.ts', 'a refusal takes less than 5 ms'],
  ['packages/ingress/test/attacks/fast-path-differs-in-nothing.test.ts', 'an answer from RAM overtakes workers'],
  ['packages/ingress/test/attacks/others-keep-their-latency.test.ts', 'p95 of other clients stays within 1.5 times'],
  [
    'packages/ingress/test/attacks/floods-leave-others-their-turn.test.ts',
    'p95 of other clients stays within 1.5 times',
  ],
  ['services/edge/test/cache/hits-are-not-delayed-by-eviction.test.ts', 'p99 of hits stays within a bound'],
  ['services/edge/test/fill/killed-workers-come-back.test.ts', 'killed workers are back within 1 s'],
  ['services/index/test/a-flood-leaves-others-their-latency.test.ts', 'p95 of other clients stays within a bound'],
  ['services/storage/test/no-long-turns-under-load.test.ts', 'turns of the event loop stay short'],
  ['services/storage/test/slow-files.test.ts', 'answers come within seconds while files are delayed'],
  ['services/storage/test/two-directories-die-under-load.test.ts', 'repair leaves readers their latency'],
]);
/** The phases after that of all other files, in order. */
const PHASES: readonly (readonly [files: Reasons, at_once: number])[] = [
  [NEEDS_A_CORE, 2],
  [MANY_SERVERS, 2],
  [NEEDS_THE_MACHINE, 1],
];
/** The time limit of a single test: a hang is a failure. */
const TEST_TIMEOUT_MS = 180_000;
const NODE_FLAGS = ['--require', fileURLToPath(new URL('untracked-promises.cjs', import.meta.url))];

const tally = { passed: 0, failed: 0, skipped: 0 };
/** A line for each test that failed, of all phases: printed last, where a log that is cut still shows it. */
const failures: string[] = [];

/** The time of each test file, in which it shared the machine with the others of its phase. */
const took_ms = new Map<string, number>();
const SLOWEST_FILES = 20;

function countFailure(name: string, message: string): void {
  tally.failed += 1;
  failures.push(`${name}\n    ${message.replaceAll(/\s+/g, ' ').slice(0, 300)}`);
}

function countChecks(): void {
  runChecks((result) => {
    if (result.ok) tally.passed += 1;
    else countFailure(`check: ${result.name}`, result.output);
    process.stdout.write(`${result.ok ? '✔' : '✖'} check: ${result.name}\n`);
    if (!result.ok) process.stdout.write(`${result.output}\n`);
  });
}

async function countTests(patterns: readonly string[]): Promise<void> {
  const files = globSync('{packages,services,apps,tools,bench,docs}/**/*.test.ts', { exclude: ['**/node_modules/**'] })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => patterns.length === 0 || patterns.some((pattern) => file.includes(pattern)))
    .toSorted();
  if (files.length === 0) {
    countFailure(patterns.join(', '), 'no test file matches');
  }
  const listed = PHASES.flatMap(([reasons]) => [...reasons.keys()]);
  for (const named of patterns.length === 0 ? listed : []) {
    if (files.includes(named)) continue;
    countFailure(named, 'is listed in tools/test.ts but does not exist');
  }
  await runFiles(longestFirst(files.filter((file) => !listed.includes(file))), FILES_AT_ONCE);
  for (const [reasons, at_once] of PHASES) {
    const phase = [...reasons.keys()].filter((file) => files.includes(file));
    await runFiles(phase, at_once);
  }
}

/**
 * Tests of processes first: they wait, and end with the short tests beside the sources, which need the CPU only. The last
 * files to end are then short ones.
 */
function longestFirst(files: readonly string[]): string[] {
  const isOfProcesses = (file: string): boolean => file.includes('/test/');
  return [...files.filter(isOfProcesses), ...files.filter((file) => !isOfProcesses(file))];
}

/** All processes of the tests share one compile cache. */
async function withCompileCache(work: () => Promise<void>): Promise<void> {
  const cache = mkdtempSync(join(tmpdir(), 'ron-test-compile-cache-'));
  process.env['NODE_COMPILE_CACHE'] = cache;
  try {
    await work();
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
}

async function runFiles(files: string[], concurrency: number): Promise<void> {
  if (files.length === 0) return;
  const events = run({ files, concurrency, timeout: TEST_TIMEOUT_MS, execArgv: NODE_FLAGS });
  events.on('test:pass', (event) => {
    if (event.details.type === 'suite') return;
    tally[event.skip === undefined ? 'passed' : 'skipped'] += 1;
  });
  events.on('test:fail', (event) => {
    if (event.details.type === 'suite') return;
    const { cause, message } = event.details.error;
    countFailure(`${relative('.', event.file ?? '')}: ${event.name}`, cause instanceof Error ? cause.message : message);
  });
  events.on('test:summary', ({ file, duration_ms }) => {
    if (file !== undefined) took_ms.set(relative('.', file), duration_ms);
  });
  for await (const text of events.compose(new spec())) process.stdout.write(text);
}

function printSlowest(): void {
  const slowest = [...took_ms].toSorted(([, a], [, b]) => b - a).slice(0, SLOWEST_FILES);
  const lines = slowest.map(([file, ms]) => `${(ms / 1000).toFixed(1).padStart(6)} s  ${file}`);
  process.stdout.write(`\nSlowest test files:\n${lines.join('\n')}\n`);
}

const patterns = process.argv.slice(2);
if (patterns.length === 0) countChecks();
await installTestTools((line) => void process.stdout.write(`${line}\n`));
await withCompileCache(() => countTests(patterns));
printSlowest();
if (failures.length > 0) process.stdout.write(`\nAll failures:\n  ${failures.join('\n  ')}\n`);
const skipped = tally.skipped === 0 ? '' : `, ${tally.skipped} skipped`;
process.stdout.write(`\n${tally.passed} passed, ${tally.failed} failed${skipped}\n`);
process.exitCode = tally.failed === 0 && tally.passed > 0 ? 0 : 1;
