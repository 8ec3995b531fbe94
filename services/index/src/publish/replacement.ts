/**
 * The first entries of a log that replaces a lost one: the position of the lost log that the database has applied, then the own
 * names, trust and pins of the database, then an end mark.
 *
 * Bound: `PAGE` names at a time.
 */
import { sched } from '@ron/kernel';
import type { IndexStore, LogChange, LogPosition, NamePosition } from '../store/index-store.ts';
import type { LogEntry } from './log-entry.ts';
import { hex } from './rules.ts';

const PAGE = 100;
const END = 'carried over from the lost name log';
const NODE = { subject: 'index', capability_id: 'index' };

const beginOf = ({ size, leaf }: LogPosition): string =>
  `replaces the lost name log of ${size} entries, last leaf ${leaf === undefined ? 'none' : hex(leaf)}`;

const isAction = (change: LogChange, action: string): boolean => change.kind === 'admin' && change.action === action;

/** Whether a log that begins with `change` replaces the one of `applied`. */
export const isReplacementOf = (change: LogChange, applied: LogPosition): boolean => isAction(change, beginOf(applied));
export const isReplacementEnd = (change: LogChange): boolean => isAction(change, END);

export async function* replacementEntries(
  store: Pick<IndexStore, 'applied' | 'names' | 'pins' | 'trust'>,
): AsyncGenerator<LogEntry[]> {
  const entries = (changes: readonly LogChange[]): LogEntry[] =>
    changes.map((change) => ({ at_ms: sched.wall_ms(), by: NODE, change }));
  yield entries([{ kind: 'admin', action: beginOf(store.applied) }]);
  for (let after: NamePosition | undefined; ;) {
    const page = await store.names('', after, PAGE);
    const last = page.at(-1);
    if (last === undefined) break;
    yield entries(page.flatMap(changesOf));
    after = { label: last.label, key: last.key };
  }
  const trust = (await store.trust()).map(({ prefix, key }): LogChange => ({ kind: 'trust', prefix, key }));
  const pins = (await store.pins()).map((target): LogChange => ({ kind: 'pin', target, isPinned: true }));
  yield entries([...trust, ...pins, { kind: 'admin', action: END }]);
}

function changesOf({
  rival,
  isOwn: _isOwn,
  dropped: _dropped,
  ...record
}: Awaited<ReturnType<IndexStore['names']>>[0]): LogChange[] {
  const name: LogChange = { kind: 'name', record };
  return rival === undefined ? [name] : [name, { kind: 'fork', record, rival }];
}
