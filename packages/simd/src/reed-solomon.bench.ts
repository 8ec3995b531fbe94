/** `node packages/simd/src/reed-solomon.bench.ts`: bytes of data per second of CPU, for 6+3 shards of 64 KiB. */
import { ReedSolomon, Stripe } from './reed-solomon.ts';

const SHARD_BYTES = 64 * 1024;
const ROUNDS = 9;
const CALLS = 1500;

function rate(name: string, call: () => void): void {
  const rates: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const began_us = process.cpuUsage();
    for (let index = 0; index < CALLS; index++) call();
    const used = process.cpuUsage(began_us);
    rates.push((CALLS * 6 * SHARD_BYTES) / ((used.user + used.system) * 1e3));
  }
  rates.sort((a, b) => a - b);
  const [low, middle, high] = [rates[0]!, rates[ROUNDS >> 1]!, rates[ROUNDS - 1]!].map((each) => each.toFixed(2));
  process.stdout.write(`${name.padEnd(44)} ${middle} GB/s (${low} to ${high})\n`);
}

const data = Array.from({ length: 6 }, (_, index) => Buffer.alloc(SHARD_BYTES, `shard ${index}`));
const out = Array.from({ length: 3 }, () => Buffer.alloc(SHARD_BYTES));
const stripe = new Stripe(6, 3, SHARD_BYTES);
const code = new ReedSolomon(6, 3);
const fill = (): void => data.forEach((shard, index) => stripe.set(index, shard, SHARD_BYTES));

fill();
rate('encode in place', () => stripe.encode(SHARD_BYTES));
rate('encode, data copied in', () => {
  fill();
  stripe.encode(SHARD_BYTES);
});
rate('encode, data copied in and parity out', () => {
  fill();
  stripe.encode(SHARD_BYTES);
  out.forEach((shard, index) => shard.set(stripe.shards[6 + index]!));
});
rate('encode, new buffers for parity', () => void code.encode(data));
rate('rebuild one data shard in place', () => stripe.rebuild([1, 2, 3, 4, 5, 6], [0], SHARD_BYTES));
rate('rebuild three data shards in place', () => stripe.rebuild([3, 4, 5, 6, 7, 8], [0, 1, 2], SHARD_BYTES));
