/** A volume for models: its operations take effect when the explorer says so. */
import { MemoryVolume, RecordType, type Kind, type NewRecord, type StoredRecord } from '@ron/cas';
import { RonError } from '@ron/kernel';

type Operation = 'put' | 'get';

/** Decides when an operation ends: the world of a model. */
interface Clock {
  io(label: string): Promise<void>;
}

/** A volume whose operations take effect in order, each after a delay. */
export class ModelVolume extends MemoryVolume {
  isLive = false;
  moved_bytes = 0;
  readonly puts: string[] = [];
  /** The next put of a record of this type fails. */
  failsOnce: number | undefined;
  readonly #world: Clock;
  readonly #slow: readonly Operation[];
  /** Only puts of these are slow. */
  readonly #slowTypes: readonly number[] | undefined;
  readonly #removed = new Set<string>();
  #last: Promise<unknown> = Promise.resolve();

  constructor(world: Clock, name: string, slow: readonly Operation[], slowTypes?: readonly number[]) {
    super({ name, bytes_max: 1e6 });
    this.#world = world;
    this.#slow = slow;
    this.#slowTypes = slowTypes;
  }

  override put(records: readonly NewRecord[], until: AbortSignal): Promise<void> {
    const done = this.#last.then(async () => {
      if (records.some((record) => this.#slowTypes?.includes(record.type) ?? true)) await this.#io('put');
      if (this.isLive && records.some((record) => record.type === this.failsOnce)) {
        this.failsOnce = undefined;
        throw new RonError('busy', 'not now');
      }
      for (const record of records) this.#note(record);
      await super.put(records, until);
    });
    this.#last = done.catch(() => undefined);
    return done;
  }

  override async get(kind: Kind, id: Uint8Array, until: AbortSignal): Promise<StoredRecord | undefined> {
    await this.#io('get');
    const record = await super.get(kind, id, until);
    if (this.isLive && kind !== 'note') this.moved_bytes += record?.payload.length ?? 0;
    return record;
  }

  /** Unlike a volume in memory, it may be reopened. */
  override wasRemoved(id?: Uint8Array): boolean {
    return id !== undefined && this.#removed.has(Buffer.from(id).toString('hex'));
  }

  #note({ type, id, payload }: NewRecord): void {
    const key = Buffer.from(id).toString('hex');
    if (type === RecordType.remove) this.#removed.add(key);
    if (type === RecordType.object) this.#removed.delete(key);
    if (!this.isLive || type === RecordType.note) return;
    this.puts.push(key);
    this.moved_bytes += payload.length;
  }

  async #io(operation: Operation): Promise<void> {
    if (this.isLive && this.#slow.includes(operation)) await this.#world.io(`${this.name} ${operation}`);
  }
}
