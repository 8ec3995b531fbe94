/**
 * Uploads that can be interrupted and resumed, also after a restart: the durable state behind tus.
 *
 * Promise: an offset that was told is durable: the client need not send those bytes again. When the last byte is there, the
 * upload becomes an object, and keeps telling its address until it expires. A request that goes on with an upload takes it
 * over from one that is still under way: that one ends with `conflict`, and the bytes that it brought count. An upload
 * whose journal or chunks may be on volumes that are away answers `not_ready`: it is not reset, expired or quarantined
 * until every volume has answered completely. Journals on volumes that join later are loaded before the next answer.
 * Bound: `uploads_max` uploads that are not finished, `finished_max` that are; for each of them what Upload says, and while
 * bytes come what ObjectWriter says. Overflow: `busy` for a new upload; the finished one that was touched least recently
 * is forgotten. Cancellation: a body that ends early, by an error or by the signal, leaves what it brought.
 */
import { join } from 'node:path';
import { NEVER, RonError, sched } from '@ron/kernel';
import { realFileSystem, rethrowDisk, type FileSystem } from '@ron/log';
import type { Address } from '@ron/proto';
import { notComplete } from './completeness.ts';
import type { ObjectStore } from './object-store.ts';
import type { ObjectWriter } from './object-writer.ts';
import { NO_JOURNALS, scrubJournals, type JournalScrub } from './journal-scrub.ts';
import { MirroredJournal, type JournalPlaces } from './mirrored-journal.ts';
import { piecesUntilAborted } from './pieces-until-aborted.ts';
import { Turns } from './turns.ts';
import { NO_JOURNAL } from './upload-journal.ts';
import { findJournals, isWholeInPages, progressOf, removeUnfinished, type FoundJournal } from './upload-restore.ts';
import { Upload, type UploadStatus, type UploadTerms } from './upload.ts';
import type { DamagedRecord, Volume } from './volume.ts';

const KIB = 1024;
const METADATA_BYTES_MAX = 8 * KIB;
/** While a body comes, what has come is made durable this often. */
const CHECKPOINT_BYTES = 16 * KIB * KIB;
/** How often directories of journals that could not be read are tried again. */
const RELOAD_EVERY_MS = 1000;

export interface UploadsInit {
  store: ObjectStore;
  /** The journals lie in `uploads/` below it. Undefined for amnesia: then they are kept in memory. */
  dir?: string | undefined;
  fs?: FileSystem | undefined;
  /** Instead: several directories, each journal in some of them. */
  places?: JournalPlaces | undefined;
  /** An upload is forgotten this long after it was last added to. Default 24 hours. */
  expiry_ms?: number;
  /** Uploads that are not finished. Default 256; each takes up to 0.7 MiB of memory. */
  uploads_max?: number;
  /** Finished ones that still tell their address. Default 4096. */
  finished_max?: number;
  /** Told of a journal that is damaged. Must not throw. */
  onDamage?: (record: DamagedRecord) => void;
}

export interface CreateInit {
  /** Undefined when it is not known yet. */
  size?: number | undefined;
  /** The creator's own words, given back as they are. At most 8 KiB. */
  metadata?: string | undefined;
  media_type?: string | undefined;
  /** The address that the sender claims; other bytes are refused at the end. */
  expected?: Address | undefined;
}

export interface AppendInit {
  id: string;
  /** Where the sender believes the upload to be. */
  offset: number;
  /** Declares the size, when it was not known. */
  size?: number | undefined;
  body: AsyncIterable<Uint8Array>;
  /** As for a writer: told the address before the object becomes visible; what it throws refuses it. */
  onAddress?: ((address: Address) => void) | undefined;
  signal: AbortSignal;
}

export class Uploads implements AsyncDisposable {
  readonly #init: UploadsInit;
  /** Undefined when they are kept in memory. */
  readonly #places: JournalPlaces | undefined;
  readonly #expiry_ms: number;
  /** Unfinished and finished ones, each in the order in which they were touched. */
  readonly #open = new Map<string, Upload>();
  readonly #finished = new Map<string, Upload>();
  readonly #turns = new Turns();
  /** Uploads whose newest journal may be on a volume that is away. */
  readonly #uncertain = new Set<string>();
  /** By upload: `changes_total` of the volume when all its chunks were last known to be there. */
  readonly #verified = new WeakMap<Upload, number | undefined>();
  /** Directories whose journals could not be read. */
  #unread: readonly string[] = [];
  #loaded_changes: number | undefined;
  #loaded_ms = -Infinity;
  #loading: Promise<void> | undefined;

