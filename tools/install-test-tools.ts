/**
 * Installs the programs that tests of real backends need, where this works unattended: on Debian, as root.
 *
 * Contract: silent and done in milliseconds if all programs are present. Never fails: tests whose programs are missing are
 * skipped and name the packages to install. Bound: `INSTALL_MS_MAX`.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { missing, TEST_TOOLS, whereIs } from '../packages/custody/src/testing/tools.ts';

const INSTALL_MS_MAX = 180_000;

const run = promisify(execFile);

export async function installTestTools(report: (line: string) => void): Promise<void> {
  const absent = Object.values(TEST_TOOLS).filter((tools) => missing(tools) !== undefined);
  const packages = [...new Set(absent.flatMap((tools) => tools.packages))];
  const apt = whereIs(['apt-get']);
  if (packages.length === 0 || apt === undefined || process.getuid?.() !== 0) return;
  report(`installing programs for tests: ${packages.join(' ')}`);
  const signal = AbortSignal.timeout(INSTALL_MS_MAX);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  try {
    await run(apt, ['update', '--quiet=2'], { signal, env });
    await run(apt, ['install', '--yes', '--quiet=2', '--no-install-recommends', ...packages], { signal, env });
  } catch (error) {
    const why = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    report(`installation failed (${why}); tests that need these programs are skipped`);
  }
}
