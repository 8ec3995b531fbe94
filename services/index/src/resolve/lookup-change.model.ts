/**
 * Models of lookups against changes, on the real lookups, resolver, cache, janitor and publisher. The explorer decides when the
 * database, the log and each task respond.
 *
 * Once a change is acknowledged, no caller that comes later gets an answer from before it, and the cache serves none. A caller
 * that came before may get either.
 */
import assert from 'node:assert/strict';
import type { Build, Model, World } from '@ron/explorer';
import { Cell, Deadline, isRonError, Mpsc, NEVER, RonError, touch } from '@ron/kernel';
import { checkTarget, formatTarget } from '@ron/proto';
import type { LogChange, StoredName } from '../store/index-store.ts';
import type { NameLog } from '../publish/name-log.ts';
import type { Job, Publisher } from '../publish/publisher.ts';
import type { AnswerCache, CacheMeta, Offer } from './cache/answer-cache.ts';
import type { CachedAnswer } from './cache/cached-answer.ts';
import { Versions } from './cache/versions.ts';
import { NO_EVIDENCE } from './evidence.ts';
import type { Lookups } from './lookups.ts';
import type { Resolution } from './resolution.ts';
import type { Resolver } from './resolver.ts';
import { addressOf, KEY, nameOf, objectOf } from './testing/open-resolving.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly Lookups: typeof Lookups;
  readonly Resolver: typeof Resolver;
  readonly AnswerCache: typeof AnswerCache;
  readonly Publisher: typeof Publisher;
}

export interface ChangeInit {
  /** Whether the cache janitor runs. Without it, callers join the lookup of each other more often. */
  readonly cached: boolean;
  /** How many microtasks later the second caller may come: a lookup ends over several of them. Default: at once. */
  readonly microtasks_max?: number;
}

const ADDRESS = addressOf('object');
const OTHER = addressOf('other');
const LABEL = 'a';
const NAME = formatTarget({ kind: 'name', label: LABEL, key: undefined });
/** No provider. */
const NONE = 'none';

/** The database: a read sees the committed state of the moment in which it begins, and its answer takes time. */
class ModelTables {
  readonly #world: World;
  isAnnounced = false;
  /** Whether reads of objects take time. */
  isSlow = true;
  name: StoredName = nameOf({ label: LABEL, value: ADDRESS });

  constructor(world: World) {
    this.#world = world;
  }

  async object() {
    touch(this);
    const object = this.isAnnounced ? objectOf(ADDRESS, 0) : undefined;
    if (this.isSlow) await this.#world.io('read');
    return object;
  }

  async readName(): Promise<StoredName> {
    touch(this);
    const { name } = this;
    await this.#world.io('read');
    return name;
  }
}

/** Entries that neither expire nor are evicted: the cache has tests of its own, and its seed would triple the schedules. */
class ModelAnswers extends Map<string, CachedAnswer> {
  readonly hits_total = 0;
  readonly misses_total = 0;
  readonly evictions_total = 0;
  readonly expirations_total = 0;
  sweep(): number {
    return 0;
  }
}

function openParts(parts: Parts, tables: ModelTables) {
  const versions = new Versions();
  const offers = new Mpsc<Offer>('cache_in', 8);
  const meta = new Cell<CacheMeta>('cache_meta', 2, { answers: new ModelAnswers(), pinned: new Map() });
  const cache = new parts.AnswerCache({ meta, offers, versions, refresh: () => undefined });
  const resolver = new parts.Resolver({
    store: { object: () => tables.object(), name: () => tables.readName() },
    names: { keyFor: () => KEY, adopt: async () => undefined },
    dht: () => undefined,
    evidence: NO_EVIDENCE,
    breakers: { state: () => 'closed', notClosed: () => [] },
    self: { id: 'self', url: 'http://127.0.0.1:1' },
    ttl_ms: () => 10_000,
  });
  const lookups = new parts.Lookups({
    // The queue has a model of its own.
    work: { submit: (_lane, deadline, work) => work(deadline) },
    cache,
    versions,
    resolve: (lookup, deadline) => resolver.run(lookup, deadline),
    // Deadlines have tests of their own.
    budget_ms: () => undefined,
    runs_max: 8,
  });
  return { cache, offers, lookups };
}

/** As the route does it: the cache first, then a lookup. */
async function ask({ cache, lookups }: ReturnType<typeof openParts>, key: string): Promise<string> {
  const cached = cache.get(key);
  if (cached !== undefined) return answerOf(cached.resolution ?? cached.refusal!);
  const parsed = checkTarget(key);
  assert.ok(parsed.ok);
  const deadline = Deadline.unlimited('caller');
  try {
    const request = { lane: '/resolve', target: parsed.target, mode: 'usual', deadline, ip: '' } as const;
    return answerOf(await lookups.find(request));
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    return answerOf(error);
  }
}

