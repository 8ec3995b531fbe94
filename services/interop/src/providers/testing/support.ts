/** Shared by the tests of providers: a kms in memory, and providers on a directory of the test. */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import { Cell, NEVER, RonError, sched } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import type { InteropEvent } from '../../events.ts';
import { newPolicyMeta } from '../../policy-meta.ts';
import { verifyWebhook, type Verification } from '../../signatures/verify.ts';
import type { SecretWrapper } from '../secrets/kms-secrets.ts';
import { openProviders } from '../open-providers.ts';
import type { Provider, Providers } from '../providers.ts';
import type { WrappedSecret } from '../files/stored-provider.ts';

export const SECRET = 'a webhook secret that is long enough';
export const SECOND = 'the second webhook secret of the test';
export const THIRD = 'a third webhook secret for the test.';
export const KEK = '11'.repeat(32);

/** Seals as kms does: for one provider and version. */
export class FakeKms implements SecretWrapper {
  isAway = false;
  wraps = 0;
  unwraps = 0;
  /** Versions of secrets whose key is deleted. */
  readonly lost = new Set<number>();
  readonly #key = sched.randomBytes(32);

  async wrap(provider: string, version: number, bytes: Uint8Array): Promise<WrappedSecret> {
    this.#requirePresence();
    this.wraps += 1;
    const nonce = sched.randomBytes(12);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    cipher.setAAD(Buffer.from(`${provider}\n${version}`));
    const sealed = Buffer.concat([nonce, cipher.update(bytes), cipher.final(), cipher.getAuthTag()]);
    return { kid: 'interop/webhooks/aes-256-gcm/1#v1', wrapped_b64: sealed.toString('base64') };
  }

  async unwrap(provider: string, version: number, { wrapped_b64 }: WrappedSecret): Promise<Uint8Array> {
    this.#requirePresence();
    if (this.lost.has(version)) throw new RonError('conflict', 'the version of the key is deleted');
    this.unwraps += 1;
    const sealed = Buffer.from(wrapped_b64, 'base64');
    const decipher = createDecipheriv('aes-256-gcm', this.#key, sealed.subarray(0, 12));
    decipher.setAAD(Buffer.from(`${provider}\n${version}`));
    decipher.setAuthTag(sealed.subarray(-16));
    return Buffer.concat([decipher.update(sealed.subarray(12, -16)), decipher.final()]);
  }

  #requirePresence(): void {
    if (this.isAway) throw new RonError('unreachable', 'unix:/kms.sock cannot be reached');
  }
}

export interface OpenInit {
  /** Undefined: amnesia. */
  readonly dir: string | undefined;
  readonly kms?: SecretWrapper;
  /** Default true. */
  readonly caches?: boolean;
  readonly fs?: FileSystem;
  /** `RON_KEK`. Default `KEK`. */
  readonly kek?: string;
}

export interface TestProviders extends AsyncDisposable {
  readonly providers: Providers;
  readonly events: InteropEvent[];
  readonly warnings: string[];
  readonly removed: string[];
}

export async function openTest({
  dir,
  kms,
  caches = true,
  fs = realFileSystem,
  kek = KEK,
}: OpenInit): Promise<TestProviders> {
  const events: InteropEvent[] = [];
  const warnings: string[] = [];
  const removed: string[] = [];
  const providers = await openProviders({
    dir,
    env: { RON_KEK: kek },
    fs,
    kms,
    caches,
    policy: new Cell('policy_meta', 1, newPolicyMeta()),
    routes: new Cell('routing_table', 2, new Map()),
    events: { publish: (event) => void events.push(event) },
    warn: (what) => void warnings.push(what),
    onRemoved: (name) => void removed.push(name),
    signal: NEVER,
  });
  return { providers, events, warnings, removed, [Symbol.asyncDispose]: () => providers.close() };
}

/** Verifies a delivery of github that `secret` signed. */
export async function verifyGithub(provider: Provider | undefined, secret: string): Promise<Verification> {
  const body = Buffer.from('{"zen":"Design for failure."}');
  const signature = `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
  const request = { headerValues: (name: string) => (name === 'x-hub-signature-256' ? [signature] : []), body };
  const { secrets = [] } = provider ?? {};
  return await verifyWebhook(request, {
    scheme: 'github',
    secrets,
    wall_ms: sched.wall_ms(),
    tolerance_ms: 300_000,
    takeTurn: () => Promise.resolve(),
  });
}

export const accepts = async (provider: Provider | undefined, secret: string): Promise<boolean> =>
  (await verifyGithub(provider, secret)).ok;
