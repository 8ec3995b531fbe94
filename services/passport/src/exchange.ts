/**
 * Exchanges the capability of a client of interop for one of storage, so that interop never forwards the client's own.
 *
 * Contract: the client's capability is checked as interop checks it: chain of signatures, keys, expiry, `sent`, revocation of
 * itself and of its issuers, scopes, address. Networks (`ip`) and `rate` are not checked: interop has enforced them for the
 * request, which passport did not see. The result permits nothing at storage that the client's capability does not permit at
 * interop: one scope, the client's subject and epoch, the ids of the client's capability and its issuers (a revocation of any of
 * them acts), at most `EXCHANGED_MS` and no longer than every `expires` and `sent` of the client, the given address or at most
 * `bytes_max`, and every other caveat of the client.
 * Bound: `CAPABILITY_LIMITS`; a capability without room for the restrictions is refused.
 * Cancellation: by the signal, while a key is fetched from kms.
 */
import {
  CAPABILITY_LIMITS,
  Checker,
  inspectToken,
  mint,
  parseCaveat,
  type Capability,
  type Caveat,
  type KeySource,
  type RevocationEpochs,
} from '@ron/auth';
import { isRonError } from '@ron/kernel';
import type { AccessRefusal, ExchangedScope, ExchangeInit, ExchangeRefusal, ExchangeVerdict, Scope } from '@ron/proto';

/** The lifetime of an exchanged capability. */
export const EXCHANGED_MS = 60_000;

/** The complete list of exchanges. */
const SCOPE_OF: Readonly<Record<ExchangedScope, Scope>> = {
  'interop:put': 'storage:put',
  'interop:get': 'storage:get',
};

/** Never seen by a caveat: `ip` is settled. */
const NO_SOURCE = 'unknown';

/**
 * The treatment of each caveat. `carried`: storage enforces it again. `lifetime`: the result does not outlive it. `replaced`: the
 * result has its own, and the client's was checked. `settled`: interop has enforced it, and storage could not: it sees the
 * address of interop, and each result would begin to count its rate anew.
 */
const RULES: Readonly<Record<Caveat['key'], 'carried' | 'lifetime' | 'replaced' | 'settled'>> = {
  audience: 'replaced',
  scopes: 'replaced',
  expires: 'lifetime',
  sent: 'lifetime',
  address: 'carried',
  name: 'carried',
  label: 'carried',
  tenant: 'carried',
  bytes: 'carried',
  // Interop sends the decoded body that the caveat is about, so it holds for the same bytes.
  body: 'carried',
  ip: 'settled',
  rate: 'settled',
};

export class Exchange {
  readonly #keys: KeySource;
  readonly #checker: Checker;

  constructor(keys: KeySource, epochs: RevocationEpochs) {
    this.#keys = keys;
    this.#checker = new Checker({ audience: 'interop', keys, epochs, settled: ['ip', 'rate'] });
  }

  async exchange(request: ExchangeInit, signal: AbortSignal): Promise<ExchangeVerdict> {
    const { token, scope } = request;
    const address = 'address' in request ? request.address : undefined;
    const verdict = await this.#checker.checkHeaders(
      {
        authorization: `Bearer ${token}`,
        scope,
        source_ip: NO_SOURCE,
        facts: { address },
        // Storage compares the caveats about facts that passport does not know: they are carried.
        facts_later: address === undefined ? ['address', 'name', 'label', 'tenant'] : ['name', 'label', 'tenant'],
        // The address of an object is the BLAKE3 hash of the body that stores it.
        body_hash: scope === 'interop:put' ? address : undefined,
      },
      signal,
    );
    if (!verdict.ok) return refusal(verdict);
    return await this.#mint(inspectToken(token), request, signal);
  }

  async #mint(client: Capability, request: ExchangeInit, signal: AbortSignal): Promise<ExchangeVerdict> {
    const { capability_id, subject, epoch, expires_ms } = client;
    const chain = [capability_id, ...client.chain];
    if (chain.length > CAPABILITY_LIMITS.chain_max) {
      return forbidden(
        `it was issued over ${client.chain.length} steps; the limit is ${CAPABILITY_LIMITS.chain_max - 1}`,
      );
    }
    const caveats = exchangedCaveats(client.texts, request);
    try {
      const minted = await mint(
        this.#keys,
        {
          audience: 'storage',
          scopes: [SCOPE_OF[request.scope]],
          ttl_ms: EXCHANGED_MS,
          expires_ms_max: expires_ms,
          subject,
          // Not the present time: a revocation of the subject since the issue must act on the result.
          epoch,
          chain,
          caveats,
        },
        signal,
      );
      return { ok: true, ...minted, subject };
    } catch (error) {
      if (isRonError(error, 'validation')) return forbidden('it has no room for further restrictions');
      throw error;
    }
  }
}

/** The caveats of the result, besides audience, expiry and scope. */
function exchangedCaveats(texts: readonly string[], request: ExchangeInit): readonly string[] {
  const own = 'address' in request ? `address ^= ${request.address}` : `bytes <= ${request.bytes_max}`;
  const carried = texts.filter((text) => {
    const caveat = parseCaveat(text);
    // The capability was verified, so all its caveats parse. An unknown one would make the result unusable.
    return !caveat.ok || RULES[caveat.value.key] === 'carried';
  });
  return [...new Set([own, ...carried])];
}

function refusal({ code, cause, reason }: AccessRefusal): ExchangeRefusal {
  return {
    ok: false,
    code: code === 'unauthorized' ? 'unauthorized' : 'forbidden',
    reason,
    ...(cause !== undefined && { cause }),
  };
}

const forbidden = (why: string): ExchangeRefusal => ({
  ok: false,
  code: 'forbidden',
  reason: `capability cannot be exchanged: ${why}`,
});
