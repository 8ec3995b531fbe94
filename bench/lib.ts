/**
 * What every benchmark needs: repeated measurements with their spread, a bar to hold them against, the machine named,
 * a Markdown table for people and JSON for programs.
 *
 * A figure is the median of the repeats, and the spread is printed beside it. Times are CPU time of the measuring thread.
 * A bar that is missed says so; a spread beyond `NOISY` says that too, because then the machine was busy with something
 * else and the figure means less.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Slowest over fastest repeat from which on a row is marked as noisy. */
const NOISY = 1.5;

export const quick = process.argv.includes('--quick');

export interface Case {
  readonly name: string;
  /** What one repeat returns: 'ns/item', 'bytes/task', ... Less is better. */
  readonly unit: string;
  /** The most it may be. Default: a figure without a bar. */
  readonly bar?: number;
  /** Where the bar applies with a remark, or what the figure includes. */
  readonly note?: string;
  /** One repeat. It is run once more before the first, to warm up. */
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
  /** Undefined when there is no bar. */
  readonly pass?: boolean;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_gib: number;
  readonly node: string;
  readonly platform: string;
  /** How many processes wanted to run, on average of the last minute, before the benchmark began. */
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

/** Runs the cases in turns, repeat by repeat, so that a disturbance of the machine meets all of them and not one. */
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
    // Of a handful of bytes a multiple says nothing.
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

/** Prints table and JSON, and keeps the JSON in `bench/out/NAME.json`. */
export function report(name: string, title: string, rows: readonly Row[]): void {
  const short = rows.filter((row) => row.pass === false);
  const noisy = rows.filter((row) => row.noisy);
  const json = JSON.stringify({ name, quick, machine: machine(), rows });
  const said = [
    `# ${title}${quick ? ' (quick)' : ''}`,
    '',
    machineLine(),
    '',
    markdown(rows),
    '',
    short.length === 0 ? 'Every bar is met.' : `Falls short: ${short.map((row) => row.name).join('; ')}.`,
    noisy.length === 0 ? '' : `Noisy, the machine did other things too: ${noisy.map((row) => row.name).join('; ')}.`,
    '',
    json,
  ];
  process.stdout.write(`${said.join('\n')}\n`);
  const out = new URL('./out/', import.meta.url);
  mkdirSync(out, { recursive: true });
  writeFileSync(new URL(`${name}.json`, out), `${json}\n`);
}

/** CPU time of this thread: what others do on the machine disturbs it least. */
function cpu_ns(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) * 1000;
}

/** CPU nanoseconds for each of `count` things that `run` does. */
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

/** Bytes of live objects, after everything that can be collected was. */
export function liveHeap_bytes(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}
