/**
 * Key operations as clients request them: idempotent by op_id, recorded in the audit log, and published as events.
 *
 * Contract: a key is created once per op_id, even if the process dies before it responds: the id is stored together with
 * the key. If its entry could not be written then, a retry writes it before it is answered; after a crash a key may have two.
 * A new version uses the tenant's share of the disk. Bound, overflow, cancellation: as the queue's and the registry's.
 */
import type { Deadline } from '@ron/kernel';
import type { Attempt, Auditor, Caller, Used } from '../audit/auditor.ts';
import type { AuditOp } from '../audit/event.ts';
import { formatKid, tenantOf } from './kid.ts';
import { requestHash } from '../ops/op-id.ts';
import type { OpLedger } from '../ops/op-ledger.ts';
import type { KeyRegistry } from './key-registry.ts';
import type { Deletion, KeyLifecycle } from './key-lifecycle.ts';
import { headOf, type KeyRecord, type OpMark } from './key-record.ts';
import type { CreateRequest, ImportRequest, KeyOperations } from './key-operations.ts';

export type KeyEvent = { readonly kind: 'key'; readonly change: AuditOp; readonly kid: string };

/** The room that a version needs in the store, with its sealed private key. */
const VERSION_BYTES = 8 * 1024;

export interface KeyServiceInit {
  readonly registry: KeyRegistry;
  readonly work: KeyOperations;
  readonly lifecycle: KeyLifecycle;
  readonly ledger: Pick<OpLedger, 'once'>;
  readonly auditor: Auditor;
  /** Throws while the backend must not be used. */
  readonly requireReady: () => void;
  /** Runs the work when the fair queue reaches it. */
  readonly enqueue: <A>(tenant: string, deadline: Deadline, work: () => Promise<A>) => Promise<A>;
  readonly publish: (event: KeyEvent) => void;
}

export class KeyService {
  readonly #init: KeyServiceInit;

  constructor(init: KeyServiceInit) {
    this.#init = init;
  }

  /** Returns the kid of the new key's first version. */
  async create(request: Omit<CreateRequest, 'made_by'>, op_id: string | undefined, caller: Caller): Promise<string> {
    const { tenant, purpose, alg } = request;
    const attempt = { op: 'create' as const, kid: `${tenant}/${purpose}/${alg}/`, op_id };
    const make = (made_by: OpMark | undefined): Promise<KeyRecord> =>
      this.#init.work.create({ ...request, made_by }, caller.deadline.signal);
    return await this.#made(tenant, op_id, { op: 'create', ...request }, caller, attempt, make);
  }

  async rotate(kid: string, op_id: string | undefined, caller: Caller): Promise<string> {
    const attempt = { op: 'rotate' as const, kid, op_id };
    const make = (made_by: OpMark | undefined): Promise<KeyRecord> =>
      this.#init.work.rotate(kid, made_by, caller.deadline.signal);
    return await this.#made(tenantOf(kid), op_id, { op: 'rotate', kid }, caller, attempt, make);
  }

  async import(request: ImportRequest, caller: Caller): Promise<KeyRecord> {
    const kid = `${request.tenant}/raw/${request.alg}/`;
    const work = (signal: AbortSignal): Promise<KeyRecord> =>
      this.#withRoom(request.tenant, () => this.#init.work.import(request, signal));
    return await this.#change('import', kid, caller, work, ofHead);
  }

  async setMinVersion(kid: string, min_version: number, caller: Caller): Promise<KeyRecord> {
    const { lifecycle } = this.#init;
    return await this.#change('policy', kid, caller, (signal) => lifecycle.setMinVersion(kid, min_version, signal));
  }

  async disable(kid: string, caller: Caller): Promise<KeyRecord> {
    return await this.#change('disable', kid, caller, (signal) => this.#init.lifecycle.disable(kid, signal));
  }

  async enable(kid: string, caller: Caller): Promise<KeyRecord> {
    return await this.#change('enable', kid, caller, (signal) => this.#init.lifecycle.enable(kid, signal));
  }

