/** Ratios to a peer in the same run. Rounds alternate between both, so that noise of the machine affects both. */
import { randomBytes } from 'node:crypto';
import { blake3 } from '@napi-rs/blake-hash';
import { median, quick } from './lib.ts';

const ROUNDS = quick ? 3 : 7;
/** Rounds that are discarded, until the code is optimized. */
const WARM_UPS = quick ? 4 : 2;

export interface Ratio {
  readonly name: string;
  readonly bar: string;
  readonly met: (ratio: number) => boolean;
  readonly ours: () => Promise<number>;
  readonly peer: () => Promise<number>;
  /** The lower bound: a process that only copies the bytes from its memory. */
  readonly floor?: () => Promise<number>;
  readonly unit: string;
}

export const RATIO_HEAD = ['measured', 'ron', 'peer', 'ratio', 'min .. max', 'floor', 'bar', 'verdict'];

export const atMost = (bar: number) => ({ bar: `<= ${bar}`, met: (ratio: number) => ratio <= bar, unit: 'us' });

export const spread = (values: readonly number[]): string =>
  `${Math.min(...values).toFixed(2)} .. ${Math.max(...values).toFixed(2)}`;

/** A figure is the median of the ratios, with their spread. */
export async function compare(cases: readonly Ratio[]): Promise<string[][]> {
  const lines: string[][] = [];
  for (const { name, bar, met, ours, peer, floor, unit } of cases) {
    const pairs: [number, number][] = [];
    const floors: number[] = [];
    for (let round = -WARM_UPS; round < ROUNDS; round++) {
      const pair: [number, number] = [await ours(), await peer()];
      const least = await floor?.();
      if (round < 0) continue;
      pairs.push(pair);
      if (least !== undefined) floors.push(least / pair[1]);
    }
    const ratios = pairs.map(([mine, theirs]) => mine / theirs);
    const figure = (values: number[]): string => `${median(values).toFixed(1)} ${unit}`;
    lines.push([
      name,
      figure(pairs.map(([mine]) => mine)),
      figure(pairs.map(([, theirs]) => theirs)),
      median(ratios).toFixed(2),
      spread(ratios),
      floors.length === 0 ? '' : median(floors).toFixed(2),
      bar,
      met(median(ratios)) ? 'pass' : 'FALLS SHORT',
    ]);
    process.stdout.write(`${lines.at(-1)!.join(' | ')}\n`);
  }
  return lines;
}

/** CPU time of one bare BLAKE3 call over a chunk of 64 KiB. */
export function measureHash_us(): number {
  const chunk = randomBytes(64 * 1024);
  const count = 5000;
  const before = process.cpuUsage();
  for (let index = 0; index < count; index++) blake3(chunk);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}
