/** Checks the capability files of a node, from the same table as `ron up`. */
import { inspectToken } from '@ron/auth';
import { sched } from '@ron/kernel/core';
import type { TokenVerdict } from '@ron/proto';
import { readCapabilities, readCapabilityFile } from '../capability-file.ts';
import { CliError, messageOf } from '../exits.ts';
import type { Home } from '../home.ts';
import { isAsWanted } from '../up/capabilities/renewal.ts';
import { callFiles, ownerFile, rootWanted, type Wanted } from '../up/table/capability-files.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import type { Finding } from './finding.ts';

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const RENEWED = 'run `ron up`, which renews it';
const RENEWED_SOON = '`ron up` renews it within a minute; otherwise restart `ron up`';

/** The verdict of passport about a token; undefined if passport does not run. */
export type Verify = (token: string) => Promise<TokenVerdict | undefined>;

/** Checks the tokens of `root.cap`; a missing one is a problem only while its service runs. */
export async function checkRootCapability(
  home: Home,
  services: readonly ServiceEntry[],
  isRunning: boolean,
  verify: Verify,
): Promise<Finding[]> {
  const what = 'the capability';
  const fix = fixOf(isRunning);
  let found;
  try {
    found = await readCapabilities(home.capability);
  } catch (error) {
    return [{ level: 'fail', what, fix: messageOf(error) }];
  }
  if (found === undefined && isRunning) {
    return [{ level: 'fail', what: `${what} is missing (${home.capability})`, fix }];
  }
  if (found === undefined) return [{ level: 'ok', what: 'no capability yet: `ron up` creates it' }];
  const report = new Report(fix);
  if (typeof found === 'string') report.check(what, found, undefined);
  else {
    for (const { name } of services) {
      const token = found[name];
      if (token !== undefined) {
        report.check(`${what} for ${name}`, token, rootWanted(name));
        if (isRunning && report.isOk) await report.verify(`${what} for ${name}`, token, verify);
      } else if (isRunning) report.fail(`${what} for ${name} is missing`);
    }
  }
  return report.findings(() => `capability, valid for ${report.left}`);
}

/** Checks the files of the owner and of calls between services; a missing one is a problem only while they run. */
export async function checkServiceCapabilities(
  home: Home,
  services: readonly ServiceEntry[],
  isRunning: boolean,
): Promise<Finding[]> {
  const key_service = services.find(({ derives_keys }) => derives_keys === true);
  const owners = key_service === undefined ? [] : [ownerFile(home, key_service.name)];
  const report = new Report(fixOf(isRunning));
  for (const { what, path, wanted } of [...owners, ...callFiles(home, services)]) {
    try {
      const token = await readCapabilityFile(path, wanted.audience);
      // Those of calls live for an hour: without a running node they expire.
      if (token !== undefined && (isRunning || !isExpired(token))) report.check(what, token, wanted);
      else if (isRunning) report.fail(`${what} is missing (${path})`);
    } catch (error) {
      report.fail(what, messageOf(error));
    }
  }
  return report.findings((count) => `${count} capabilities of services, valid for ${report.left}`);
}

function isExpired(token: string): boolean {
  try {
    return inspectToken(token).expires_ms <= sched.wall_ms();
  } catch {
    return false;
  }
}

const fixOf = (isRunning: boolean): string => (isRunning ? RENEWED_SOON : RENEWED);

/** Collects the problems of several tokens; without problems, one finding. */
class Report {
  readonly #fix: string;
  readonly #failed: Finding[] = [];
  readonly #lefts_ms: number[] = [];

  constructor(fix: string) {
    this.#fix = fix;
  }

  /** The time until the first token expires. */
  get left(): string {
    const left_ms = Math.min(...this.#lefts_ms);
    return left_ms < DAY_MS ? `${Math.floor(left_ms / MINUTE_MS)} minutes` : `${Math.floor(left_ms / DAY_MS)} days`;
  }

  fail(what: string, fix = this.#fix): void {
    this.#failed.push({ level: 'fail', what, fix });
  }

  check(what: string, token: string, wanted: Wanted | undefined): void {
    try {
      const capability = inspectToken(token);
      const left_ms = capability.expires_ms - sched.wall_ms();
      this.#lefts_ms.push(left_ms);
      if (left_ms <= 0) this.fail(`${what} has expired`);
      else if (wanted !== undefined && !isAsWanted(capability, wanted))
        this.fail(`${what} has the wrong audience, subject, scopes or caveats`);
    } catch (error) {
      this.fail(what, `${messageOf(error)}; ${this.#fix}`);
    }
  }

  get isOk(): boolean {
    return this.#failed.length === 0;
  }

  /** A passport that fails to answer is a finding of another check. */
  async verify(what: string, token: string, verify: Verify): Promise<void> {
    try {
      const verdict = await verify(token);
      if (verdict?.ok === false) this.fail(`${what} is refused`, `${verdict.reason}; ${this.#fix}`);
    } catch (error) {
      // The capability for passport authorized the request.
      if (error instanceof CliError && error.exit === 'permission')
        this.fail('the capability for passport is refused', `${error.message}; ${this.#fix}`);
    }
  }

  findings(ok: (count: number) => string): Finding[] {
    if (this.#failed.length > 0 || this.#lefts_ms.length === 0) return this.#failed;
    return [{ level: 'ok', what: ok(this.#lefts_ms.length) }];
  }
}
