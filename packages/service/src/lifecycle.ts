/**
 * The one state of a process that everybody may ask for, and the ordered way down.
 *
 * Promise: Running -> Draining -> (Aborting) -> Stopped, never back and never skipping; an illegal step is a defect and
 * throws. `close()` runs the close hooks in the order in which they were added, each within its own deadline; a hook
 * that fails or hangs does not keep the later ones from their turn, and the report names it. Asking again for a state
 * that was reached does nothing.
 * Bound: at most HOOKS_MAX hooks; closing takes at most the sum of their deadlines and graces.
 * Overflow: none. Cancellation: a hook's signal aborts when its deadline passes, or at once after `abort()`; it then has
 * a short grace to end before it is left behind.
 *
 *   running --beginDrain--> draining --drained---------------------> stopped
 *                              `--abort, or a late hook--> aborting ---^
 */
import { assert, RonError, sched, touch, type Parked, type Timer, Watch } from '@ron/kernel';

export type LifecycleState = 'running' | 'draining' | 'aborting' | 'stopped';

export interface LifecycleInit {
  /** How long a hook that was told to abort may still take. Default 250. */
  abort_grace_ms?: number;
}

export interface CloseHookInit {
  /** How long it may take before it is aborted. */
  deadline_ms: number;
}

export interface HookReport {
  readonly hook: string;
  /** `late`: ended only when it was aborted. `stuck`: not even then, it may still be running. */
  readonly outcome: 'closed' | 'failed' | 'late' | 'stuck';
  readonly took_ms: number;
  readonly error?: unknown;
}

export interface CloseReport {
  /** Every hook, in order. */
  readonly hooks: readonly HookReport[];
  /** Those that did not close as they should. */
  readonly problems: readonly HookReport[];
  readonly took_ms: number;
}

interface Hook {
  readonly name: string;
  readonly deadline_ms: number;
  readonly close: (signal: AbortSignal) => Promise<void> | void;
}

/** The hook that runs now. */
interface Closing {
  readonly hook: Hook;
  readonly controller: AbortController;
  readonly ended: Parked<Omit<HookReport, 'hook' | 'took_ms'>>;
  timer: Timer;
}

const HOOKS_MAX = 64;

const NEXT: Readonly<Record<LifecycleState, readonly LifecycleState[]>> = {
  running: ['draining'],
  draining: ['aborting', 'stopped'],
  aborting: ['stopped'],
  stopped: [],
};

export class Lifecycle implements AsyncDisposable {
  readonly name: string;
  /** Every change; closed when stopped, after that was seen. */
  readonly watch: Watch<LifecycleState>;
  readonly #abort_grace_ms: number;
  readonly #hooks: Hook[] = [];
  readonly #report = Promise.withResolvers<CloseReport>();
  #isClosing = false;
  #hurry = false;
  #closing: Closing | undefined;

  constructor(name: string, init: LifecycleInit = {}) {
    this.name = name;
    this.watch = new Watch<LifecycleState>(`${name}.lifecycle`, 'running');
    this.#abort_grace_ms = init.abort_grace_ms ?? 250;
  }

  get state(): LifecycleState {
    return this.watch.value;
  }

