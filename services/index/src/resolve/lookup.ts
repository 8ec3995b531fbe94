/** One running lookup: the targets that it depends on, its requests to peers, and the providers found so far. */
import { Mpsc, sched } from '@ron/kernel';
import type { Target } from '@ron/proto';
import type { LookupTrace } from '../dht/dht.ts';
import type { Stamp } from './cache/versions.ts';
import type { Ranked } from './rank.ts';

/** `usual`: the DHT is queried only if the database does not suffice. `full`: it is always queried. */
export type LookupMode = 'usual' | 'full';

/** Providers of one lookup that are passed on while it runs; the DHT returns at most 32. */
const STREAMED_MAX = 64;

export class Lookup {
  readonly target: Target;
  readonly key: string;
  readonly mode: LookupMode;
  readonly stamp: Stamp;
  readonly budget_ms: number;
  readonly started_ms = sched.now_ms();
  readonly started_wall_ms = sched.wall_ms();
  readonly trace: LookupTrace = { peers: [], hedges_started: 0, hedges_won: 0, hedges_refused: 0 };
  readonly #found: Ranked[] = [];
  readonly #followers = new Set<Mpsc<Ranked>>();
  #hasEnded = false;

  constructor(target: Target, key: string, mode: LookupMode, stamp: Stamp, budget_ms: number) {
    this.target = target;
    this.key = key;
    this.mode = mode;
    this.stamp = stamp;
    this.budget_ms = budget_ms;
  }

  get took_ms(): number {
    return sched.now_ms() - this.started_ms;
  }

  /** A provider in order of arrival. */
  onFound(provider: Ranked): void {
    if (this.#found.length >= STREAMED_MAX) return;
    this.#found.push(provider);
    for (const follower of this.#followers) follower.trySend(provider);
  }

  /** The providers found so far and later ones; closed when the lookup ends. The caller closes it to leave. */
  follow(): Mpsc<Ranked> {
    const follower = new Mpsc<Ranked>('providers', STREAMED_MAX);
    for (const provider of this.#found) follower.trySend(provider);
    if (this.#hasEnded) follower.close();
    else this.#followers.add(follower);
    return follower;
  }

  unfollow(follower: Mpsc<Ranked>): void {
    this.#followers.delete(follower);
    follower.close();
  }

  end(): void {
    this.#hasEnded = true;
    for (const follower of this.#followers) follower.close();
    this.#followers.clear();
  }
}
