/**
 * The data with which a service can check capabilities while kms and passport are down: its audience keys and the last
 * known revocations, in one sealed file. It also stores marks: version numbers by which an outdated copy of other data
 * is detected.
 *
 * Contract: the file is sealed (AES-256-GCM) and readable by its owner only; in memory the document holds no key in the
 * clear.
 * Bound: `RING_KEYS_MAX` keys of an audience, one revocation document.
 * Cancellation: that of the sealed file.
 */
import { SealedFile, type Unlock } from '@ron/custody/sealed';
import type { FileSystem } from '@ron/log';
import type { Service } from '@ron/proto';
import type { KeyCache } from '../keys/derived-keys.ts';
import type { KeySet } from '../keys/key-ring.ts';
import { NO_REVOCATIONS, type RevocationDocument } from '../revocations/revocations.ts';

interface Kept {
  readonly format: 1;
  readonly keys: Readonly<
    Partial<Record<Service, readonly { readonly key_id: string; readonly sealed_b64: string }[]>>
  >;
  readonly revocations: RevocationDocument;
  /** By name. Absent in files of earlier versions. */
  readonly marks?: Readonly<Record<string, number>>;
}

const EMPTY: Kept = { format: 1, keys: {}, revocations: NO_REVOCATIONS };

export class SealedCache implements KeyCache, AsyncDisposable {
  readonly #file: SealedFile<Kept>;

  private constructor(file: SealedFile<Kept>) {
    this.#file = file;
  }

  static async open(init: {
    path: string;
    unlock: Unlock;
    fs?: FileSystem | undefined;
    signal: AbortSignal;
  }): Promise<SealedCache> {
    const { path, unlock, fs, signal } = init;
    const common = { path, unlock, purpose: 'capability-cache', initial: EMPTY, signal };
    return new SealedCache(await SealedFile.open<Kept>({ ...common, ...(fs && { fs }) }));
  }

  get revocations(): RevocationDocument {
    return this.#file.value.revocations;
  }

  load(audience: Service): KeySet | undefined {
    const sealed = this.#file.value.keys[audience];
    if (sealed === undefined || sealed.length === 0) return undefined;
    const keys = sealed.map(({ key_id, sealed_b64 }) => ({
      key_id,
      secret: this.#file.unseal(`${audience}/${key_id}`, Buffer.from(sealed_b64, 'base64')),
    }));
    return { audience, keys };
  }

  /** Writes only changes: rewriting the same file every minute would wear the disk. */
  async save({ audience, keys }: KeySet, signal: AbortSignal): Promise<void> {
    if (audience === 'root' || this.#holds(audience, keys)) return;
    const sealed = keys.map(({ key_id, secret }) => ({
      key_id,
      sealed_b64: Buffer.from(this.#file.seal(`${audience}/${key_id}`, secret)).toString('base64'),
    }));
    await this.#file.update((kept) => ({ ...kept, keys: { ...kept.keys, [audience]: sealed } }), signal);
  }

  async saveRevocations(revocations: RevocationDocument, signal: AbortSignal): Promise<void> {
    await this.#file.update((kept) => ({ ...kept, revocations }), signal);
  }

  mark(name: string): number | undefined {
    return this.#file.value.marks?.[name];
  }

  async saveMark(name: string, value: number, signal: AbortSignal): Promise<void> {
    await this.#file.update((kept) => ({ ...kept, marks: { ...kept.marks, [name]: value } }), signal);
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #holds(audience: Service, keys: KeySet['keys']): boolean {
    const kept = this.load(audience)?.keys ?? [];
    const same =
      kept.length === keys.length &&
      kept.every(
        ({ key_id, secret }, at) => key_id === keys[at]?.key_id && Buffer.compare(secret, keys[at].secret) === 0,
      );
    for (const { secret } of kept) secret.fill(0);
    return same;
  }
}
