/**
 * A bulkhead for one disk: a disk that does not answer must not delay the others.
 *
 * All file calls of a process share one thread pool. A call that hangs keeps its thread, and without a free thread every
 * disk hangs. So each disk may use only a part of the pool.
 *
 * Contract: at most `calls_max` calls are in progress; further ones wait, in order. A call that takes longer than `late_ms`
 * fails with ETIMEDOUT, and until it has ended every other call fails at once. The file of a late call is never used again:
 * it is closed when the call has ended, so that its descriptor is not reused while the call may still write.
 * Bound: `WAITING_MAX` calls wait. Overflow: EBUSY. Cancellation: `late_ms` ends every wait.
 */
import { sched, type Parked } from '@ron/kernel';
import type { File, FileSystem } from './file-system.ts';

const WAITING_MAX = 4096;

export interface DiskGateInit {
  /** Concurrent calls. */
  calls_max: number;
  /** The time limit of a call. */
  late_ms: number;
}

interface Call {
  readonly begun_ms: number;
  readonly fail: (error: unknown) => void;
}

/** A waiting call. */
interface WaitingCall {
  readonly begin: () => void;
  readonly fail: (error: unknown) => void;
}

const late = (): Error => Object.assign(new Error('ETIMEDOUT: the disk does not answer'), { code: 'ETIMEDOUT' });
const busy = (): Error => Object.assign(new Error('EBUSY: too many calls wait for the disk'), { code: 'EBUSY' });

export class DiskGate {
  readonly #init: DiskGateInit;
  /** Calls in progress, the oldest first. */
  readonly #calls = new Set<Call>();
  readonly #waiting = new Set<WaitingCall>();
  #isTimerSet = false;

  constructor(init: DiskGateInit) {
    this.#init = init;
  }

  /** Calls that have not ended. */
  get calls(): number {
    return this.#calls.size;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** A call in progress has exceeded `late_ms`. */
  get isStuck(): boolean {
    const [oldest] = this.#calls;
    return oldest !== undefined && this.#isLate(oldest);
  }

  run<T>(call: () => Promise<T>): Promise<T> {
    if (this.isStuck) return Promise.reject(late());
    const parked = sched.park<T>('disk.call');
    const turn: WaitingCall = { begin: () => this.#begin(call, parked), fail: parked.fail };
    if (this.#calls.size < this.#init.calls_max) turn.begin();
    else if (this.#waiting.size < WAITING_MAX) this.#waiting.add(turn);
    // [storage I-9] [index I-9]
    else return Promise.reject(busy());
    return parked.promise;
  }

  #begin<T>(call: () => Promise<T>, parked: Parked<T>): void {
    const mine: Call = { begun_ms: sched.now_ms(), fail: parked.fail };
    this.#calls.add(mine);
    if (!this.#isTimerSet) this.#checkAfter(this.#init.late_ms);
    call().then(
      (value) => {
        this.#ended(mine);
        parked.wake(value);
      },
      (error: unknown) => {
        this.#ended(mine);
        parked.fail(error);
      },
    );
  }

  #ended(call: Call): void {
    this.#calls.delete(call);
    const [next] = this.#waiting;
    if (next === undefined) return;
    this.#waiting.delete(next);
    next.begin();
  }

  /** One timer for all calls, while there are any. It pauses first, so that after a stall of the process results come first. */
  #checkAfter(wait_ms: number): void {
    this.#isTimerSet = true;
    sched.timer(wait_ms, () => void sched.pause('disk.watch').then(() => this.#check()), 'disk.watch');
  }

  #check(): void {
    this.#isTimerSet = false;
    // [storage I-4] [index I-4] A file call that takes too long fails, although its thread may hang.
    for (const call of this.#calls) if (this.#isLate(call)) call.fail(late());
    if (this.isStuck) {
      for (const turn of this.#waiting) turn.fail(late());
      this.#waiting.clear();
    }
    const [oldest] = this.#calls;
    if (oldest === undefined) return;
    const rest_ms = oldest.begun_ms + this.#init.late_ms - sched.now_ms();
    this.#checkAfter(rest_ms > 0 ? rest_ms : this.#init.late_ms / 4);
  }

  #isLate({ begun_ms }: Call): boolean {
    return sched.now_ms() - begun_ms >= this.#init.late_ms;
  }
}

/** A file system whose calls go through a gate, except locks and calls that do not wait. */
export function gatedFileSystem(fs: FileSystem, gate: DiskGate): FileSystem {
  return Object.assign(Object.create(fs) as FileSystem, {
    create: (path: string) => openGated(gate, () => fs.create(path)),
    open: (path: string, access: 'read' | 'write') => openGated(gate, () => fs.open(path, access)),
    list: (dir: string) => gate.run(() => fs.list(dir)),
    makeDir: (dir: string) => gate.run(() => fs.makeDir(dir)),
    rename: (from: string, to: string) => gate.run(() => fs.rename(from, to)),
    remove: (path: string) => gate.run(() => fs.remove(path)),
    syncDir: (dir: string) => gate.run(() => fs.syncDir(dir)),
    ...('identity' in fs && { identity: (path: string) => gate.run(() => fs.identity!(path)) }),
    ...('room' in fs && { room: (dir: string) => gate.run(() => fs.room!(dir)) }),
  });
}

/** A file that is opened after its caller got ETIMEDOUT is closed again. */
function openGated(gate: DiskGate, open: () => Promise<File>): Promise<File> {
  let isGivenUp = false;
  const opened = gate.run(async () => {
    const file = await open();
    if (isGivenUp) void file.close().catch(() => undefined);
    return file;
  });
  return opened.then(
    (file) => new GatedFile(file, gate),
    (error: unknown) => {
      isGivenUp = true;
      throw error;
    },
  );
}

class GatedFile implements File {
  readonly #file: File;
  readonly #gate: DiskGate;
  /** Calls that have not ended, whether or not a caller still waits for them. */
  #calls = 0;
  #isClosing = false;
  readonly readNow?: NonNullable<File['readNow']>;
  readonly identity?: NonNullable<File['identity']>;

  constructor(file: File, gate: DiskGate) {
    this.#file = file;
    this.#gate = gate;
    if (file.readNow !== undefined) this.readNow = (into, length, position) => file.readNow?.(into, length, position);
    if (file.identity !== undefined) this.identity = () => this.#run(() => file.identity!());
  }

  write(buffers: readonly Uint8Array[], position: number): Promise<void> {
    return this.#run(() => this.#file.write(buffers, position));
  }

  read(into: Uint8Array, length: number, position: number): Promise<number> {
    return this.#run(() => this.#file.read(into, length, position));
  }

  sync(): Promise<void> {
    return this.#run(() => this.#file.sync());
  }

  truncate(bytes: number): Promise<void> {
    return this.#run(() => this.#file.truncate(bytes));
  }

  size(): Promise<number> {
    return this.#run(() => this.#file.size());
  }

  /** With a call in progress, closes the file after that call, without waiting for it. */
  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#calls === 0) await this.#file.close();
  }

  #run<T>(call: () => Promise<T>): Promise<T> {
    return this.#gate.run(() => this.#counted(call));
  }

  async #counted<T>(call: () => Promise<T>): Promise<T> {
    this.#calls += 1;
    try {
      return await call();
    } finally {
      this.#calls -= 1;
      if (this.#isClosing && this.#calls === 0) void this.#file.close().catch(() => undefined);
    }
  }
}