  async delete(kid: string, target: 'key' | 'version', caller: Caller): Promise<Deletion> {
    const { lifecycle } = this.#init;
    return await this.#withdraw('delete', kid, caller, (signal) =>
      target === 'key' ? lifecycle.deleteKey(kid, signal) : lifecycle.deleteVersion(kid, signal),
    );
  }

  async restore(kid: string, target: 'key' | 'version', caller: Caller): Promise<Deletion> {
    const { lifecycle } = this.#init;
    return await this.#withdraw('restore', kid, caller, (signal) =>
      target === 'key' ? lifecycle.restoreKey(kid, signal) : lifecycle.restoreVersion(kid, signal),
    );
  }

  /** Creates a version, once per op_id. Returns its kid. */
  async #made(
    tenant: string,
    op_id: string | undefined,
    request: Readonly<Record<string, unknown>>,
    caller: Caller,
    attempt: Attempt,
    make: (made_by: OpMark | undefined) => Promise<KeyRecord>,
  ): Promise<string> {
    const { ledger, registry, auditor } = this.#init;
    if (op_id === undefined)
      return await this.#make(tenant, caller, attempt, async () => ofHead(await make(undefined)));
    const mark: OpMark = { op_id, request_hash: requestHash(request) };
    let wasTried = false;
    const once = async (): Promise<string> => {
      const kid = registry.madeBy(tenant, mark);
      wasTried = true;
      return await this.#make(tenant, caller, attempt, async () =>
        kid === undefined ? ofHead(await make(mark)) : { kid, record: registry.index.record(kid) },
      );
    };
    try {
      return await ledger.once({ tenant, op_id, request }, once, caller.deadline.signal);
    } catch (error) {
      if (!wasTried) auditor.recordRefusal(caller, attempt, error);
      throw error;
    }
  }

  async #make(tenant: string, caller: Caller, attempt: Attempt, make: () => Promise<Used>): Promise<string> {
    const { enqueue } = this.#init;
    const turn = (work: () => Promise<Used>): Promise<Used> =>
      this.#withRoom(tenant, () => enqueue(tenant, caller.deadline, work));
    return (await this.#record(caller, attempt, turn, make, (used) => used)).kid;
  }

  /** Runs work that stores a version, once there is room for it. */
  async #withRoom<A>(tenant: string, work: () => Promise<A>): Promise<A> {
    const release = this.#init.auditor.reserve('essential', tenant, VERSION_BYTES);
    let written_bytes = 0;
    try {
      const made = await work();
      written_bytes = VERSION_BYTES;
      return made;
    } finally {
      release(written_bytes);
    }
  }

  async #change(
    op: AuditOp,
    kid: string,
    caller: Caller,
    work: (signal: AbortSignal) => Promise<KeyRecord>,
    used: (record: KeyRecord) => Used = ofKey,
  ): Promise<KeyRecord> {
    return await this.#record(caller, { op, kid }, atOnce, () => work(caller.deadline.signal), used);
  }

  async #withdraw(
    op: AuditOp,
    kid: string,
    caller: Caller,
    work: (signal: AbortSignal) => Promise<Deletion>,
  ): Promise<Deletion> {
    return await this.#record(caller, { op, kid }, atOnce, () => work(caller.deadline.signal), ofDeletion);
  }

  /** Records the operation in the audit log and publishes an event. */
  async #record<A>(
    caller: Caller,
    attempt: Attempt,
    turn: (work: () => Promise<A>) => Promise<A>,
    work: () => Promise<A>,
    used: (answer: A) => Used,
  ): Promise<A> {
    const { auditor, requireReady, publish } = this.#init;
    const whenReady = async (ready: () => Promise<A>): Promise<A> => {
      requireReady();
      return await turn(ready);
    };
    const { answer } = await auditor.runRecorded(caller, attempt, whenReady, work, used);
    publish({ kind: 'key', change: attempt.op, kid: used(answer).kid });
    return answer;
  }
}

const atOnce = <A>(work: () => Promise<A>): Promise<A> => work();
const ofDeletion = (deletion: Deletion): Used => ({ kid: deletedName(deletion), record: deletion.record });
const ofKey = (record: KeyRecord): Used => ({ kid: record.name, record });
const ofHead = (record: KeyRecord): Used => ({ kid: headName(record), record });

export function headName(record: KeyRecord): string {
  return formatKid(record.name, headOf(record).version);
}

/** The kid of the deleted version, or the name of the deleted key. */
export function deletedName({ record, version }: Deletion): string {
  return version === undefined ? record.name : formatKid(record.name, version.version);
}
