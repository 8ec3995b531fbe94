/**
 * Counts verifications and refusals that get no entry of their own, so that a flood of them cannot fill the log.
 *
 * Contract: up to `rate` operations per second and holder, a tenant or a capability, have an entry each (`takeTurn`). The
 * others are counted here by capability and tenant until the trail writes one entry for each counter: no operation is
 * unaccounted. A batch that could not be written is put back with `restore`.
 * Bound: `COUNTERS_MAX` counters with `KIDS_MAX` kids and `RESULTS_MAX` results, and `HOLDERS_MAX` holders with a rate.
 * Overflow: further capabilities of a tenant share one counter, further tenants share another, and further holders get no
 * entries of their own.
 */
import { sched } from '@ron/kernel';
import type { AuditEvent, Summary } from './event.ts';

const COUNTERS_MAX = 256;
/** Counters that only tenants without one may use, so that one tenant cannot take all of them. */
const TENANT_COUNTERS_MAX = 64;
const KIDS_MAX = 8;
const RESULTS_MAX = 32;
const HOLDERS_MAX = 4096;
const SECOND_MS = 1000;
/** Stands for several capabilities, tenants or results. */
const OTHERS = '*';

interface Counter {
  readonly actor: string;
  readonly subject: string;
  readonly tenant: string;
  readonly results: Map<string, number>;
  readonly kids: Set<string>;
  from: number;
  to: number;
}

type Counted = Pick<AuditEvent, 'actor' | 'subject' | 'tenant' | 'kid' | 'op' | 'result' | 'time_ms'>;

export class Summaries {
  readonly #rate: () => number;
  #counters = new Map<string, Counter>();
  /** Entries of the current second, by holder. */
  readonly #turns = new Map<string, number>();
  #second_ms = -Infinity;

  constructor(rate: () => number) {
    this.#rate = rate;
  }

  get isEmpty(): boolean {
    return this.#counters.size === 0;
  }

  /** Whether an operation of this holder may have an entry of its own. */
  takeTurn(holder: string): boolean {
    const now_ms = sched.now_ms();
    if (now_ms - this.#second_ms >= SECOND_MS) {
      this.#second_ms = now_ms;
      this.#turns.clear();
    }
    const taken = this.#turns.get(holder) ?? 0;
    if (taken >= this.#rate() || (taken === 0 && this.#turns.size >= HOLDERS_MAX)) return false;
    this.#turns.set(holder, taken + 1);
    return true;
  }

  add({ actor, subject, tenant, kid, op, result, time_ms }: Counted): void {
    const counter = this.#counter(actor, subject, tenant, time_ms);
    count(counter, `${op} ${result}`, 1);
    if (counter.kids.size < KIDS_MAX) counter.kids.add(kid);
    counter.from = Math.min(counter.from, time_ms);
    counter.to = Math.max(counter.to, time_ms);
  }

  /** Takes all counters. `asOne`: merged into one, if the log has little room. */
  take(asOne: boolean): Summary[] {
    const taken = [...this.#counters.values()];
    this.#counters = new Map();
    if (!asOne || taken.length <= 1) return taken;
    const [first] = taken as [Counter, ...Counter[]];
    const { from, to } = first;
    const whole = {
      actor: OTHERS,
      subject: OTHERS,
      tenant: OTHERS,
      results: new Map(),
      kids: new Set<string>(),
      from,
      to,
    };
    for (const each of taken) merge(whole, each);
    return [whole];
  }

  /** Adds summaries that `take` returned and that were not written. */
  restore(summaries: readonly Summary[]): void {
    for (const each of summaries) merge(this.#counter(each.actor, each.subject, each.tenant, each.from), each);
  }

  #counter(actor: string, subject: string, tenant: string, time_ms: number): Counter {
    const all = this.#counters;
    const known = all.get(`${tenant} ${actor}`);
    if (known !== undefined) return known;
    if (all.size < COUNTERS_MAX) return this.#open(actor, subject, tenant, time_ms);
    const isTenantKnown = all.has(`${tenant} ${OTHERS}`);
    if (isTenantKnown || all.size < COUNTERS_MAX + TENANT_COUNTERS_MAX)
      return this.#open(OTHERS, OTHERS, tenant, time_ms);
    return this.#open(OTHERS, OTHERS, OTHERS, time_ms);
  }

  #open(actor: string, subject: string, tenant: string, time_ms: number): Counter {
    const key = `${tenant} ${actor}`;
    const known = this.#counters.get(key);
    if (known !== undefined) return known;
    const fresh = { actor, subject, tenant, results: new Map(), kids: new Set<string>(), from: time_ms, to: time_ms };
    this.#counters.set(key, fresh);
    return fresh;
  }
}

function merge(into: Counter, { results, kids, from, to }: Summary): void {
  for (const [name, number] of results) count(into, name, number);
  for (const kid of kids) if (into.kids.size < KIDS_MAX) into.kids.add(kid);
  into.from = Math.min(into.from, from);
  into.to = Math.max(into.to, to);
}

function count({ results }: Counter, name: string, number: number): void {
  const known = results.has(name) || results.size < RESULTS_MAX ? name : OTHERS;
  results.set(known, (results.get(known) ?? 0) + number);
}
