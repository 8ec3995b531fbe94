/**
 * The known uploads, and whether their state is certain.
 *
 * Contract: requests for an upload succeed only if the newest copy of its journal was certainly read and its chunks are
 * stored. Otherwise they get `not_ready` while volumes are absent. An upload is reset, and a journal without a valid frame is
 * quarantined, only after every volume has answered completely. `refresh` loads the journals of volumes that join later.
 * Bound: one entry for each upload; Uploads limits their number. Cancellation: by the signals.
 */
import { join } from 'node:path';
import { NEVER, sched } from '@ron/kernel';
import { notComplete } from '../compaction/completeness.ts';
import { MirroredJournal, type JournalPlaces } from './mirrored-journal.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { findJournals, isWholeInPages, progressOf, removeUnfinished, type FoundJournal } from './upload-restore.ts';
import { Upload } from './upload.ts';
import type { DamagedRecord, Volume } from '../volume/volume.ts';

/** The interval at which unreadable journal directories are tried again. */
const RELOAD_EVERY_MS = 1000;

export interface KnownUploadsInit {
  store: ObjectStore;
  /** Undefined when journals are kept in memory. */
  places: JournalPlaces | undefined;
  expiry_ms: number;
  /** Whether an upload has an active request. */
  isTaken(id: string): boolean;
  onDamage?: ((record: DamagedRecord) => void) | undefined;
}

export class KnownUploads {
  /** Unfinished and finished uploads, each in order of last use. */
  readonly open = new Map<string, Upload>();
  readonly finished = new Map<string, Upload>();
  /** Directories whose journals could not be read. */
  unread: readonly string[] = [];
  readonly #init: KnownUploadsInit;
  /** Uploads whose newest journal may be on an absent volume. */
  readonly #uncertain = new Set<string>();
  /** By upload: `changes_total` of the volume when all chunks were last known to be stored. */
  readonly #verified = new WeakMap<Upload, number | undefined>();
  #loaded_changes: number | undefined;
  #loaded_ms = -Infinity;
  #loading: Promise<void> | undefined;

  constructor(init: KnownUploadsInit) {
    this.#init = init;
  }

  /** Loads the journals of an earlier process. */
  async load(): Promise<void> {
    const { places } = this.#init;
    if (places === undefined) return;
    await removeUnfinished(places);
    await this.#load(places);
  }

  /** Loads the journals of volumes that joined since the last time. */
  async refresh(): Promise<void> {
    const { places } = this.#init;
    if (places === undefined || !this.#isLoadDue()) return;
    this.#loading ??= this.#load(places).finally(() => (this.#loading = undefined));
    await this.#loading;
  }

  get(id: string): Upload | undefined {
    return this.open.get(id) ?? this.finished.get(id);
  }

  /** As `get`, without uploads whose newest state may be elsewhere. */
  getCertain(id: string): Upload | undefined {
    return this.#uncertain.has(id) ? undefined : this.get(id);
  }

  /** Adds a new upload. */
  add(upload: Upload): void {
    this.open.set(upload.terms.id, upload);
    this.#verified.set(upload, this.#volume.changes_total);
  }

  delete(id: string): void {
    this.open.delete(id);
    this.finished.delete(id);
    this.#uncertain.delete(id);
  }

  get #volume(): Volume {
    return this.#init.store.volume;
  }

  /** While a volume is absent, its copy of a journal may be more advanced. */
  isOver(upload: Upload): boolean {
    return upload.expires_ms <= sched.wall_ms() && this.#volume.incomplete === undefined;
  }

