/** The rows of the interop benchmark, and the generators that it starts. */
import { fork, type ChildProcess } from 'node:child_process';
import { callChild, median, quick, table } from './lib.ts';
import type { Order, Report } from './interop-order.ts';
import type { InteropNode } from './interop-node.ts';
import { path } from './servers.ts';

export class Findings {
  readonly #rows: string[][] = [];

  /** A figure of time: quick mode does not judge it, because the code is not optimized yet. */
  time(name: string, value: string, bar: string, isMet: boolean): void {
    this.row(name, value, bar, quick ? undefined : isMet);
  }

  row(name: string, value: string, bar = '', isMet?: boolean): void {
    const verdict = isMet === undefined ? '' : isMet ? 'pass' : 'FALLS SHORT';
    this.#rows.push([name, value, bar, verdict]);
    process.stdout.write(`${this.#rows.at(-1)!.join(' | ')}\n`);
  }

  get markdown(): string {
    return table(['measured', 'value', 'bar', 'verdict'], this.#rows);
  }
}

export const spread = (values: readonly number[], digits: number): string =>
  `${median([...values]).toFixed(digits)} (${Math.min(...values).toFixed(digits)} .. ${Math.max(...values).toFixed(digits)})`;

/** All outcomes of a report: `{"202":300}`. */
export const outcomesOf = ({ outcomes }: Report): string =>
  Object.entries(outcomes)
    .map(([outcome, count]) => `${count} x ${outcome}`)
    .join(', ');

export const sum = (values: Iterable<number>): number => [...values].reduce((total, value) => total + value, 0);

/** A generator is a process of its own. */
export class Generator {
  readonly child: ChildProcess = fork(path('./interop-load.ts'), { execArgv: [] }).setMaxListeners(0);

  async run(order: Order): Promise<Report> {
    return await callChild<Report>(this.child, order);
  }
}

/** Handed to each part. */
export interface Bench {
  readonly node: InteropNode;
  readonly findings: Findings;
  readonly generator: Generator;
  /** For files of the run. */
  readonly dir: string;
}
