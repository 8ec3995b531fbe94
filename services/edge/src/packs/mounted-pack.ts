/**
 * A pack under its name, open while requests read it.
 *
 * Contract: a retired pack is closed once, after its last holder has let go; a holder never reads a closed pack. A caller takes
 * its hold in the same synchronous step in which it found the mount, so that the pack cannot be closed in between.
 * Bound: a counter; the listener bounds the holders. Cancellation: none; holders let go when their request ends.
 */
import { RonError, sched, touch, type Parked } from '@ron/kernel';
import type { OpenPack } from './pack.ts';
import type { Mount } from './packs.ts';

const RETRY_AFTER_MS = 1000;

export interface MountedPackInit {
  readonly name: string;
  readonly pack: OpenPack;
  /** The identity of its file: device, inode, size and mtime. */
  readonly identity: string;
}

export class MountedPack implements Mount {
  readonly name: string;
  readonly pack: OpenPack;
  readonly identity: string;
  readonly validity: { readonly isRetired: boolean };
  readonly #closed: Parked<void>;
  #holders = 0;
  #isRetired = false;

  constructor({ name, pack, identity }: MountedPackInit) {
    this.name = name;
    this.pack = pack;
    this.identity = identity;
    this.validity = new MountValidity(this);
    this.#closed = sched.park<void>(`pack.${name}.closed`);
  }

  get isRetired(): boolean {
    touch(this);
    return this.#isRetired || this.pack.problem !== undefined;
  }

  /** Resolves once the retired pack is closed. Never rejects. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  hold(): Disposable {
    touch(this);
    const { problem } = this.pack;
    if (problem !== undefined) throw notReady(`pack ${this.name} is damaged: ${problem}`);
    if (this.#isRetired && this.#holders === 0) throw notReady(`pack ${this.name} was replaced`);
    this.#holders += 1;
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#release();
      },
    };
  }

  /** Closes the pack after its last holder. Idempotent. */
  retire(): void {
    touch(this);
    if (this.#isRetired) return;
    this.#isRetired = true;
    if (this.#holders === 0) this.#close();
  }

  #release(): void {
    touch(this);
    this.#holders -= 1;
    if (this.#isRetired && this.#holders === 0) this.#close();
  }

  #close(): void {
    this.pack.close().then(
      () => this.#closed.wake(),
      () => this.#closed.wake(),
    );
  }
}

/** A pack that is not in memory any more was retired: while it is mounted, the table refers to it. */
class MountValidity {
  readonly #mount: WeakRef<MountedPack>;

  constructor(mount: MountedPack) {
    this.#mount = new WeakRef(mount);
  }

  get isRetired(): boolean {
    return this.#mount.deref()?.isRetired ?? true;
  }
}

const notReady = (message: string): RonError => new RonError('not_ready', message, { retry_after_ms: RETRY_AFTER_MS });
