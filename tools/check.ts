/**
 * `npm run check`: types, lint, formatting, generated documents and wording. A warning is a failure.
 */
import { spawnSync } from 'node:child_process';

export interface CheckResult {
  name: string;
  ok: boolean;
  output: string;
}

const CHECKS: readonly (readonly [name: string, command: string, ...args: string[]])[] = [
  ['types', 'tsc', '--project', '.'],
  ['types of pages', 'tsc', '--project', 'services/edge/page'],
  ['lint and boundaries', 'oxlint'],
  ['formatting', 'oxfmt', '--check', '.'],
  ['generated documents', 'node', 'tools/run.js', 'tools/generate-docs.ts', '--check'],
  ['wording', 'node', 'tools/run.js', 'tools/wording.ts'],
];

export function runChecks(onResult: (result: CheckResult) => void): boolean {
  let allOk = true;
  for (const [name, command, ...args] of CHECKS) {
    const child = spawnSync(command, args, { encoding: 'utf8', timeout: 120_000 });
    const ok = child.status === 0;
    const problem =
      child.error === undefined ? '' : `${child.error.message}: run \`npm install\`, then \`npm run check\`\n`;
    allOk &&= ok;
    onResult({ name, ok, output: problem + child.stdout + child.stderr });
  }
  return allOk;
}

if (process.argv[1] === import.meta.filename) {
  const ok = runChecks((result) => {
    process.stdout.write(`${result.ok ? 'ok  ' : 'FAIL'} ${result.name}\n`);
    if (!result.ok) process.stdout.write(`${result.output}\n`);
  });
  process.exitCode = ok ? 0 : 1;
}
