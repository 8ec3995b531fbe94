/**
 * Uploads that can be interrupted and resumed, even after a restart: the durable state behind tus.
 *
 * Contract: an acknowledged offset is durable: the client need not send those bytes again. After the last byte the upload
 * becomes an object and reports its address until it expires. A request that resumes an upload takes it over from an earlier
 * one: that one ends with `conflict`, and the bytes that it received count. An upload whose journal or chunks may be on absent
 * volumes answers `not_ready`: it is not reset, expired or quarantined until every volume has answered completely. Journals
 * on volumes that join later are loaded before the next answer.
 * Bound: `uploads_max` unfinished and `finished_max` finished uploads; the memory of each as in Upload, and of an active one
 * as in ObjectWriter. Overflow: `busy` for a new upload; the least recently used finished one is forgotten.
 * Cancellation: a body that ends early, by an error or by the signal, keeps the received bytes.
 */
import { join } from 'node:path';
import { KeyedMutex, NEVER, RonError, sched } from '@ron/kernel';
import { realFileSystem, rethrowDisk, type FileSystem } from '@ron/log';
import type { Address } from '@ron/proto';
import { notComplete } from '../compaction/completeness.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { ObjectWriter } from '../objects/object-writer.ts';
import { NO_JOURNALS, scrubJournals, type JournalScrub } from './journal-scrub.ts';
import { KnownUploads } from './known-uploads.ts';
import { MirroredJournal, type JournalPlaces } from './mirrored-journal.ts';
import { untilAborted } from './until-aborted.ts';
import { NO_JOURNAL } from './upload-journal.ts';
import { Upload, type UploadStatus, type UploadTerms } from './upload.ts';
import type { DamagedRecord } from '../volume/volume.ts';

const KIB = 1024;
const METADATA_BYTES_MAX = 8 * KIB;
/** While a body arrives, the received bytes are made durable at this interval. */
const CHECKPOINT_BYTES = 16 * KIB * KIB;
/** Uploads with an active request, and requests that wait for one upload. Further requests are refused with `busy`. */
const KEYS_MAX = 8192;
const WAITERS_MAX = 64;

export interface UploadsInit {
  store: ObjectStore;
  /** The journals are in its subdirectory `uploads/`. Undefined for amnesia: journals are kept in memory. */
  dir?: string | undefined;
  fs?: FileSystem | undefined;
  /** Instead of `dir`: several directories; each journal is in some of them. */
  places?: JournalPlaces | undefined;
  /** An upload expires this long after its last append. Default 24 hours. */
  expiry_ms?: number;
  /** Unfinished uploads. Default 256; each takes up to 0.7 MiB of memory. */
  uploads_max?: number;
  /** Finished uploads that still report their address. Default 4096. */
  finished_max?: number;
  /** Called for each damaged journal. Must not throw. */
  onDamage?: (record: DamagedRecord) => void;
}

export interface CreateInit {
  /** Undefined while the client does not know it. */
  size?: number | undefined;
  /** The metadata of the client, returned unchanged. At most 8 KiB. */
  metadata?: string | undefined;
  media_type?: string | undefined;
  /** The address that the client states; other bytes are refused at the end. */
  expected?: Address | undefined;
}

export interface AppendInit {
  id: string;
  /** The offset of the upload, as the client knows it. */
  offset: number;
  /** Declares the size if it was unknown. */
  size?: number | undefined;
  body: AsyncIterable<Uint8Array>;
  /** As for a writer: called with the address before the object becomes visible. Throws to refuse the object. */
  onAddress?: ((address: Address) => void) | undefined;
  signal: AbortSignal;
}

export class Uploads implements AsyncDisposable {
  readonly #init: UploadsInit;
  /** Undefined when journals are kept in memory. */
  readonly #places: JournalPlaces | undefined;
  readonly #expiry_ms: number;
  readonly #known: KnownUploads;
  /** One request at a time per upload; a newer one takes over. */
  readonly #mutex = new KeyedMutex('uploads', { keys_max: KEYS_MAX, waiters_max: WAITERS_MAX, preempt: true });

