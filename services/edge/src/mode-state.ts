/**
 * The mode in force, below the lock `state_meta`: a reload may change it, and each change is reported once.
 *
 *   const mode = new ModeState(runtime.cell('state_meta', { mode: config.edge.mode }), (next) => events.publish(...));
 *   mode.follow(next.edge.mode);
 */
import type { Cell } from '@ron/kernel';

export type Mode = 'offline' | 'live';

export class ModeState {
  readonly #state: Cell<{ mode: Mode }>;
  readonly #onChange: (mode: Mode) => void;

  constructor(state: Cell<{ mode: Mode }>, onChange: (mode: Mode) => void) {
    this.#state = state;
    this.#onChange = onChange;
  }

  get isLive(): boolean {
    return this.#state.withSync(({ mode }) => mode === 'live');
  }

  follow(mode: Mode): void {
    const isNew = this.#state.withSync((state) => {
      if (state.mode === mode) return false;
      state.mode = mode;
      return true;
    });
    if (isNew) this.#onChange(mode);
  }
}
