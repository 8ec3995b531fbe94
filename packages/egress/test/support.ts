/** A hostile HTTPS server on loopback, and a client that trusts its authority and reaches it as `origin.test`. */
import assert from 'node:assert/strict';
import { Deadline, isRonError, type ErrorCode, type RonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { Egress, type EgressInit } from '../src/index.ts';
import {
  Authority,
  HOST,
  hostile as hostileServer,
  type Hostile,
  type HostileInit,
  type Script,
} from '../src/testing/index.ts';

const authority = new Authority();
process.on('exit', () => authority[Symbol.dispose]());
export const ca = authority.pem;
export const issue = authority.issue.bind(authority);
export const selfSigned = authority.selfSigned.bind(authority);
const good = issue({ names: `DNS:${HOST},IP:127.0.0.1` });

export { HOST, ok, reset } from '../src/testing/index.ts';
export type { Hostile, HostileInit, Script } from '../src/testing/index.ts';

/** With a valid certificate by default. */
export const hostile = (script: Script, init: Partial<HostileInit> = {}): Promise<Hostile> =>
  hostileServer(script, { tls: good, ...init });

/** Long deadlines, so that only the stage under test can expire even on a loaded machine. */
const LONG = { dns_ms: 60_000, connect_ms: 60_000, tls_ms: 60_000, first_byte_ms: 60_000, idle_ms: 60_000 };

export function clientOf(server: { readonly port: number }, init: Partial<EgressInit> = {}): Egress {
  return new Egress({
    name: 'test',
    ports: [server.port],
    networks: ['127.0.0.0/8'],
    ca: { pem: ca, mode: 'only' },
    lookup: () => Promise.resolve(['127.0.0.1']),
    ...init,
    limits: { ...LONG, total_ms: 90_000, ...init.limits },
  });
}

export const never = (): Deadline => Deadline.after('test', 100_000);

export const get = (egress: Egress, url: string): ReturnType<Egress['whole']> =>
  egress.whole({ url }, { deadline: never() });

export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

export async function refused(work: Promise<unknown>, code: ErrorCode, detail?: string): Promise<RonError> {
  const error = await work.then(
    (value) => assert.fail(`expected ${code}, got ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(isRonError(error), String(error));
  assert.equal(error.code, code, `${error.message} ${String(error.cause)}`);
  if (detail !== undefined) assert.equal(error.op === detail ? error.op : error.details?.['reason'], detail);
  return error;
}

export const until = (condition: () => boolean): Promise<void> => eventually(String(condition), condition);

/** Every connection of the client came to its end, and none is counted as in use. */
export const quiet = (egress: Egress): Promise<void> =>
  until(() => egress.connections.used === 0 && egress.connections.waiting === 0);
