/**
 * A client of the administrative routes of storage: volumes, repair, scrub and compaction.
 *
 * Contract: starting a running task returns that task; repeating a command for a volume is refused or changes nothing.
 * Cancellation: by the signal of each call and of the client.
 */
import type { RepairStatus, Task, TaskKind, VolumesAnswer, VolumeVerb } from '@ron/proto';
import type { CallOptions } from './storage-client.ts';
import { Transport, type TransportInit } from './transport.ts';

export class StorageAdmin {
  readonly #transport: Transport;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
  }

  volumes(init: CallOptions = {}): Promise<VolumesAnswer> {
    return this.#call('volumes', 'GET', 'admin/volumes', init);
  }

  decide(verb: VolumeVerb, volume: string, init: CallOptions & { force?: boolean } = {}): Promise<VolumesAnswer> {
    const query = new URLSearchParams({ volume, ...(init.force === true && { force: 'true' }) });
    return this.#call('volumes', 'POST', `admin/volumes/${verb}?${query.toString()}`, init);
  }

  repairStatus(init: CallOptions = {}): Promise<RepairStatus> {
    return this.#call('repair', 'GET', 'admin/repair', init);
  }

  start(kind: TaskKind, init: CallOptions = {}): Promise<Task> {
    return this.#call(kind, 'POST', `admin/${kind}`, init);
  }

  task(id: string, init: CallOptions = {}): Promise<Task> {
    return this.#call('task', 'GET', `admin/tasks/${encodeURIComponent(id)}`, init);
  }

  #call<T>(op: string, method: string, path: string, init: CallOptions): Promise<T> {
    const work = async (signal: AbortSignal): Promise<T> => {
      const response = await this.#transport.send(op, path, { method, signal });
      return (await response.json()) as T;
    };
    return this.#transport.call(op, work, { signal: init.signal });
  }
}
