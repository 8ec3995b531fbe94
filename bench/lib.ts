/**
 * Helpers of all benchmarks: repeated measurements with their spread and a bar, a description of the machine, output as a
 * Markdown table and as JSON.
 *
 * A figure is the median of the repeats, printed with its spread. Times are CPU time of the measuring thread. A missed bar
 * is marked. A row whose spread exceeds `NOISY` is marked too: the machine was busy, and the figure is less reliable.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** A row is marked as noisy above this ratio of the slowest to the fastest repeat. */
const NOISY = 1.5;

export const quick = process.argv.includes('--quick');

export interface Case {
  readonly name: string;
  /** The unit of a repeat's result: 'ns/item', 'bytes/task', ... Less is better. */
  readonly unit: string;
  /** The upper limit. Default: none. */
  readonly bar?: number;
  /** A remark about the figure or its bar. */
  readonly note?: string;
  /** One repeat. An additional first run warms up. */
  run(): number | Promise<number>;
}

export interface Row {
  readonly name: string;
  readonly unit: string;
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly repeats: number;
  readonly bar?: number;
  readonly note?: string;
  readonly noisy: boolean;
  /** Undefined without a bar. */
  readonly pass?: boolean;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_gib: number;
  readonly node: string;
  readonly platform: string;
  /** The load average of the last minute before the benchmark. */
  readonly load_1m: number;
}

const load_before = loadavg()[0] ?? 0;

export function machine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memory_gib: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    load_1m: Math.round(load_before * 100) / 100,
  };
}

export function machineLine(): string {
  const { cpu, cores, memory_gib, node, platform, load_1m } = machine();
  return `${cpu}, ${cores} cores, ${memory_gib} GiB, ${platform}, Node ${node}, load ${load_1m} before the start`;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Alternates between the cases, so that a disturbance of the machine affects all of them. */
export async function measure(cases: readonly Case[], repeats: number): Promise<Row[]> {
  const values = cases.map((): number[] => []);
  for (let repeat = -1; repeat < repeats; repeat++) {
    for (const [index, one] of cases.entries()) {
      const value = await one.run();
      if (repeat >= 0) values[index]!.push(value);
    }
  }
  return cases.map((one, index) => toRow(one, values[index]!));
}

function toRow({ name, unit, bar, note }: Case, values: readonly number[]): Row {
  const [min, max, middle] = [Math.min(...values), Math.max(...values), median(values)];
  return {
    name,
    unit,
    median: middle,
    min,
    max,
    repeats: values.length,
    ...(bar !== undefined && { bar, pass: middle < bar }),
    ...(note !== undefined && { note }),
    // The ratio of two small byte counts is meaningless.
    noisy: !unit.startsWith('bytes') && min > 0 && max / min > NOISY,
  };
}

export function markdown(rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const verdict = row.pass === undefined ? '' : row.pass ? 'pass' : 'FALLS SHORT';
    const bar = row.bar === undefined ? '' : `< ${figure(row.bar)}`;
    const spread = `${figure(row.min)} .. ${figure(row.max)}${row.noisy ? ' (noisy)' : ''}`;
    return [row.name, `${figure(row.median)} ${row.unit}`, spread, bar, verdict, row.note ?? ''];
  });
  return table(['measured', 'median', 'min .. max', 'bar', 'verdict', 'note'], lines);
}

export function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const widths = head.map((cell, column) => Math.max(cell.length, ...lines.map((line) => line[column]!.length), 3));
  const format = (line: readonly string[]): string =>
    `| ${line.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`;
  return [format(head), format(widths.map((width) => '-'.repeat(width))), ...lines.map(format)].join('\n');
}

function figure(value: number): string {
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Prints table and JSON, and writes the JSON to `bench/out/NAME.json`. */
export function report(name: string, title: string, rows: readonly Row[]): void {
  const short = rows.filter((row) => row.pass === false);
  const noisy = rows.filter((row) => row.noisy);
  const json = JSON.stringify({ name, quick, machine: machine(), rows });
  const output = [
    `# ${title}${quick ? ' (quick)' : ''}`,
    '',
    machineLine(),
    '',
    markdown(rows),
    '',
    short.length === 0 ? 'All bars are met.' : `Falls short: ${short.map((row) => row.name).join('; ')}.`,
    noisy.length === 0 ? '' : `Noisy, because the machine was busy: ${noisy.map((row) => row.name).join('; ')}.`,
    '',
    json,
  ];
  process.stdout.write(`${output.join('\n')}\n`);
  writeJson(name, json);
}

/** Writes `bench/out/NAME.json`. */
export function writeJson(name: string, json: string): void {
  writeFileSync(join(outDir(), `${name}.json`), `${json}\n`);
}

/** A new directory for the files of one run. It is on the disk of the project: /tmp may be in memory. */
export function scratchDir(name: string): string {
  return mkdtempSync(join(outDir(), `${name}-`));
}

function outDir(): string {
  const out = fileURLToPath(new URL('./out/', import.meta.url));
  mkdirSync(out, { recursive: true });
  return out;
}

/** Sends an order to a child process and returns its answer; throws if that is an error. */
export async function callChild<T>(child: ChildProcess, order: string | object): Promise<T> {
  const answered = once(child, 'message');
  child.send(order);
  const [answer] = (await answered) as [T & { error?: string }];
  if (answer.error !== undefined) throw new Error(answer.error);
  return answer;
}

/** CPU time of this thread, which other processes disturb least. */
function cpu_ns(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) * 1000;
}

/** CPU nanoseconds for each of the `count` operations of `run`. */
export function nsEach(count: number, run: () => void): number {
  const start_ns = cpu_ns();
  run();
  return (cpu_ns() - start_ns) / count;
}

export async function nsEachAsync(count: number, run: () => Promise<void>): Promise<number> {
  const start_ns = cpu_ns();
  await run();
  return (cpu_ns() - start_ns) / count;
}

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes of live objects after a full garbage collection. */
export function liveHeap_bytes(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}