  /** Adds the next thing to close. Later hooks may rely on what earlier ones have ended. */
  onClose(hook: string, init: CloseHookInit, close: (signal: AbortSignal) => Promise<void> | void): void {
    touch(this);
    assert(!this.#isClosing, `${this.name}: close hooks are added before the close`);
    assert(this.#hooks.length < HOOKS_MAX, `${this.name}: close hooks are few`);
    assert(init.deadline_ms > 0, `${this.name}: close hook ${hook} needs a positive deadline`);
    this.#hooks.push({ name: hook, deadline_ms: init.deadline_ms, close });
  }

  /** From now on nothing new is taken on. */
  beginDrain(): void {
    if (this.state === 'running') this.#enter('draining');
  }

  /** Everything in hand is finished. */
  drained(): void {
    if (this.state === 'stopped') return;
    assert(this.state === 'draining', `${this.name}: drained while ${this.state}`);
    this.#enter('stopped');
  }

  /** No more patience: the hook that runs and those after it are aborted at once. */
  abort(): void {
    if (this.state === 'stopped') return;
    if (this.state !== 'aborting') this.#enter('aborting');
    this.#hurry = true;
    if (this.#closing !== undefined) this.#cut(this.#closing, new RonError('canceled', `${this.name} is aborting`));
  }

  /** What could be aborted has been. */
  stopped(): void {
    if (this.state === 'stopped') return;
    assert(this.state === 'aborting', `${this.name}: stopped while ${this.state}`);
    this.#enter('stopped');
  }

  /** Goes all the way down and says what did not close in time. Never rejects; called again it gives the same report. */
  close(): Promise<CloseReport> {
    touch(this);
    if (!this.#isClosing) {
      this.#isClosing = true;
      this.beginDrain();
      this.#closeAll().then(this.#report.resolve, this.#report.reject);
    }
    return this.#report.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #enter(state: LifecycleState): void {
    const from = this.state;
    assert(NEXT[from].includes(state), `${this.name}: ${from} -> ${state} is not a step`);
    this.watch.set(state);
    if (state === 'stopped') this.watch.close();
  }

  async #closeAll(): Promise<CloseReport> {
    const began_ms = sched.now_ms();
    const hooks: HookReport[] = [];
    for (const hook of this.#hooks) {
      const hook_began_ms = sched.now_ms();
      const end = await this.#closeOne(hook);
      hooks.push({ hook: hook.name, took_ms: sched.now_ms() - hook_began_ms, ...end });
    }
    if (this.state === 'draining') this.drained();
    else this.stopped();
    const problems = hooks.filter(({ outcome }) => outcome !== 'closed');
    return { hooks, problems, took_ms: sched.now_ms() - began_ms };
  }

  #closeOne(hook: Hook): Closing['ended']['promise'] {
    const ended: Closing['ended'] = sched.park(`${this.name}.close ${hook.name}`);
    const timer = this.#timer(hook, hook.deadline_ms, () => this.#late(closing));
    const closing: Closing = { hook, controller: new AbortController(), ended, timer };
    this.#closing = closing;
    if (this.#hurry) this.#cut(closing, new RonError('canceled', `${this.name} is aborting`));
    const { signal } = closing.controller;
    start(hook, signal).then(
      () => this.#ended(closing, { outcome: signal.aborted ? 'late' : 'closed' }),
      (error: unknown) => this.#ended(closing, { outcome: signal.aborted ? 'late' : 'failed', error }),
    );
    return ended.promise;
  }

  #late(closing: Closing): void {
    if (this.state === 'draining') this.#enter('aborting');
    const message = `${this.name}: ${closing.hook.name} did not close within ${closing.hook.deadline_ms} ms`;
    this.#cut(closing, new RonError('timeout', message, { op: closing.hook.name }));
  }

  /** Tells a hook to end, and leaves it behind if it does not within the grace. */
  #cut(closing: Closing, reason: RonError): void {
    touch(this);
    // Told already: its grace runs.
    if (closing.controller.signal.aborted) return;
    closing.timer.cancel();
    closing.timer = this.#timer(closing.hook, this.#abort_grace_ms, () =>
      this.#ended(closing, { outcome: 'stuck', error: reason }),
    );
    closing.controller.abort(reason);
  }

  #ended(closing: Closing, end: Omit<HookReport, 'hook' | 'took_ms'>): void {
    touch(this);
    closing.timer.cancel();
    if (this.#closing === closing) this.#closing = undefined;
    closing.ended.wake(end);
  }

  /** Keeps the process alive: what is closed here may be all that did. */
  #timer(hook: Hook, delay_ms: number, fire: () => void): Timer {
    return sched.timer(delay_ms, fire, `${this.name}.close ${hook.name}`, { keepAlive: true });
  }
}

/** So that a hook which throws before its first await fails like any other. */
async function start(hook: Hook, signal: AbortSignal): Promise<void> {
  await hook.close(signal);
}
