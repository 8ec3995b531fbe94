/** The changes that callers request, with their checks. See `Publisher` for when these run. */
import { RonError, sched } from '@ron/kernel';
import { formatName } from '@ron/proto';
import type { IndexStore, LogChange, StoredName, StoredRecord } from '../store/index-store.ts';
import { supersedes } from '../store/record-order.ts';
import { nameDto } from './name-dto.ts';
import { PINS_MAX } from './names.ts';
import type { BatchState, ChangeRequest } from './publisher.ts';
import { isSame, judge, type NameState, type Seen } from './rules.ts';
import type { SignedRecord } from './signed-record.ts';
import type { TrustList } from './trust-list.ts';

/** A name as the batch sees it: the database, and the changes before in the batch. */
interface NameView {
  current: StoredName | undefined;
  highest: Seen | undefined;
}

type NameReader = Pick<IndexStore, 'countNames' | 'highestSeq' | 'name'>;

async function loadName(store: NameReader, batch: BatchState, { key, label }: StoredRecord): Promise<void> {
  const id = `name ${formatName(label, key)}`;
  if (batch.has(id)) return;
  const current = await store.name(key, label);
  const highest = await store.highestSeq(key, label);
  // Another request of the batch may have loaded it meanwhile; no check has run yet.
  batch.set(id, { current, highest } satisfies NameView);
}

const viewOf = (batch: BatchState, { key, label }: StoredRecord): NameView =>
  batch.get(`name ${formatName(label, key)}`) as NameView;

/** Publishes a record. `onChecked` tells whether it is new. */
export function publishRecord(
  signed: SignedRecord,
  store: NameReader,
  names_per_key: number,
  onChecked: (isNew: boolean) => void,
): ChangeRequest {
  const { stored } = signed;
  const counter = `count ${stored.key}`;
  return {
    async load(batch) {
      await loadName(store, batch, stored);
      if (viewOf(batch, stored).current !== undefined || batch.has(counter)) return;
      batch.set(counter, await store.countNames(stored.key));
    },
    check(batch): LogChange | undefined {
      const view = viewOf(batch, stored);
      const judgement = judge(signed, view.current, view.highest, Math.floor(sched.wall_ms() / 1000));
      onChecked(judgement.verdict === 'new');
      if (judgement.verdict === 'same') return undefined;
      if (judgement.verdict === 'invalid') throw new RonError('validation', judgement.problem);
      if (judgement.verdict === 'conflict') throw conflict(judgement.problem, view.current);
      if (view.current === undefined) takeName(batch, counter, names_per_key);
      view.current = { ...stored, rival: undefined, isOwn: true, dropped: 0 };
      view.highest = stored;
      return { kind: 'name', record: stored };
    },
  };
}

function takeName(batch: BatchState, counter: string, names_per_key: number): void {
  const count = batch.get(counter) as number;
  if (count >= names_per_key) {
    const message = `the key has ${count} names, as many as quotas.names_per_key allows`;
    throw new RonError('storage_full', message, { reason: 'quota' });
  }
  batch.set(counter, count + 1);
}

function conflict(problem: string, current: StoredName | undefined): RonError {
  return new RonError('conflict', problem, { details: { current: current === undefined ? null : nameDto(current) } });
}

/** Records two contradicting records, unless they are known. */
export function recordFork(state: NameState & { readonly rival: StoredRecord }, store: NameReader): ChangeRequest {
  const { record, rival } = state;
  return {
    load: (batch) => loadName(store, batch, record),
    check(batch) {
      const view = viewOf(batch, record);
      const { current } = view;
      if (current !== undefined && !isSame(current.hash, record.hash) && !supersedes(record, current)) return undefined;
      const isKnown =
        current?.rival !== undefined && isSame(current.hash, record.hash) && isSame(current.rival.hash, rival.hash);
      if (isKnown) return undefined;
      view.current = { ...record, rival, isOwn: current?.isOwn ?? false, dropped: 0 };
      return { kind: 'fork', record, rival };
    },
  };
}

/** Sets or removes (`key` undefined) a trusted key. */
export function changeTrust(prefix: string, key: string | undefined, load: () => TrustList): ChangeRequest {
  return {
    load: async (batch) => void (batch.has('trust') || batch.set('trust', load())),
    check(batch) {
      const list = batch.get('trust') as TrustList;
      const known = list.get(prefix);
      if (known === key) {
        if (key !== undefined) return undefined;
        throw new RonError('not_found', 'the trust list does not contain this prefix');
      }
      batch.set('trust', list.with(prefix, key));
      return { kind: 'trust', prefix, key };
    },
  };
}

export function changePin(target: string, isPinned: boolean, load: () => ReadonlySet<string>): ChangeRequest {
  return {
    load: async (batch) => void (batch.has('pins') || batch.set('pins', new Set(load()))),
    check(batch) {
      const pins = batch.get('pins') as Set<string>;
      if (pins.has(target) === isPinned) return undefined;
      if (isPinned && pins.size >= PINS_MAX) {
        throw new RonError('storage_full', `${PINS_MAX} keys are pinned: unpin one first`, { reason: 'quota' });
      }
      if (isPinned) pins.add(target);
      else pins.delete(target);
      return { kind: 'pin', target, isPinned };
    },
  };
}

export function recordAction(action: string): ChangeRequest {
  return { load: async () => undefined, check: () => ({ kind: 'admin', action }) };
}