  private constructor(init: UploadsInit) {
    this.#init = init;
    this.#places = init.places ?? placeIn(init.dir, init.fs);
    this.#expiry_ms = init.expiry_ms ?? 24 * 60 * 60 * 1000;
    this.#known = new KnownUploads({
      store: init.store,
      places: this.#places,
      expiry_ms: this.#expiry_ms,
      isTaken: (id) => this.#mutex.isHeld(id),
      onDamage: init.onDamage,
    });
  }

  /** Loads the uploads of an earlier process and leases their chunks. Call it before the first compaction. */
  static async open(init: UploadsInit): Promise<Uploads> {
    const uploads = new Uploads(init);
    await uploads.#known.load();
    return uploads;
  }

  /** The numbers of unfinished and finished uploads. */
  get counts(): { open: number; finished: number } {
    return { open: this.#known.open.size, finished: this.#known.finished.size };
  }

  /** Creates an upload that survives a restart. An upload of no bytes is finished at once. */
  async create(init: CreateInit): Promise<UploadStatus> {
    this.#requireOpen();
    const terms = this.#termsOf(init);
    if (this.#known.open.size >= this.#uploads_max) await this.expire();
    if (this.#known.open.size >= this.#uploads_max) {
      throw new RonError('busy', `${this.#known.open.size} uploads are in progress`, { retry_after_ms: 10_000 });
    }
    const journal = this.#places === undefined ? NO_JOURNAL : new MirroredJournal(this.#places, terms.id);
    const upload = new Upload({ terms, journal, leases: this.#init.store.leases, expiry_ms: this.#expiry_ms });
    this.#known.add(upload);
    try {
      await upload.begin();
    } catch (error) {
      this.#known.delete(terms.id);
      return rethrowDisk(error);
    }
    return upload.size === 0 ? await this.settle(terms.id, NEVER) : upload.status;
  }

  /** The known state of an upload; undefined when it is unknown. */
  status(id: string): UploadStatus | undefined {
    return this.#find(id)?.status;
  }

  /** As `status`, for clients: undefined only if the upload certainly does not exist. Throws `not_ready` while absent volumes may have it. */
  async find(id: string, signal: AbortSignal): Promise<UploadStatus | undefined> {
    await this.#known.refresh();
    const upload = this.#find(id);
    if (upload === undefined) {
      const doubt = this.#known.doubt();
      if (doubt !== undefined)
        throw notComplete(`the upload was not found, but an absent volume may have its journal: ${doubt}`);
      return undefined;
    }
    if (!this.#mutex.isHeld(id)) await this.#known.requireReadable(upload, signal);
    return upload.status;
  }

  /**
   * For a client that wants to resume: ends a request that still appends to the upload, keeps its received bytes, and
   * finishes an upload that is complete.
   */
  async settle(id: string, signal: AbortSignal): Promise<UploadStatus> {
    return await this.#inTurn(id, signal, async (upload) => {
      if (isComplete(upload)) await this.#finish(upload, this.#writerOf(upload), undefined);
      return upload.status;
    });
  }

  /** Appends a body to an upload. After the last one, the status has the address. */
  async append(init: AppendInit): Promise<UploadStatus> {
    return await this.#inTurn(init.id, init.signal, async (upload, signal) => {
      if (upload.address !== undefined) throw new RonError('conflict', 'the upload is finished');
      if (init.offset !== upload.offset) {
        throw new RonError('conflict', `the upload is at byte ${upload.offset}`, {
          details: { offset: upload.offset },
        });
      }
      if (init.size !== undefined) await upload.declareSize(this.#requireSize(init.size)).catch(rethrowDisk);
      const writer = this.#writerOf(upload);
      try {
        await this.#receive(upload, writer, init.body, signal);
        if (isComplete(upload)) await this.#finish(upload, writer, init.onAddress);
      } finally {
        writer.abort();
      }
      return upload.status;
    });
  }

  /** Removes an upload and ends a request that appends to it. An object that it became stays. */
  async terminate(id: string, signal: AbortSignal): Promise<void> {
    await this.#inTurn(id, signal, (upload) => this.#forget(upload));
  }

  /**
   * Removes every expired upload without an active request and returns their number: 0 while a volume is absent. Throws
   * `not_ready` when journals cannot be read, since the chunks that uploads need are unknown then.
   */
  async expire(): Promise<number> {
    await this.#known.refresh();
    if (this.#known.unread.length > 0)
      throw notComplete(`journals of uploads cannot be read: ${this.#known.unread.join('; ')}`);
    let expired = 0;
    for (const upload of [...this.#known.open.values(), ...this.#known.finished.values()]) {
      if (!this.#known.isOver(upload) || this.#mutex.isHeld(upload.terms.id)) continue;
      // The next call tries again to remove this journal.
      await this.#forget(upload).then(
        () => (expired += 1),
        () => undefined,
      );
    }
    return expired;
  }

  /** Checks every frame of the journals in a directory. A damaged copy is rewritten from the known state. */
  async scrubJournals(dir: string, signal: AbortSignal): Promise<JournalScrub> {
    const place = this.#places?.all().find((each) => each.dir === dir);
    if (place === undefined) return NO_JOURNALS;
    return await scrubJournals({
      place,
      uploadOf: (id) => this.#known.getCertain(id),
      isTaken: (id) => this.#mutex.isHeld(id),
      rewrite: (upload) => this.#mutex.run(upload.terms.id, signal, () => upload.rewriteJournal()),
      onDamage: (id) => this.#init.onDamage?.({ volume: dir, id_hex: id, what: 'a copy of the journal of an upload' }),
      signal,
    });
  }

  /** Ends active requests and keeps their received bytes. Releases the leases; the journals stay. */
  async close(): Promise<void> {
    await this.#mutex.close(new RonError('draining', 'uploads are closed'));
    for (const upload of this.#known.open.values()) upload.release();
    this.#known.open.clear();
    this.#known.finished.clear();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #uploads_max(): number {
    return this.#init.uploads_max ?? 256;
  }

  #termsOf(init: CreateInit): UploadTerms {
    const { size, media_type, expected } = init;
    const metadata = init.metadata ?? '';
    if (Buffer.byteLength(metadata) > METADATA_BYTES_MAX) {
      throw new RonError('payload_too_large', `the metadata of an upload has at most ${METADATA_BYTES_MAX} bytes`);
    }
    return {
      id: Buffer.from(sched.randomBytes(16)).toString('hex'),
      chunk_bytes: this.#init.store.chunk_bytes,
      created_ms: sched.wall_ms(),
      metadata,
      ...(size !== undefined && { size: this.#requireSize(size) }),
      ...(media_type !== undefined && { media_type }),
      ...(expected !== undefined && { expected }),
    };
  }

  #requireSize(size: number): number {
    const { object_bytes_max } = this.#init.store;
    if (!Number.isSafeInteger(size) || size < 0) throw new RonError('bad_request', `${size} is not a number of bytes`);
    if (size <= object_bytes_max) return size;
    throw new RonError('payload_too_large', `an object has at most ${object_bytes_max} bytes`);
  }

  #requireOpen(): void {
    if (this.#mutex.isClosed) throw new RonError('draining', 'uploads are closed');
  }

  #find(id: string): Upload | undefined {
    const upload = this.#known.get(id);
    // A request that appends to it keeps it alive.
    return upload !== undefined && (this.#mutex.isHeld(id) || !this.#known.isOver(upload)) ? upload : undefined;
  }

  #writerOf(upload: Upload): ObjectWriter {
    return this.#init.store.writer(upload.writerState);
  }

  /** Runs `work` exclusively; cancels an active request for the same upload first. */
  async #inTurn<T>(
    id: string,
    signal: AbortSignal,
    work: (upload: Upload, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    return await this.#mutex.run(id, signal, async (mine) => {
      const upload = this.#known.get(id);
      if (upload === undefined || this.#known.isOver(upload)) throw new RonError('not_found', 'upload not found');
      await this.#known.requireReadable(upload, mine);
      return await work(upload, mine);
    });
  }

  /** Writes the body. All received bytes are acknowledged, however the body ends. */
  async #receive(
    upload: Upload,
    writer: ObjectWriter,
    body: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    try {
      for await (const bytes of untilAborted(body, signal)) {
        this.#requireFits(upload, writer.size + bytes.length);
        await writer.write(bytes, NEVER);
        if (writer.size - upload.offset >= CHECKPOINT_BYTES) await this.#acknowledge(upload, writer);
      }
    } catch (error) {
      failure = { error };
    }
    // A failed writer adds nothing to the acknowledged state.
    await this.#acknowledge(upload, writer).catch((error: unknown) => (failure ??= { error }));
    if (failure !== undefined) throw failure.error;
  }

  #requireFits(upload: Upload, size: number): void {
    if (upload.size === undefined || size <= upload.size) return;
    throw new RonError('payload_too_large', `the upload was declared to have ${upload.size} bytes`);
  }

  async #acknowledge(upload: Upload, writer: ObjectWriter): Promise<void> {
    if (writer.size === upload.offset) return;
    const state = await writer.checkpoint(NEVER);
    await upload.advance(state).catch(rethrowDisk);
    this.#moveLast(this.#known.open, upload);
  }

  async #finish(upload: Upload, writer: ObjectWriter, onAddress: AppendInit['onAddress']): Promise<void> {
    const { expected, media_type } = upload.terms;
    let isRefused = false;
    const ask = (address: Address): void => {
      isRefused = true;
      onAddress?.(address);
      isRefused = expected !== undefined && expected !== address;
    };
    try {
      const { address } = await writer.finish({ expected, media_type, onAddress: ask }, NEVER);
      await upload.finish(address).catch(rethrowDisk);
    } catch (error) {
      // Refused bytes stay refused; a lost part has to be sent again.
      if (isRefused) await this.#forget(upload).catch(() => undefined);
      else if (!upload.isWhole(this.#init.store.volume)) await this.#known.reset(upload);
      throw error;
    }
    this.#known.open.delete(upload.terms.id);
    this.#moveLast(this.#known.finished, upload);
    await this.#boundFinished();
  }

  async #forget(upload: Upload): Promise<void> {
    await upload.remove().catch(rethrowDisk);
    this.#known.delete(upload.terms.id);
  }

  async #boundFinished(): Promise<void> {
    for (const upload of this.#known.finished.values()) {
      if (this.#known.finished.size <= (this.#init.finished_max ?? 4096)) return;
      if (!this.#mutex.isHeld(upload.terms.id)) await this.#forget(upload).catch(() => undefined);
    }
  }

  #moveLast(map: Map<string, Upload>, upload: Upload): void {
    map.delete(upload.terms.id);
    map.set(upload.terms.id, upload);
  }
}

/** One directory with one copy of each journal. */
function placeIn(dir: string | undefined, fs: FileSystem = realFileSystem): JournalPlaces | undefined {
  if (dir === undefined) return undefined;
  const places = [{ dir: join(dir, 'uploads'), fs }];
  return { all: () => places, now: () => places, copies: 1, copies_min: 1 };
}

const isComplete = (upload: Upload): boolean => upload.address === undefined && upload.offset === upload.size;
