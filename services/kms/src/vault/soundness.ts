/**
 * Whether the parts of the vault are of one moment: each remembers something of the others.
 *
 * Promise: what a crash leaves, at whatever point, is sound. When some parts were put back to an earlier state and others
 * were not, one of those that were not tells it (services/kms/README.md has the table). All of them put back together are
 * of one moment, too: then only a witness knows. Reads only.
 */
import type { InspectedLog } from '@ron/tlog';
import type { Anchor, LogHead } from './anchor.ts';

/** What the parts beside the anchor remember of the log; undefined when they remember nothing. */
export type Heads = { readonly [part in 'index' | 'custody' | 'ops/head']: LogHead | undefined };

/** What was found on disk. */
export interface Parts {
  readonly anchor: Anchor;
  readonly heads: Heads;
  /** Undefined when it could not be read as a log of ours: that is told already. */
  readonly log: InspectedLog | undefined;
  /** What the ledger of operations finds wrong with itself. */
  readonly ops_problem: string | undefined;
}

/** What is older than it was; empty when all is well. */
export function problemsOf({ anchor, heads, log, ops_problem }: Parts): string[] {
  const problems: string[] = [];
  const anchored = anchor.checkpoint?.size ?? 0;
  for (const [part, head] of Object.entries(heads)) {
    if (head === undefined) continue;
    if (head.origin !== anchor.origin) problems.push(`${part} is of another node: its log is ${head.origin}`);
    else if (head.size > anchored) problems.push(older('anchor', anchored, part, head.size));
  }
  const published = log?.checkpoint?.size ?? 0;
  if (published > anchored) problems.push(older('anchor', anchored, 'audit/checkpoint', published));
  if (log !== undefined && published < anchor.published) {
    problems.push(older('audit/checkpoint', published, 'anchor', anchor.published));
  }
  const told = heads['ops/head']?.size ?? 0;
  if (told < anchor.published) problems.push(older('ops/head', told, 'anchor', anchor.published));
  // A stop in good order leaves nothing behind the last checkpoint.
  if (anchor.is_closed === true && log !== undefined && log.size > anchored) {
    problems.push(`audit has ${log.size - anchored} entries that were written after it was closed, by somebody else`);
  }
  if (ops_problem !== undefined) problems.push(`ops: ${ops_problem}`);
  return problems;
}

function older(part: string, knows: number, other: string, remembers: number): string {
  return `${part} knows of ${knows} signed entries and ${other} of ${remembers}: an older copy of ${part} was put in place`;
}
