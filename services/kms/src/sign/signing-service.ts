/**
 * Signing as clients request it: one payload with one key or several, or a batch; idempotent by op_id; with an audit entry
 * per signature.
 *
 * Contract: nothing is signed while the vault is not sound or the backend is unavailable. All keys of a request belong to
 * one tenant. An answer that is stored for its op_id uses the tenant's share of the disk and never the reserve of the log.
 * Bound: `ITEMS_MAX` items, `KID_SET_MAX` keys each. Overflow: `busy`, by the queue. Cancellation: the deadline.
 */
import { RonError, type BatchQueue, type Piece } from '@ron/kernel';
import { inputOf } from '../audit/event.ts';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { toBase64 } from '../base64.ts';
import { tenantOf } from '../keys/kid.ts';
import type { OpLedger } from '../ops/op-ledger.ts';
import type { Payload } from './message.ts';
import type { Signed, Signer, SignBatch } from './signer.ts';

export const ITEMS_MAX = 128;
export const KID_SET_MAX = 8;
/** The amount of work per piece of a batch. */
const PIECE_US = 1000;
/** The room that the signatures of one key need in a stored answer. */
const SIGNED_BYTES = 8 * 1024;

export interface SignItem extends Payload {
  /** Each key signs the same payload under its own kid. At least one. */
  readonly kids: readonly string[];
  readonly op_id?: string | undefined;
}

export interface SignedItem {
  readonly kid: string;
  readonly sigs: readonly { readonly kid: string; readonly alg: string; readonly signature_b64: string }[];
  /** The log index of the first signature's entry; those of the others follow. Omitted if the log has fallen behind. */
  readonly log_index?: number;
}

export interface SigningServiceInit {
  readonly queue: Pick<BatchQueue<SignBatch>, 'pieces_max' | 'submit' | 'submitAll'>;
  readonly signer: Signer;
  readonly ledger: Pick<OpLedger, 'once'>;
  readonly auditor: Auditor;
  /** Throws while signing is not allowed. */
  readonly requireReady: () => void;
}

export class SigningService {
  readonly #init: SigningServiceInit;

  constructor(init: SigningServiceInit) {
    this.#init = init;
  }

