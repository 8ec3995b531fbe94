/**
 * Calls to kms with the capability of interop, for secrets and receipts.
 *
 *     const kid = await kms.findKey({ purpose: 'receipts', alg: 'hybrid' }, signal);
 *     await kms.run('sign', signal, (client, within) => client.sign(request, { signal: within }));
 *
 * Contract: the capability is read before each call, because it is renewed in its file, and narrowed to the call; only a private
 * connection receives it. A key is found in kms, or created at the first use, once even if two starts need it at a time. A key that
 * was disabled or deleted is replaced by a new one.
 * Bound: the deadline `kms` for each call. Cancellation: by the signal of each call.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { narrowed } from '@ron/auth/narrowed';
import { KmsClient, type AuthorizedRequest } from '@ron/client';
import { reachPrivately, type Reach } from '@ron/client/node';
import { POLICIES } from '@ron/kernel';
import { readSecretFile } from '@ron/log';
import { splitKid } from '@ron/proto';
import type { ServiceRuntime } from '@ron/service';
import type { concurrency } from '../concurrency.ts';
import type { InteropConfig } from '../config.ts';
import type { Upstream } from './upstream.ts';

const TENANT = 'interop';

/** Runs one call to kms within the deadline `kms`. */
export type KmsCall = <T>(op: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>) => Promise<T>;

export interface KmsAccessInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  readonly pin: string | undefined;
  readonly capability_file: string;
  /** For a new connection. */
  readonly connect_ms: number;
  readonly call: KmsCall;
}

export interface KmsKey {
  readonly purpose: string;
  readonly alg: string;
}

export class KmsAccess {
  readonly #init: KmsAccessInit;
  readonly #reach: Reach;

  constructor(init: KmsAccessInit) {
    this.#init = init;
    this.#reach = reachPrivately(init.url, init.pin);
  }

  run<T>(op: string, signal: AbortSignal, work: (kms: KmsClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { call, capability_file, connect_ms } = this.#init;
    return call(op, signal, async (within) => {
      const token = await readSecretFile(capability_file);
      const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
      return await work(new KmsClient({ ...this.#reach, authorize, connect_ms, policy: POLICIES.once }), within);
    });
  }

  /** The kid of the key, with its version. */
  findKey({ purpose, alg }: KmsKey, signal: AbortSignal): Promise<string> {
    return this.run('find_key', signal, async (kms, within) => {
      const prefix = `${TENANT}/${purpose}/${alg}/`;
      const unusable: string[] = [];
      for await (const { kid, state } of kms.keys({ tenant: TENANT, prefix, signal: within })) {
        if (state === 'enabled') return kid;
        unusable.push(splitKid(kid)!.name);
      }
      const op_id = opIdOf(purpose, unusable);
      return (await kms.createKey({ tenant: TENANT, purpose, alg, op_id }, { signal: within })).kid;
    });
  }
}

/** Kms answers a known id with the key that it made then, so the id of a replacement is made from the keys that it replaces. */
function opIdOf(purpose: string, unusable: readonly string[]): string {
  if (unusable.length === 0) return `interop-${purpose}`;
  return `interop-${purpose}-${blake3(Buffer.from(unusable.toSorted().join('\n'))).toString('hex')}`;
}

export interface OpenKmsInit {
  readonly config: Pick<InteropConfig, 'interop' | 'auth'>;
  readonly runtime: ServiceRuntime<typeof concurrency>;
}

/** Undefined without kms. */
export function openKmsAccess(
  { config, runtime }: OpenKmsInit,
  upstream: Pick<Upstream, 'call'>,
  connect_ms: number,
): KmsAccess | undefined {
  const { kms_url: url, kms_pin: pin } = config.auth;
  const { kms_capability_file: capability_file } = config.interop;
  if (url === undefined || capability_file === undefined) return undefined;
  const call: KmsCall = async (op, signal, work) => {
    // [interop I-4]
    using deadline = runtime.deadline('kms', { signal });
    return await upstream.call(op, deadline, work);
  };
  return new KmsAccess({ url, pin, capability_file, connect_ms, call });
}
