/**
 * Checks of the views that are queried.
 *
 * Contract: `tiles` and `metadata` are tables, or views that read tables only. SQLite expands a view, a common table expression
 * or a nested query once for each reference, so a short chain of them takes any amount of memory and time to prepare.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import type { DatabaseSync } from 'node:sqlite';
import { refused } from './errors.ts';

const VIEWS = `SELECT lower(name) AS name, lower(sql) AS sql FROM sqlite_schema WHERE type = 'view'`;
const QUERIED = ['tiles', 'metadata'];

/** Call it before the authorizer is set. */
export function requirePlainViews(db: DatabaseSync): void {
  const views = db.prepare(VIEWS).all() as { name: string; sql: string }[];
  for (const { name, sql } of views.filter((view) => QUERIED.includes(view.name))) {
    // The text is compared by words, quoted or not, so each name must be one word.
    const words: readonly string[] = sql.match(/\w+/g) ?? [];
    const others = views.map((view) => view.name).filter((other) => other !== name);
    const isPlain =
      words.filter((word) => word === 'select').length === 1 &&
      !words.includes('with') &&
      others.every((other) => /^\w+$/.test(other) && !words.includes(other));
    if (!isPlain) throw refused(`its view ${name} is not a plain query of tables`);
  }
}