/** The parts of an answer that the changes concern. */
function answerOf(outcome: Resolution | RonError): string {
  if (outcome instanceof RonError || outcome.providers.length === 0) return NONE;
  return outcome.address;
}

/** Callers of an absent object, or of a name that leads to it, while it is announced. */
export function noneAgainstAnnounce(parts: Parts, init: ChangeInit & { readonly by: 'address' | 'name' }): Build {
  return (world) => {
    const tables = new ModelTables(world);
    const opened = openParts(parts, tables);
    const announce = async (): Promise<void> => {
      await world.io('commit');
      touch(tables);
      tables.isAnnounced = true;
      opened.cache.invalidate([ADDRESS]);
    };
    return callersAgainst(world, opened, init, {
      key: init.by === 'name' ? NAME : ADDRESS,
      outdated: NONE,
      run: announce,
    });
  };
}

/** Callers of a name while a new record is published by the real publisher. */
export function publishAgainstResolve(parts: Parts, init: ChangeInit): Build {
  return (world) => {
    const tables = new ModelTables(world);
    tables.isAnnounced = true;
    tables.isSlow = false;
    const opened = openParts(parts, tables);
    const jobs = new Mpsc<Job>('publish', 1);
    const publisher = new parts.Publisher({
      jobs,
      log: modelLog(),
      store: { apply: (changes) => applyTo(world, tables, changes) },
      onAppended: () => undefined,
      invalidate: () => opened.cache.invalidate([NAME, `${NAME}@${KEY}`]),
      invalidateAll: () => opened.cache.clear(),
    });
    const record = nameOf({ label: LABEL, value: OTHER, seq: 2, previous: '00'.repeat(32) });
    const change: LogChange = { kind: 'name', record };
    const published = publisher.submit({ load: async () => undefined, check: () => change }, CALLER, NEVER);
    jobs.close();
    world.task('publisher', () => publisher.run(NEVER));
    return callersAgainst(world, opened, init, { key: NAME, outdated: ADDRESS, run: () => published });
  };
}

/** One at any time, one after the acknowledgement. */
const CALLERS = 2;
const CALLER = { subject: 'owner', capability_id: 'c' };

interface Change {
  readonly key: string;
  /** The answer from before the change. */
  readonly outdated: string;
  /** Resolves when the change is acknowledged. */
  readonly run: () => Promise<void>;
}

/** Runs the change against the callers. */
function callersAgainst(
  world: World,
  opened: ReturnType<typeof openParts>,
  { cached, microtasks_max = 0 }: ChangeInit,
  { key, outdated, run }: Change,
): Model {
  let isAcknowledged = false;
  let answered = 0;
  const answer = async (): Promise<string> => {
    const given = await ask(opened, key);
    answered += 1;
    if (answered === CALLERS) opened.offers.close();
    return given;
  };
  if (cached) world.task('janitor', () => opened.cache.fill(NEVER));
  world.task('caller', async () => void (await answer()));
  world.task('change', async () => {
    await run();
    isAcknowledged = true;
    const later = Array.from({ length: microtasks_max + 1 }, (_, at) => at);
    for (let left = world.choose('microtasks', later); left > 0; left -= 1) await Promise.resolve();
    assert.notEqual(await answer(), outdated, 'a caller got the answer from before an acknowledged change');
  });
  return {
    invariant: () => {
      const found = isAcknowledged ? opened.cache.get(key) : undefined;
      if (found === undefined) return;
      const served = answerOf(found.resolution ?? found.refusal!);
      assert.notEqual(served, outdated, 'the cache serves the answer from before an acknowledged change');
    },
    final: () => {
      assert.equal(answered, CALLERS, 'a caller was not answered');
      assert.equal(opened.lookups.size, 0, 'a lookup was left');
    },
  };
}

/** A log in memory: an append without a commit is not visible, so only the time of the commit matters. */
function modelLog(): NameLog {
  const log: Pick<NameLog, 'problem' | 'isUnsigned' | 'isAhead' | 'signIfDue' | 'catchUp' | 'append'> = {
    problem: undefined,
    isUnsigned: false,
    isAhead: false,
    signIfDue: async () => undefined,
    catchUp: async () => true,
    append: async () => ({ size: 1, leaf: new Uint8Array(32) }),
  };
  return log as NameLog;
}

async function applyTo(world: World, tables: ModelTables, changes: readonly LogChange[]): Promise<void> {
  await world.io('commit');
  touch(tables);
  for (const change of changes) {
    if (change.kind === 'name') tables.name = { ...change.record, rival: undefined, isOwn: true, dropped: 0 };
  }
}
