/**
 * Signing as it is asked for: one payload with one key or several, or a batch; once for each op_id; with an entry in the
 * audit log for every signature, and on request with a proof that the entry is there.
 *
 * Promise: nothing is signed while the vault is not sound or the backend is away. All keys of a request are of one
 * tenant. Bound: `ITEMS_MAX` items, `KID_SET_MAX` keys of one. Overflow: `busy`, by the queue. Cancellation: the deadline.
 */
import { RonError, type BatchQueue, type Piece } from '@ron/kernel';
import { inputOf } from '../audit/event.ts';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { toBase64 } from '../base64.ts';
import { tenantOf } from '../keys/kid.ts';
import type { OpLedger } from '../ops/op-ledger.ts';
import type { Payload } from './message.ts';
import type { Signed, Signer, SignRound } from './signer.ts';

export const ITEMS_MAX = 128;
export const KID_SET_MAX = 8;
/** Work of one piece of a batch. */
const PIECE_US = 1000;

export interface SignItem extends Payload {
  /** Each signs the same payload with its own name. At least one. */
  readonly kids: readonly string[];
  readonly op_id?: string | undefined;
}

export interface SignedItem {
  readonly kid: string;
  readonly sigs: readonly { readonly kid: string; readonly alg: string; readonly signature_b64: string }[];
  /** The entry of the first signature; those of the others follow. Left out when the log did not keep up. */
  readonly log_index?: number;
}

export interface SigningServiceInit {
  readonly queue: Pick<BatchQueue<SignRound>, 'pieces_max' | 'submit' | 'submitAll'>;
  readonly signer: Signer;
  readonly ledger: Pick<OpLedger, 'once'>;
  readonly auditor: Auditor;
  /** Throws while nothing may be signed. */
  readonly requireReady: () => void;
}

export class SigningService {
  readonly #init: SigningServiceInit;

  constructor(init: SigningServiceInit) {
    this.#init = init;
  }

  async sign(items: readonly SignItem[], caller: Caller): Promise<SignedItem[]> {
    const tenant = oneTenant(items);
    const [only] = items;
    if (items.length === 1) return [await this.#once(tenant, only!, caller)];
    const plain = items.filter((item) => item.op_id === undefined);
    // Those without an id go together; the others each by itself, because one may be answered from the ledger.
    const [together, ...alone] = await Promise.all([
      plain.length === 0 ? [] : this.#signAll(tenant, plain, caller),
      ...items.map((item) => (item.op_id === undefined ? undefined : this.#once(tenant, item, caller))),
    ]);
    const rest = together.values();
    return alone.map((signed) => signed ?? rest.next().value!);
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
    let wasTried = false;
    const work = (): Promise<SignedItem> => {
      wasTried = true;
      return this.#signOne(tenant, item, caller);
    };
    try {
      return await this.#init.ledger.once({ tenant, op_id, request }, work, caller.deadline.signal);
    } catch (error) {
      if (!wasTried) for (const attempt of attemptsOf(item)) this.#init.auditor.recordRefusal(caller, attempt, error);
      throw error;
    }
  }

  async #signOne(tenant: string, item: SignItem, caller: Caller): Promise<SignedItem> {
    const signed = await this.#audited([item], caller, (tried) =>
      this.#init.queue.submit(tenant, this.#cost_us(item), caller.deadline, (round) => {
        tried();
        return this.#signItem(item, round);
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

  /** Items that are signed in one go: few enough that other requests do not wait long for them. */
  #pieces(items: readonly SignItem[], tried: () => void): Piece<SignRound, Signed[][]>[] {
    const costs = items.map((item) => this.#cost_us(item));
    const sum_us = costs.reduce((sum, cost_us) => sum + cost_us, 0);
    const piece_us = Math.max(PIECE_US, sum_us / this.#init.queue.pieces_max);
    const pieces: Piece<SignRound, Signed[][]>[] = [];
    for (let from = 0; from < items.length;) {
      let cost_us = costs[from]!;
      let to = from + 1;
      while (to < items.length && cost_us < piece_us) cost_us += costs[to++]!;
      const part = items.slice(from, to);
      const work = (round: SignRound): Promise<Signed[][]> => {
        tried();
        return Promise.all(part.map((item) => this.#signItem(item, round)));
      };
      pieces.push({ cost_us, work });
      from = to;
    }
    return pieces;
  }

  /** Throws when one of its keys does not sign: what is for no key takes no place in the queue. */
  #cost_us({ kids, message }: SignItem): number {
    const { signer } = this.#init;
    return kids.reduce((sum, kid) => sum + signer.cost_us(kid, message?.length ?? 0), 0);
  }

  /** When it is refused or fails, each signature that was asked for is told as such. `work` says when it is tried. */
  async #audited<A>(items: readonly SignItem[], caller: Caller, work: (tried: () => void) => Promise<A>): Promise<A> {
    const { auditor, requireReady } = this.#init;
    auditor.begin(items.reduce((sum, { kids }) => sum + kids.length, 0));
    let wasTried = false;
    try {
      requireReady();
      return await work(() => (wasTried = true));
    } catch (error) {
      for (const attempt of items.flatMap(attemptsOf)) auditor.recordFailure(caller, attempt, error, wasTried);
      throw error;
    }
  }

  async #signItem({ kids, payload_b3, message }: SignItem, round: SignRound): Promise<Signed[]> {
    const { signer } = this.#init;
    if (kids.length === 1) return [await signer.sign({ kid: kids[0]!, payload_b3, message }, round)];
    return await Promise.all(kids.map((kid) => signer.sign({ kid, payload_b3, message }, round)));
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

/** The signatures that an item asks for, as the log tells of them. */
export function attemptsOf(item: SignItem): Attempt[] {
  const input = inputOf(item);
  return item.kids.map((kid) => ({ op: 'sign', kid, op_id: item.op_id, ...input }));
}

function oneTenant(items: readonly SignItem[]): string {
  const tenant = tenantOf(items[0]!.kids[0]!);
  if (items.every(({ kids }) => kids.every((kid) => tenantOf(kid) === tenant))) return tenant;
  throw new RonError('validation', 'all keys of a request are of one tenant');
}
