/**
 * Checks of query plans: the schema of a pack comes from a stranger, and SQLite cannot be interrupted.
 *
 * Contract: a tile query that passes costs a fixed number of index lookups, however the file was made. Every step of its plan is
 * a SEARCH, and every step of a join finds at most one row: by the rowid, or by all columns of a unique index. A scan that
 * passes costs one such lookup for each row of one table.
 * Bound: `STEPS_MAX` steps.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import type { DatabaseSync } from 'node:sqlite';
import { refused } from './errors.ts';

/** The usual views join two tables. */
const STEPS_MAX = 4;
const NEEDS_INDEX = 'it needs an index on zoom_level, tile_column and tile_row';

interface UniqueKey {
  readonly name: string;
  readonly columns: readonly string[];
  readonly isPrimary: boolean;
}

export type UniqueKeys = readonly UniqueKey[];

/** Reads the unique indexes of a database. Call it before the authorizer is set: it refuses table-valued functions. */
export function uniqueKeys(db: DatabaseSync): UniqueKeys {
  const rows = db
    .prepare(
      `SELECT i.name AS name, i.origin AS origin, c.name AS column
       FROM sqlite_schema AS s, pragma_index_list(s.name) AS i, pragma_index_info(i.name) AS c
       WHERE s.type = 'table' AND i."unique" = 1 ORDER BY i.name, c.seqno`,
    )
    .all() as { name: string; origin: string; column: string | null }[];
  const keys = Map.groupBy(rows, ({ name }) => name);
  return [...keys].map(([name, parts]) => ({
    name,
    columns: parts.map(({ column }) => column ?? '<expr>'),
    isPrimary: parts[0]!.origin === 'pk',
  }));
}

type Step =
  | { readonly kind: 'rowid' }
  | { readonly kind: 'index'; readonly index: string; readonly columns: readonly string[] }
  | { readonly kind: 'primary'; readonly columns: readonly string[] };

/** Throws unless each run of the query is a fixed number of index lookups. */
export function requireSearches(db: DatabaseSync, sql: string, keys: UniqueKeys): void {
  const plan = planOf(db, sql);
  const steps = plan.map((detail) => searchOf(detail) ?? throwSlow(detail));
  // A single lookup stops at its first row.
  const [only] = steps;
  if (steps.length === 1 && only!.kind !== 'rowid' && only!.columns.length >= 3) return;
  requireUnique(steps, plan, keys);
}

/** Whether the query reads the rows of one table in their order, with at most one row of each joined table. */
export function isPlainScan(db: DatabaseSync, sql: string, keys: UniqueKeys): boolean {
  const [first = '', ...others] = planOf(db, sql);
  if (!/^SCAN \w+(?: USING (?:COVERING )?INDEX \w+)?$/.test(first)) return false;
  const steps = others.map(searchOf);
  return steps.every((step) => step !== undefined && isUnique(step, keys));
}

function planOf(db: DatabaseSync, sql: string): string[] {
  const rows = db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
  if (rows.length === 0 || rows.length > STEPS_MAX) {
    throw refused(`its tiles take ${rows.length} steps to find, and the limit is ${STEPS_MAX}`);
  }
  return rows.map(({ detail }) => detail);
}

/** Names are plain words, so that none can imitate another part of a step. */
function searchOf(detail: string): Step | undefined {
  const found =
    /^SEARCH \w+ USING (?:(?<rowid>INTEGER PRIMARY KEY)|(?<primary>PRIMARY KEY)|(?:COVERING )?INDEX (?<index>\w+)) \((?<terms>\w+=\?(?: AND \w+=\?)*)\)(?: LEFT-JOIN)?$/.exec(
      detail,
    );
  if (found === null) return undefined;
  const { rowid, primary, index, terms = '' } = found.groups!;
  const columns = terms.split(' AND ').map((term) => term.slice(0, -'=?'.length));
  if (rowid !== undefined) return { kind: 'rowid' };
  if (primary !== undefined) return { kind: 'primary', columns };
  return { kind: 'index', index: index!, columns };
}

function requireUnique(steps: readonly Step[], plan: readonly string[], keys: UniqueKeys): void {
  const slow = steps.findIndex((step) => !isUnique(step, keys));
  if (slow >= 0) throwSlow(plan[slow]!);
}

function isUnique(step: Step, keys: UniqueKeys): boolean {
  if (step.kind === 'rowid') return true;
  const { columns } = step;
  if (step.kind === 'index')
    return keys.some((key) => key.name === step.index && key.columns.length === columns.length);
  // The plan names an alias, not the table: no other primary key may begin with the same columns.
  const fitting = keys.filter((key) => key.isPrimary && columns.every((column, at) => key.columns[at] === column));
  return fitting.length > 0 && fitting.every((key) => key.columns.length === columns.length);
}

function throwSlow(step: string): never {
  throw refused(
    `${NEEDS_INDEX}, and unique ones for joined tables: the query plan has the step "${step.slice(0, 200)}"`,
  );
}