  /** Why the newest copy of a journal may be unreachable. */
  doubt(): string | undefined {
    const { absenceDoubt, away } = this.#volume;
    if (absenceDoubt !== undefined) return absenceDoubt;
    const isShort = this.unread.length >= (this.#init.places?.copies_min ?? 1) || away !== undefined;
    return this.unread.length > 0 && isShort ? this.unread.join('; ') : undefined;
  }

  #isLoadDue(): boolean {
    if (this.#loaded_changes !== this.#volume.changes_total) return true;
    if (this.unread.length > 0) return sched.now_ms() - this.#loaded_ms >= RELOAD_EVERY_MS;
    return this.#uncertain.size > 0 && this.doubt() === undefined;
  }

  /** Throws `not_ready` unless the journal is certainly the newest and all chunks are stored. Resets an upload that lost chunks. */
  async requireReadable(upload: Upload, signal: AbortSignal): Promise<void> {
    const { away, incomplete, changes_total } = this.#volume;
    if (this.#uncertain.has(upload.terms.id)) {
      throw notComplete(
        `an absent volume may have a newer state of the upload: ${this.doubt() ?? incomplete ?? 'journals are read'}`,
      );
    }
    const isVerified = this.#verified.has(upload) && this.#verified.get(upload) === changes_total;
    if (isVerified || upload.address !== undefined) return;
    const isWhole =
      away === undefined ? upload.isWhole(this.#volume) : await isWholeInPages(upload, this.#volume, signal);
    if (isWhole) this.#verified.set(upload, changes_total);
    else await this.reset(upload);
  }

  /** Resets an upload that lost chunks, unless an absent volume may have them. */
  async reset(upload: Upload): Promise<void> {
    const { incomplete, changes_total } = this.#volume;
    if (incomplete !== undefined) throw notComplete(`a part of the upload cannot be read: ${incomplete}`);
    await upload.reset().catch(() => undefined);
    this.#verified.set(upload, changes_total);
  }

  async #load(places: JournalPlaces): Promise<void> {
    const { changes_total } = this.#volume;
    const { copies, unread } = await findJournals(places);
    this.unread = unread;
    this.#loaded_ms = sched.now_ms();
    for (const [name, found] of copies) await this.#restore(places, name, found);
    this.#loaded_changes = changes_total;
  }

  /** Restores the most advanced copy and rewrites the others from it. A copy that is known to be the newest stays. */
  async #restore(places: JournalPlaces, name: string, copies: readonly FoundJournal[]): Promise<void> {
    const { leases } = this.#init.store;
    const known = this.open.get(name) ?? this.finished.get(name);
    if (known !== undefined && (!this.#uncertain.has(name) || this.#init.isTaken(name))) return;
    const best = copies.toSorted((a, b) => progressOf(b) - progressOf(a))[0]!;
    const equals = copies.filter((each) => progressOf(each) === progressOf(best) && !each.loaded.isDamaged);
    const journal = new MirroredJournal(
      places,
      name,
      new Map(equals.map(({ place, loaded }) => [place.dir, loaded.journal])),
    );
    const upload = Upload.restore(name, best.loaded.frames, { journal, leases, expiry_ms: this.#init.expiry_ms });
    const doubt = this.doubt();
    if (known === undefined) this.#report(name, copies, upload === undefined, equals.length > 0);
    if (upload === undefined) {
      // An absent volume may have a good copy: keep these.
      if (doubt === undefined && this.#volume.incomplete === undefined) await setAside(copies);
      return;
    }
    // After the new upload has taken its leases, so that every chunk stays leased.
    known?.release();
    this.open.delete(name);
    this.finished.delete(name);
    (upload.address === undefined ? this.open : this.finished).set(name, upload);
    if (doubt !== undefined) this.#uncertain.add(name);
    else this.#uncertain.delete(name);
    if (doubt === undefined && this.#volume.incomplete === undefined) await this.requireReadable(upload, NEVER);
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

/** Handles journals without an upload: empty ones are removed, damaged ones quarantined. */
async function setAside(copies: readonly FoundJournal[]): Promise<void> {
  for (const { place, loaded } of copies) {
    const aside = loaded.isEmpty ? loaded.journal.remove() : loaded.journal.moveTo(join(place.dir, '..', 'quarantine'));
    await aside.catch(() => undefined);
  }
}
