/**
 * The cost of a check: `node packages/auth/src/checker/checker.bench.ts` prints the median and the spread of several
 * rounds.
 */
import type { AccessRequest } from '@ron/proto';
import { signal, Bench } from '../../test/support.ts';
import { attenuate } from '../capability/capability.ts';
import { addCaveat } from '../capability/macaroon.ts';
import { decodeToken, encodeToken } from '../capability/token.ts';

const ROUNDS = 7;

async function measure(name: string, calls: number, round: () => void | Promise<void>): Promise<void> {
  await round();
  const costs: number[] = [];
  for (let at = 0; at < ROUNDS; at++) {
    const start_us = process.cpuUsage();
    await round();
    const used = process.cpuUsage(start_us);
    costs.push((used.user + used.system) / calls);
  }
  const [least = 0, , , median = 0] = costs.toSorted((left, right) => left - right);
  console.log(
    `${name.padEnd(44)} ${median.toFixed(2)} us CPU (least ${least.toFixed(2)}, most ${Math.max(...costs).toFixed(2)})`,
  );
}

const context = (token: string): AccessRequest => ({
  authorization: `Bearer ${token}`,
  scope: 'storage:get',
  source_ip: '127.0.0.1',
  facts: { address: `b3:${'0'.repeat(64)}`, tenant: 'acme' },
  body_bytes: 0,
});

async function cached(name: string, caveats: string[]): Promise<void> {
  const bench = new Bench();
  const token = await bench.token({ caveats });
  await bench.allowed(token, context(token));
  await measure(name, 100_000, () => {
    for (let at = 0; at < 100_000; at++) {
      const verdict = bench.checker.checkHeaders(context(token), signal);
      if (verdict instanceof Promise || !verdict.ok) throw new Error('not cached or not allowed');
    }
  });
}

async function fresh(name: string, caveats: string[]): Promise<void> {
  const bench = new Bench({ tokens_max: 1 });
  const root = decodeToken(await bench.token({ caveats }));
  if (!root.ok) throw new Error(root.reason);
  const tokens = Array.from({ length: 5000 }, (_, at) =>
    encodeToken(addCaveat(root.value, Buffer.from(`expires < ${9e15 + at}`))),
  );
  await measure(name, tokens.length, async () => {
    for (const token of tokens) {
      if (!(await bench.checker.checkHeaders(context(token), signal)).ok) throw new Error('not allowed');
    }
  });
}

const FIVE = ['tenant = acme', 'address ^= b3:0000', 'bytes <= 1048576', 'ip in 127.0.0.0/8,::1', 'rate <= 1000000/s'];
const bench = new Bench();
const token = await bench.token();

await cached('cached, as minted (3 caveats)', []);
await cached('cached, 8 caveats of all kinds', FIVE);
await fresh('first seen, 4 caveats', []);
await fresh('first seen, 9 caveats', FIVE);
await measure('mint', 5000, async () => {
  for (let at = 0; at < 5000; at++) await bench.token();
});
await measure('attenuate by one caveat', 5000, () => {
  for (let at = 0; at < 5000; at++) attenuate(token, ['tenant = acme']);
});
