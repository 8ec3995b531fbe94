/**
 * Applies reloaded configurations in a running service.
 *
 * Contract: the `config` channel holds the newest configuration that its source has published since the follower was
 * made, including one published while the service was starting. `apply` runs once for each, never twice at a time;
 * a configuration that is replaced before it is applied is skipped. `reload` applies the present one again, because files
 * that it names may have changed. Once `shutdown` is set, nothing is applied.
 * Bound: one run of `apply`, one that waits for it, and one for each `reload`.
 * Cancellation: `apply` receives the signal of `run` or `reload`.
 *
 *     const follower = new ConfigFollower({ source, config, shutdown, apply: (next) => volumes.follow(next), onProblem });
 *     runtime.spawn('config_watch', ({ stopping }) => follower.run(stopping));
 */
import { RonError, type Watch, type WatchReceiver } from '@ron/kernel';

/** The configuration in force. A `ConfigSource` fits; without a watch it is replaced only by `reload`. */
export interface FollowedSource<C> {
  readonly value: C;
  readonly watch?: Pick<Watch<C>, 'subscribe'>;
  /** Why a newer configuration was refused. */
  readonly problem?: string | undefined;
}

export interface ConfigFollowerInit<C> {
  readonly source: FollowedSource<C>;
  /** The declared channel that the service reads. */
  readonly config: Watch<C>;
  /** The declared channel that is true once a drain has begun. */
  readonly shutdown: Pick<Watch<boolean>, 'value'>;
  /** Work that a new configuration needs beyond being readable. */
  readonly apply?: (config: C, signal: AbortSignal) => Promise<void>;
  /** Called when `apply` rejects in `run`; a `reload` rejects itself. */
  readonly onProblem: (error: unknown) => void;
}

export class ConfigFollower<C> {
  readonly #init: ConfigFollowerInit<C>;
  readonly #updates: WatchReceiver<C> | undefined;
  #applied: C;
  #failed: string | undefined;
  /** The tail of the runs of `apply`. */
  #last: Promise<void> = Promise.resolve();

  constructor(init: ConfigFollowerInit<C>) {
    this.#init = init;
    this.#updates = init.source.watch?.subscribe();
    this.#applied = init.config.value;
  }

  /** Why the newest configuration is not in force: its source refused it, or it could not be applied. */
  get problem(): string | undefined {
    return this.#init.source.problem ?? this.#failed;
  }

  /** A task: applies each configuration that the source publishes. */
  async run(stopping: AbortSignal): Promise<void> {
    const { shutdown, onProblem } = this.#init;
    if (this.#updates === undefined) return;
    for (;;) {
      if (shutdown.value) return;
      await this.#enqueue(stopping, false).catch((error: unknown) => {
        stopping.throwIfAborted();
        onProblem(error);
      });
      await this.#updates.changed(stopping);
    }
  }

  /** Applies the present configuration, even if it is in force already. Rejects when that fails. */
  reload(signal: AbortSignal): Promise<void> {
    return this.#enqueue(signal, true);
  }

  #enqueue(signal: AbortSignal, isForced: boolean): Promise<void> {
    const done = this.#last.then(() => this.#apply(signal, isForced));
    this.#last = done.catch(() => undefined);
    return done;
  }

  async #apply(signal: AbortSignal, isForced: boolean): Promise<void> {
    const { source, config, shutdown, apply } = this.#init;
    signal.throwIfAborted();
    if (shutdown.value) throw new RonError('draining', 'the service is stopping: the configuration is not applied');
    const next = source.value;
    if (next === this.#applied && !isForced) return;
    // Not retried when `apply` fails: the operator reloads once the cause is corrected.
    this.#applied = next;
    if (next !== config.value) config.set(next);
    try {
      await apply?.(next, signal);
      this.#failed = undefined;
    } catch (error) {
      this.#failed = `failed to apply the configuration: ${error instanceof Error ? error.message : String(error)}`;
      throw error;
    }
  }
}
