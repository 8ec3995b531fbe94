/**
 * Checks whether the parts of the vault belong to the same moment: each records something about the others.
 *
 * Contract: the state after a crash at any point is sound. If only some parts were rolled back, one of the others reveals it
 * (see the table in services/kms/README.md). If all parts were rolled back together they are consistent, and only a witness
 * can detect it. Reads only.
 */
import type { InspectedLog } from '@ron/tlog';
import type { Anchor, LogHead } from './anchor.ts';

/** The log heads recorded by the parts other than the anchor; undefined if a part records none. */
export type Heads = { readonly [part in 'index' | 'custody' | 'ops/head']: LogHead | undefined };

/** The state found on disk. */
export interface Parts {
  readonly anchor: Anchor;
  readonly heads: Heads;
  /** Undefined if it is not a valid log; that has already been reported. */
  readonly log: InspectedLog | undefined;
  /** The ledger's own report. */
  readonly ops_problem: string | undefined;
}

/** The parts that were rolled back; empty if the vault is sound. */
export function problemsOf({ anchor, heads, log, ops_problem }: Parts): string[] {
  const problems: string[] = [];
  const anchored = anchor.checkpoint?.size ?? 0;
  for (const [part, head] of Object.entries(heads)) {
    if (head === undefined) continue;
    if (head.origin !== anchor.origin) problems.push(`${part} belongs to another node: its log is ${head.origin}`);
    else if (head.size > anchored) problems.push(older('anchor', anchored, part, head.size));
  }
  const published = log?.checkpoint?.size ?? 0;
  if (published > anchored) problems.push(older('anchor', anchored, 'audit/checkpoint', published));
  if (log !== undefined && published < anchor.published) {
    problems.push(older('audit/checkpoint', published, 'anchor', anchor.published));
  }
  const recorded = heads['ops/head']?.size ?? 0;
  if (recorded < anchor.published) problems.push(older('ops/head', recorded, 'anchor', anchor.published));
  // A clean shutdown leaves no entries after the last checkpoint.
  if (anchor.is_closed === true && log !== undefined && log.size > anchored) {
    problems.push(`audit has ${log.size - anchored} entries that were appended after the last clean shutdown`);
  }
  if (ops_problem !== undefined) problems.push(`ops: ${ops_problem}`);
  return problems;
}

function older(part: string, knows: number, other: string, remembers: number): string {
  return `${part} was rolled back: it records ${knows} signed entries, but ${other} records ${remembers}`;
}
