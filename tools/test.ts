/**
 * `npm test`: the checks, then every `*.test.ts` of the workspace, and last a line `N passed, N failed[, N skipped]`.
 *
 * `npm test -- PATTERN ...` runs only the test files whose path contains one of the patterns, without the checks.
 */
import { globSync } from 'node:fs';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { runChecks } from './check.ts';
import { installTestTools } from './install-test-tools.ts';

/** Tests beside the code mostly wait, so more files than cores run at once. */
const FILES_AT_ONCE = 4;
/** Tests in a `test/` folder start real processes and hold them to clocks: each file has the machine for itself. */
const NEEDS_THE_MACHINE = /[/\\]test[/\\]/;
/** No single test may take longer; a hang is a failure, not a wait. */
const TEST_TIMEOUT_MS = 180_000;

const tally = { passed: 0, failed: 0, skipped: 0 };

function countChecks(): void {
  runChecks((result) => {
    tally[result.ok ? 'passed' : 'failed'] += 1;
    process.stdout.write(`${result.ok ? '✔' : '✖'} check: ${result.name}\n`);
    if (!result.ok) process.stdout.write(`${result.output}\n`);
  });
}

async function countTests(patterns: readonly string[]): Promise<void> {
  const files = globSync('{packages,services,apps,tools,bench,docs}/**/*.test.ts', { exclude: ['**/node_modules/**'] })
    .filter((file) => patterns.length === 0 || patterns.some((pattern) => file.includes(pattern)))
    .toSorted();
  if (files.length === 0) {
    process.stdout.write(`no test file matches ${patterns.join(', ')}\n`);
    tally.failed += 1;
  }
  const { together = [], alone = [] } = Object.groupBy(files, (file) =>
    NEEDS_THE_MACHINE.test(file) ? 'alone' : 'together',
  );
  await runFiles(together, FILES_AT_ONCE);
  await runFiles(alone, 1);
}

async function runFiles(files: string[], concurrency: number): Promise<void> {
  if (files.length === 0) return;
  const events = run({ files, concurrency, timeout: TEST_TIMEOUT_MS });
  events.on('test:pass', (event) => {
    if (event.details.type === 'suite') return;
    tally[event.skip === undefined ? 'passed' : 'skipped'] += 1;
  });
  events.on('test:fail', (event) => {
    if (event.details.type !== 'suite') tally.failed += 1;
  });
  for await (const text of events.compose(new spec())) process.stdout.write(text);
}

const patterns = process.argv.slice(2);
if (patterns.length === 0) countChecks();
await installTestTools((line) => void process.stdout.write(`${line}\n`));
await countTests(patterns);
const skipped = tally.skipped === 0 ? '' : `, ${tally.skipped} skipped`;
process.stdout.write(`\n${tally.passed} passed, ${tally.failed} failed${skipped}\n`);
process.exitCode = tally.failed === 0 && tally.passed > 0 ? 0 : 1;
