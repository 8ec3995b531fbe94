/**
 * Checks whether the store and the audit log belong to the same moment: each records something about the other.
 *
 * Contract: the state after a crash at any point is sound. If one of the two was rolled back, the other reveals it (see the
 * table in services/kms/README.md). If both were rolled back together they are consistent, and only a witness can detect it.
 * An older copy of one record in the store is not detected.
 * Reads only.
 */
import type { InspectedLog } from '@ron/tlog';
import type { Anchor } from './anchor.ts';

/** The parts that were rolled back; empty if the vault is sound. That the log has the entries of the anchor was checked before. */
export function problemsOf(anchor: Anchor, log: InspectedLog): string[] {
  const problems: string[] = [];
  const anchored = anchor.checkpoint?.size ?? 0;
  const published = log.checkpoint?.size ?? 0;
  if (published > anchored) problems.push(older('vault', anchored, 'audit/checkpoint', published));
  if (published < anchor.published) problems.push(older('audit/checkpoint', published, 'vault', anchor.published));
  // A clean shutdown leaves no entries after the last checkpoint.
  if (anchor.is_closed === true && log.size > anchored) {
    problems.push(`audit has ${log.size - anchored} entries that were appended after the last clean shutdown`);
  }
  return problems;
}

function older(part: string, knows: number, other: string, remembers: number): string {
  return `${part} was rolled back: it records ${knows} signed entries, but ${other} records ${remembers}`;
}
