/** Checks of the capabilities of the owner and of those with which services call each other. */
import { inspectToken } from '@ron/auth';
import { sched } from '@ron/kernel/core';
import { readCapabilities, readCapabilityFile } from '../capability-file.ts';
import type { Home } from '../home.ts';
import { heldCalls } from '../up/table/held-calls.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import { messageOf, type Finding } from './finding.ts';

const DAY_MS = 86_400_000;
const RENEWED = 'run `ron up`, which renews it';

/** The tokens of `root.cap`. */
export async function checkRootCapability(home: Home): Promise<Finding[]> {
  let found;
  try {
    found = await readCapabilities(home.capability);
  } catch (error) {
    return [{ level: 'fail', what: 'capability', fix: messageOf(error) }];
  }
  if (found === undefined) return [{ level: 'ok', what: 'no capability yet: `ron up` makes it' }];
  const tokens: [string, string][] = typeof found === 'string' ? [['', found]] : Object.entries(found);
  const lefts = tokens.map(([service, token]) => ({ service, left_ms: leftOf(token) }));
  const expired = lefts.filter(({ left_ms }) => left_ms <= 0);
  if (expired.length > 0) {
    const names = expired.map(({ service }) => service).join(', ');
    return [{ level: 'fail', what: `the capability has expired${names === '' ? '' : ` for ${names}`}`, fix: RENEWED }];
  }
  return [{ level: 'ok', what: `capability, good for ${daysOf(lefts.map(({ left_ms }) => left_ms))} days` }];
}

/** The capability file of each call between the given services; one that is missing counts only while they run. */
export async function checkCallCapabilities(
  home: Home,
  services: readonly ServiceEntry[],
  isRunning: boolean,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const lefts: number[] = [];
  for (const { caller, call, path } of heldCalls(home, services)) {
    const what = `capability of ${caller} for ${call.to}`;
    try {
      const token = await readCapabilityFile(path, call.to);
      if (token === undefined) {
        if (isRunning) findings.push({ level: 'fail', what: `${what} is missing (${path})`, fix: RENEWED });
        continue;
      }
      lefts.push(leftOf(token));
      if (lefts.at(-1)! <= 0) findings.push({ level: 'fail', what: `${what} has expired`, fix: RENEWED });
    } catch (error) {
      findings.push({ level: 'fail', what, fix: messageOf(error) });
    }
  }
  if (findings.length > 0 || lefts.length === 0) return findings;
  return [{ level: 'ok', what: `${lefts.length} capabilities between services, good for ${daysOf(lefts)} days` }];
}

const leftOf = (token: string): number => inspectToken(token).expires_ms - sched.wall_ms();

const daysOf = (lefts_ms: readonly number[]): number => Math.floor(Math.min(...lefts_ms) / DAY_MS);