  private constructor(init: UploadsInit) {
    this.#init = init;
    this.#places = init.places ?? placeIn(init.dir, init.fs);
    this.#expiry_ms = init.expiry_ms ?? 24 * 60 * 60 * 1000;
  }

  /** Loads what a former process left, and leases its chunks: before anything is compacted. */
  static async open(init: UploadsInit): Promise<Uploads> {
    const uploads = new Uploads(init);
    if (uploads.#places !== undefined) {
      await removeUnfinished(uploads.#places);
      await uploads.#load(uploads.#places);
    }
    return uploads;
  }

  /** Uploads that are not finished, and that are. */
  get counts(): { open: number; finished: number } {
    return { open: this.#open.size, finished: this.#finished.size };
  }

  /** It exists, also after a restart, when this resolves. One of no bytes is finished at once. */
  async create(init: CreateInit): Promise<UploadStatus> {
    this.#requireOpen();
    const terms = this.#termsOf(init);
    if (this.#open.size >= this.#uploads_max) await this.expire();
    if (this.#open.size >= this.#uploads_max) {
      throw new RonError('busy', `${this.#open.size} uploads are under way`, { retry_after_ms: 10_000 });
    }
    const journal = this.#places === undefined ? NO_JOURNAL : new MirroredJournal(this.#places, terms.id);
    const upload = new Upload({ terms, journal, leases: this.#init.store.leases, expiry_ms: this.#expiry_ms });
    this.#open.set(terms.id, upload);
    this.#verified.set(upload, this.#volume.changes_total);
    try {
      await upload.begin();
    } catch (error) {
      this.#open.delete(terms.id);
      return rethrowDisk(error);
    }
    return upload.size === 0 ? await this.settle(terms.id, NEVER) : upload.status;
  }

  /** What is known of an upload right now; undefined when there is none. */
  status(id: string): UploadStatus | undefined {
    return this.#find(id)?.status;
  }

  /** The same for a client: undefined only when it is certain that there is none, `not_ready` when volumes have to return. */
  async find(id: string, signal: AbortSignal): Promise<UploadStatus | undefined> {
    await this.refresh();
    const upload = this.#find(id);
    if (upload === undefined) {
      const doubt = this.#doubt();
      if (doubt !== undefined) throw notComplete(`the upload was not found, but its journal may be away: ${doubt}`);
      return undefined;
    }
    if (!this.#turns.isTaken(id)) await this.#requireReadable(upload, signal);
    return upload.status;
  }

  /** Loads the journals of volumes that joined since the last time. */
  async refresh(): Promise<void> {
    const places = this.#places;
    if (places === undefined || this.#turns.isClosed || !this.#isLoadDue()) return;
    this.#loading ??= this.#load(places).finally(() => (this.#loading = undefined));
    await this.#loading;
  }

  /**
   * For a client that asks where to go on: ends a request that is still adding to the upload, keeps what it brought, and
   * finishes an upload whose bytes are all there.
   */
  async settle(id: string, signal: AbortSignal): Promise<UploadStatus> {
    return await this.#inTurn(id, signal, async (upload) => {
      if (isComplete(upload)) await this.#finish(upload, this.#writerOf(upload), undefined);
      return upload.status;
    });
  }

  /** Adds a body to an upload. When it was the last one, the status has the address. */
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

  /** Forgets an upload, and ends a request that is adding to it. An object that it became stays. */
  async terminate(id: string, signal: AbortSignal): Promise<void> {
    await this.#inTurn(id, signal, (upload) => this.#forget(upload));
  }

  /**
   * Forgets every upload whose time is over and that no request is adding to. How many they were: none while a volume is
   * away. `not_ready` when journals cannot be read: then it is not known which chunks uploads need.
   */
  async expire(): Promise<number> {
    await this.refresh();
    if (this.#unread.length > 0) throw notComplete(`journals of uploads cannot be read: ${this.#unread.join('; ')}`);
    let expired = 0;
    for (const upload of [...this.#open.values(), ...this.#finished.values()]) {
      if (!this.#isOver(upload) || this.#turns.isTaken(upload.terms.id)) continue;
      // A journal that could not be removed is tried again the next time.
      await this.#forget(upload).then(
        () => (expired += 1),
        () => undefined,
      );
    }
    return expired;
  }

  /** Checks every frame of the journals in a directory. A damaged copy is written anew from the state that is known. */
  async scrubJournals(dir: string, signal: AbortSignal): Promise<JournalScrub> {
    const place = this.#places?.all().find((each) => each.dir === dir);
    if (place === undefined) return NO_JOURNALS;
    return await scrubJournals({
      place,
      uploadOf: (id) => (this.#uncertain.has(id) ? undefined : (this.#open.get(id) ?? this.#finished.get(id))),
      isTaken: (id) => this.#turns.isTaken(id),
      rewrite: (upload) => this.#turns.run(upload.terms.id, signal, () => upload.rewriteJournal()),
      onDamage: (id) =>
        this.#init.onDamage?.({ volume: dir, id_hex: id, what: 'a copy of the journal of an upload' }),
      signal,
    });
  }

  /** Ends what is under way, keeping what came. The journals stay, and the leases go. */
  async close(): Promise<void> {
    await this.#turns.close();
    for (const upload of this.#open.values()) upload.release();
    this.#open.clear();
    this.#finished.clear();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #volume(): Volume {
    return this.#init.store.volume;
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
    if (!Number.isSafeInteger(size) || size < 0) throw new RonError('bad_request', `${size} is no number of bytes`);
    if (size <= object_bytes_max) return size;
    throw new RonError('payload_too_large', `an object has at most ${object_bytes_max} bytes`);
  }

  #requireOpen(): void {
    if (this.#turns.isClosed) throw new RonError('draining', 'uploads are closed');
  }

  #find(id: string): Upload | undefined {
    const upload = this.#open.get(id) ?? this.#finished.get(id);
    // Whoever adds to it keeps it alive.
    return upload !== undefined && (this.#turns.isTaken(id) || !this.#isOver(upload)) ? upload : undefined;
  }

  #writerOf(upload: Upload): ObjectWriter {
    return this.#init.store.writer(upload.writerState);
  }

  /** Runs `work` when nobody else works on the upload; whoever does is told to come to an end. */
  async #inTurn<T>(
    id: string,
    signal: AbortSignal,
    work: (upload: Upload, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    return await this.#turns.run(id, signal, async (mine) => {
      const upload = this.#open.get(id) ?? this.#finished.get(id);
      if (upload === undefined || this.#isOver(upload)) throw new RonError('not_found', 'there is no such upload');
      await this.#requireReadable(upload, mine);
      return await work(upload, mine);
    });
  }

  /** Takes the body in. What came is acknowledged, however the body ends. */
  async #receive(
    upload: Upload,
    writer: ObjectWriter,
    body: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    try {
      for await (const bytes of piecesUntilAborted(body, signal)) {
        this.#requireFits(upload, writer.size + bytes.length);
        await writer.write(bytes, NEVER);
        if (writer.size - upload.offset >= CHECKPOINT_BYTES) await this.#acknowledge(upload, writer);
      }
    } catch (error) {
      failure = { error };
    }
    // A writer that failed has nothing to say; then what was acknowledged before stands.
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
    this.#moveLast(this.#open, upload);
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
      // Bytes that are refused will always be refused; a part that was lost has to be sent again.
      if (isRefused) await this.#forget(upload).catch(() => undefined);
      else if (!upload.isWhole(this.#volume)) await this.#reset(upload);
      throw error;
    }
    this.#open.delete(upload.terms.id);
    this.#moveLast(this.#finished, upload);
    await this.#boundFinished();
  }

  async #forget(upload: Upload): Promise<void> {
    await upload.remove().catch(rethrowDisk);
    this.#open.delete(upload.terms.id);
    this.#finished.delete(upload.terms.id);
  }

  async #boundFinished(): Promise<void> {
    for (const upload of this.#finished.values()) {
      if (this.#finished.size <= (this.#init.finished_max ?? 4096)) return;
      if (!this.#turns.isTaken(upload.terms.id)) await this.#forget(upload).catch(() => undefined);
    }
  }

  #moveLast(map: Map<string, Upload>, upload: Upload): void {
    map.delete(upload.terms.id);
    map.set(upload.terms.id, upload);
  }

  /** While a volume is away an upload may have been added to there. */
  #isOver(upload: Upload): boolean {
    return upload.expires_ms <= sched.wall_ms() && this.#volume.incomplete === undefined;
  }

  /** Why the newest copy of a journal may be out of reach. */
  #doubt(): string | undefined {
    const { absenceDoubt, away } = this.#volume;
    if (absenceDoubt !== undefined) return absenceDoubt;
    const isShort = this.#unread.length >= (this.#places?.copies_min ?? 1) || away !== undefined;
    return this.#unread.length > 0 && isShort ? this.#unread.join('; ') : undefined;
  }

  #isLoadDue(): boolean {
    if (this.#loaded_changes !== this.#volume.changes_total) return true;
    if (this.#unread.length > 0) return sched.now_ms() - this.#loaded_ms >= RELOAD_EVERY_MS;
    return this.#uncertain.size > 0 && this.#doubt() === undefined;
  }

  /** Throws `not_ready` unless the journal is known to be the newest and all chunks are there. Resets one that lost chunks. */
  async #requireReadable(upload: Upload, signal: AbortSignal): Promise<void> {
    const { away, incomplete, changes_total } = this.#volume;
    if (this.#uncertain.has(upload.terms.id)) {
      throw notComplete(`a newer state of the upload may be away: ${this.#doubt() ?? incomplete ?? 'journals are read'}`);
    }
    const isVerified = this.#verified.has(upload) && this.#verified.get(upload) === changes_total;
    if (isVerified || upload.address !== undefined) return;
    const isWhole =
      away === undefined ? upload.isWhole(this.#volume) : await isWholeInPages(upload, this.#volume, signal);
    if (isWhole) this.#verified.set(upload, changes_total);
    else await this.#reset(upload);
  }

  /** Begins an upload again that lost chunks. While a volume is away they may be there: then it waits. */
  async #reset(upload: Upload): Promise<void> {
    const { incomplete, changes_total } = this.#volume;
    if (incomplete !== undefined) throw notComplete(`a part of the upload cannot be read: ${incomplete}`);
    await upload.reset().catch(() => undefined);
    this.#verified.set(upload, changes_total);
  }

  async #load(places: JournalPlaces): Promise<void> {
    const { changes_total } = this.#volume;
    const { copies, unread } = await findJournals(places);
    this.#unread = unread;
    this.#loaded_ms = sched.now_ms();
    for (const [name, found] of copies) await this.#restore(places, name, found);
    this.#loaded_changes = changes_total;
  }

  /** The copy that has come furthest counts; the others are written anew with it. One that is known to be newest stays. */
  async #restore(places: JournalPlaces, name: string, copies: readonly FoundJournal[]): Promise<void> {
    const { leases } = this.#init.store;
    const known = this.#open.get(name) ?? this.#finished.get(name);
    if (known !== undefined && (!this.#uncertain.has(name) || this.#turns.isTaken(name))) return;
    const best = copies.toSorted((a, b) => progressOf(b) - progressOf(a))[0]!;
    const equals = copies.filter((each) => progressOf(each) === progressOf(best) && !each.loaded.isDamaged);
    const journal = new MirroredJournal(
      places,
      name,
      new Map(equals.map(({ place, loaded }) => [place.dir, loaded.journal])),
    );
    const upload = Upload.restore(name, best.loaded.frames, { journal, leases, expiry_ms: this.#expiry_ms });
    const doubt = this.#doubt();
    if (known === undefined) this.#report(name, copies, upload === undefined, equals.length > 0);
    if (upload === undefined) {
      // A good copy may be away: then these stay as they are.
      if (doubt === undefined && this.#volume.incomplete === undefined) await setAside(copies);
      return;
    }
    // After the new one has its leases: no chunk is free in between.
    known?.release();
    this.#open.delete(name);
    this.#finished.delete(name);
    (upload.address === undefined ? this.#open : this.#finished).set(name, upload);
    if (doubt !== undefined) this.#uncertain.add(name);
    else this.#uncertain.delete(name);
    if (doubt === undefined && this.#volume.incomplete === undefined) await this.#requireReadable(upload, NEVER);
  }

  #report(name: string, copies: readonly FoundJournal[], isLost: boolean, hasGood: boolean): void {
    for (const { loaded } of copies) {
      if (!loaded.isDamaged && (!isLost || loaded.isEmpty)) continue;
      const what = isLost ? 'the journal of an upload' : 'the later part of the journal of an upload';
      const isWhole = !isLost && hasGood;
      this.#init.onDamage?.({ volume: this.#volume.name, id_hex: name, what: isWhole ? `a copy of ${what}` : what });
    }
  }
}

/** Journals that tell of no upload: empty ones go, damaged ones are quarantined. */
async function setAside(copies: readonly FoundJournal[]): Promise<void> {
  for (const { place, loaded } of copies) {
    const aside = loaded.isEmpty
      ? loaded.journal.remove()
      : loaded.journal.moveTo(join(place.dir, '..', 'quarantine'));
    await aside.catch(() => undefined);
  }
}

/** One directory, and each journal once. */
function placeIn(dir: string | undefined, fs: FileSystem = realFileSystem): JournalPlaces | undefined {
  if (dir === undefined) return undefined;
  const places = [{ dir: join(dir, 'uploads'), fs }];
  return { all: () => places, now: () => places, copies: 1, copies_min: 1 };
}

const isComplete = (upload: Upload): boolean => upload.address === undefined && upload.offset === upload.size;