  async sign(items: readonly SignItem[], caller: Caller): Promise<SignedItem[]> {
    const tenant = this.#oneTenant(items, caller);
    const [only] = items;
    if (items.length === 1) return [await this.#once(tenant, only!, caller)];
    const plain = items.filter((item) => item.op_id === undefined);
    // Items without an id share a submission; the others are separate, because the ledger may answer them.
    const [together, ...alone] = await Promise.all([
      plain.length === 0 ? [] : this.#signAll(tenant, plain, caller),
      ...items.map((item) => (item.op_id === undefined ? undefined : this.#once(tenant, item, caller))),
    ]);
    const rest = together.values();
    return alone.map((signed) => signed ?? rest.next().value!);
  }

  #oneTenant(items: readonly SignItem[], caller: Caller): string {
    const tenant = tenantOf(items[0]!.kids[0]!);
    if (items.every(({ kids }) => kids.every((kid) => tenantOf(kid) === tenant))) return tenant;
    const error = new RonError('validation', 'all keys of a request must belong to one tenant');
    for (const attempt of items.flatMap(attemptsOf)) this.#init.auditor.recordRefusal(caller, attempt, error);
    throw error;
  }

  async #once(tenant: string, item: SignItem, caller: Caller): Promise<SignedItem> {
    const { op_id, kids, payload_b3, message } = item;
    if (op_id === undefined) return await this.#signOne(tenant, item, caller);
    const request = {
      op: 'sign',
      kids,
      payload_b3,
      message_b64: message === undefined ? undefined : toBase64(message),
    };
    const reserve = (): ((stored_bytes: number) => void) =>
      this.#init.auditor.reserve('ordinary', tenant, kids.length * SIGNED_BYTES);
    let wasTried = false;
    const work = (): Promise<SignedItem> => {
      wasTried = true;
      return this.#signOne(tenant, item, caller);
    };
    try {
      return await this.#init.ledger.once({ tenant, op_id, request, reserve }, work, caller.deadline.signal);
    } catch (error) {
      if (!wasTried) for (const attempt of attemptsOf(item)) this.#init.auditor.recordRefusal(caller, attempt, error);
      throw error;
    }
  }

  async #signOne(tenant: string, item: SignItem, caller: Caller): Promise<SignedItem> {
    const signed = await this.#audited([item], caller, (tried) =>
      this.#init.queue.submit(tenant, this.#cost_us(item), caller.deadline, (batch) => {
        tried();
        return this.#signItem(item, batch);
      }),
    );
    return await this.#enter(item, signed, caller);
  }

  async #signAll(tenant: string, items: readonly SignItem[], caller: Caller): Promise<SignedItem[]> {
    const signed = await this.#audited(items, caller, (tried) =>
      this.#init.queue.submitAll(tenant, this.#pieces(items, tried), caller.deadline),
    );
    return await Promise.all(signed.flat().map((each, at) => this.#enter(items[at]!, each, caller)));
  }

  /** Splits the items into pieces that are small enough not to delay other requests. */
  #pieces(items: readonly SignItem[], tried: () => void): Piece<SignBatch, Signed[][]>[] {
    const costs = items.map((item) => this.#cost_us(item));
    const sum_us = costs.reduce((sum, cost_us) => sum + cost_us, 0);
    const piece_us = Math.max(PIECE_US, sum_us / this.#init.queue.pieces_max);
    const pieces: Piece<SignBatch, Signed[][]>[] = [];
    for (let from = 0; from < items.length;) {
      let cost_us = costs[from]!;
      let to = from + 1;
      while (to < items.length && cost_us < piece_us) cost_us += costs[to++]!;
      const part = items.slice(from, to);
      const work = (batch: SignBatch): Promise<Signed[][]> => {
        tried();
        return Promise.all(part.map((item) => this.#signItem(item, batch)));
      };
      pieces.push({ cost_us, work });
      from = to;
    }
    return pieces;
  }

  /** Throws if one of the keys cannot sign: requests for unknown keys take no slot in the queue. */
  #cost_us({ kids, message }: SignItem): number {
    const { signer } = this.#init;
    return kids.reduce((sum, kid) => sum + signer.cost_us(kid, message?.length ?? 0), 0);
  }

  /** If the work is refused or fails, records each requested signature. `work` calls `tried` when it begins. */
  async #audited<A>(items: readonly SignItem[], caller: Caller, work: (tried: () => void) => Promise<A>): Promise<A> {
    const { auditor, requireReady } = this.#init;
    const entries = items.reduce((sum, { kids }) => sum + kids.length, 0);
    auditor.begin(caller, { op: 'sign', kid: items[0]!.kids[0]! }, entries);
    let wasTried = false;
    try {
      requireReady();
      return await work(() => (wasTried = true));
    } catch (error) {
      for (const attempt of items.flatMap(attemptsOf)) auditor.recordFailure(caller, attempt, error, wasTried);
      throw error;
    }
  }

  async #signItem({ kids, payload_b3, message }: SignItem, batch: SignBatch): Promise<Signed[]> {
    const { signer } = this.#init;
    if (kids.length === 1) return [await signer.sign({ kid: kids[0]!, payload_b3, message }, batch)];
    return await Promise.all(kids.map((kid) => signer.sign({ kid, payload_b3, message }, batch)));
  }

  async #enter(item: SignItem, signed: readonly Signed[], caller: Caller): Promise<SignedItem> {
    const input = inputOf(item);
    const places = signed.map(({ kid, found }) =>
      this.#init.auditor.recordSuccess(
        caller,
        { op: 'sign', kid, op_id: item.op_id, ...input },
        { kid, record: found.record },
      ),
    );
    const log_index = places.length === 1 ? await places[0] : (await Promise.all(places))[0];
    const sigs = signed.flatMap(({ kid, signatures }) =>
      signatures.map(({ alg, signature }) => ({ kid, alg, signature_b64: toBase64(signature) })),
    );
    const answer = { kid: signed[0]!.kid, sigs };
    return log_index === undefined ? answer : { ...answer, log_index };
  }
}

/** The audit attempts of an item, one per signature. */
export function attemptsOf(item: SignItem): Attempt[] {
  const input = inputOf(item);
  return item.kids.map((kid) => ({ op: 'sign', kid, op_id: item.op_id, ...input }));
}
