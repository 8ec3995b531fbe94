/** A vault on a disk and a store in memory, and operations on it, for tests. */
import { loadConfig } from '@ron/config';
import { MemoryStore, type Change, type StoreImage } from '@ron/custody/store';
import { NEVER, sched } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { schema } from '../config.ts';
import { openVault, type Vault } from './vault.ts';

export const DATA = '/data';
const STORE_BYTES = 1 << 26;

/** The files of the log and the store at one moment. */
export interface Image {
  readonly files: ReadonlyMap<string, Uint8Array>;
  readonly store: StoreImage;
}

/** A state of the store, and the number of disk operations after which it was there. */
interface Written {
  readonly at: number;
  readonly image: StoreImage;
}

/** A store in memory that knows its state at each moment of a disk. */
class TestStore extends MemoryStore {
  readonly #now: () => number;
  readonly written: Written[];

  constructor(image: StoreImage, now: () => number) {
    super(STORE_BYTES, image);
    this.#now = now;
    this.written = [{ at: 0, image }];
  }

  seal = (_context: string, plaintext: Uint8Array): Uint8Array => plaintext.slice();
  unseal = (_context: string, sealed: Uint8Array): Uint8Array => sealed.slice();
  kekFor = (): Uint8Array => new Uint8Array(32);

  protected override async write(changes: readonly Change[]): Promise<void> {
    // Other work may come between the call and the moment at which the changes are on the disk, and again after it.
    await sched.pause('test.store');
    await super.write(changes);
    this.written.push({ at: this.#now(), image: this.image() });
    await sched.pause('test.store');
  }
}

/** A disk and a store that can be copied and cut at any moment. */
export class Machine {
  readonly disk: CrashFileSystem;
  #store: TestStore;

  constructor(image: Image = { files: new Map(), store: new Map() }) {
    this.disk = new CrashFileSystem(image.files);
    this.#store = new TestStore(image.store, () => this.disk.operations);
  }

  async open(): Promise<Vault> {
    const { written } = this.#store;
    this.#store = new TestStore(written.at(-1)!.image, () => this.disk.operations);
    this.#store.written.splice(0, 1, ...written);
    const config = loadConfig({ schema, flags: [`--data_dir=${DATA}`] });
    const init = { config, env: {}, fs: this.disk, store: this.#store, signal: NEVER, warn: () => undefined };
    return await openVault(init);
  }

  get image(): Image {
    return { files: this.disk.files(), store: this.#store.written.at(-1)!.image };
  }

  /** How often the store was written. */
  get writes(): number {
    return this.#store.written.length;
  }

  /** The states that a power cut after so many disk operations may leave. */
  *imagesAt(point: number, images_max: number, random: () => number): Iterable<Image> {
    const stores = this.#store.written.filter(({ at }, index, all) => {
      const next = all[index + 1];
      return at <= point && (next === undefined || next.at >= point);
    });
    for (const files of this.disk.imagesAt(point, images_max, random)) {
      for (const { image } of stores) yield { files, store: image };
    }
  }
}

/** Creates a key in the backend and the registry. Returns its name and its handle. */
export async function makeKey(vault: Vault, number: number): Promise<{ name: string; handle: string }> {
  const name = nameOf(number);
  const { key: handle } = await vault.backend.create('aes-256-gcm', name, NEVER);
  const version = { version: 1, handle, public: [], created_ms: sched.wall_ms() };
  const record = { name, tenant: 'acme', purpose: 'docs', alg: 'aes-256-gcm', verify_mode: 'and' } as const;
  await vault.registry.change(() => ({ ...record, min_version: 1, imported: false, versions: [version] }), NEVER);
  return { name, handle };
}

export const nameOf = (number: number): string =>
  `acme/docs/aes-256-gcm/0b0c3f0e-1f5e-4c57-9c32-${String(number).padStart(12, '0')}`;

export async function log(vault: Vault, count = 1): Promise<void> {
  const entries = Array.from({ length: count }, (_, at) =>
    Buffer.from(`entry ${vault.log!.size + at} of ${vault.origin}`),
  );
  await vault.log!.append(entries, NEVER);
}

export async function sign(vault: Vault): Promise<void> {
  await vault.log!.writeCheckpoint(NEVER, vault.recorder);
}

export async function doOnce(vault: Vault, op_id: string, answer: string): Promise<string> {
  return await vault.ledger.once({ tenant: 'acme', op_id, request: op_id }, async () => answer, NEVER);
}

/** Uses every part of the vault, up to a published checkpoint. */
export async function use(vault: Vault, number: number): Promise<void> {
  await log(vault, 3);
  await sign(vault);
  const { handle } = await makeKey(vault, number);
  await vault.backend.wrap(handle, new Uint8Array(16), new Uint8Array(0), NEVER);
  await doOnce(vault, `op ${number}`, `op ${number}`);
  await log(vault, 2);
  await sign(vault);
}
