/**
 * The state of one upload: its offset, its leases and its journal.
 *
 * Contract: all bytes before `offset` are durable, in leased chunks and in the journal; `restore` returns exactly this state.
 * The caller ensures that calls do not overlap.
 * Bound: 64 bytes for each chunk of the current page and each earlier page, one chunk of bytes, and their leases.
 */
import { assert, RonError, sched } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { chunkKey, type Leases } from '../objects/leases.ts';
import { encodePage, entriesOfPage, PAGE_ENTRIES_MAX } from '../objects/manifest.ts';
import type { WriterState } from '../objects/object-writer.ts';
import { FrameType, type FileJournal, type Frame, type UploadJournal } from './upload-journal.ts';
import type { Volume } from '../volume/volume.ts';

const ENTRY_BYTES = 64;
const PROGRESS_HEADER_BYTES = 12;

/** The parameters of its creation. */
export interface UploadTerms {
  readonly id: string;
  readonly chunk_bytes: number;
  /** Undefined until the client declares it. */
  readonly size?: number;
  /** The metadata of the client, returned unchanged. */
  readonly metadata: string;
  readonly media_type?: string;
  readonly expected?: Address;
  readonly created_ms: number;
}

export interface UploadStatus {
  readonly id: string;
  /** The number of durable bytes. */
  readonly offset: number;
  readonly size: number | undefined;
  readonly metadata: string;
  /** Unix time in milliseconds. */
  readonly expires_ms: number;
  /** Set when the object is stored. */
  readonly address: Address | undefined;
}

const EMPTY = new Uint8Array(0);
/** Packed as in pages, since an upload may stay in memory for days. */
interface Packed {
  readonly pages: Uint8Array;
  readonly entries: Uint8Array;
  readonly tail: Uint8Array;
}
const NOTHING: Packed = { pages: EMPTY, entries: EMPTY, tail: EMPTY };

export interface UploadInit {
  terms: UploadTerms;
  journal: UploadJournal;
  leases: Leases;
  expiry_ms: number;
}

export class Upload {
  readonly terms: UploadTerms;
  readonly #init: UploadInit;
  #size: number | undefined;
  #state = NOTHING;
  #touched_ms: number;
  #address: Address | undefined;

  constructor(init: UploadInit) {
    this.#init = init;
    this.terms = init.terms;
    this.#size = init.terms.size;
    this.#touched_ms = init.terms.created_ms;
  }

  /** The upload that a journal describes; undefined when its creation was never acknowledged. */
  static restore(id: string, frames: readonly Frame[], init: Omit<UploadInit, 'terms'>): Upload | undefined {
    const [created, ...later] = frames;
    if (created?.type !== FrameType.created) return undefined;
    const upload = new Upload({ ...init, terms: { ...(parse(created) as UploadTerms), id } });
    for (const frame of later) upload.#apply(frame);
    upload.#holdGrown(NOTHING);
    return upload;
  }

  /** The progress that a journal records; greater than any offset once the upload is finished. */
  static progressOf(frames: readonly Frame[]): number {
    let [pages, entries, tail] = [0, 0, 0];
    for (const { type, payload } of frames) {
      if (type === FrameType.finished) return Infinity;
      if (type !== FrameType.progress) continue;
      const header = Buffer.from(payload.buffer, payload.byteOffset, PROGRESS_HEADER_BYTES);
      const [more_pages, more] = [header.readUInt16LE(8), header.readUInt16LE(10)];
      const tail_bytes = payload.length - PROGRESS_HEADER_BYTES - (more_pages + more) * ENTRY_BYTES;
      tail = more_pages + more > 0 ? tail_bytes : tail + tail_bytes;
      entries = more_pages > 0 ? more : entries + more;
      pages += more_pages;
    }
    // Larger than any chunk: only the order matters.
    return (pages * PAGE_ENTRIES_MAX + entries) * 2 ** 32 + tail;
  }

  get offset(): number {
    if (this.#address !== undefined) return this.#size ?? 0;
    const { pages, entries, tail } = this.#state;
    const chunks = (pages.length / ENTRY_BYTES) * PAGE_ENTRIES_MAX + entries.length / ENTRY_BYTES;
    return chunks * this.terms.chunk_bytes + tail.length;
  }

  get size(): number | undefined {
    return this.#size;
  }

  get address(): Address | undefined {
    return this.#address;
  }

  get status(): UploadStatus {
    const { offset, size, expires_ms, address } = this;
    return { id: this.terms.id, offset, size, metadata: this.terms.metadata, expires_ms, address };
  }

  get expires_ms(): number {
    return this.#touched_ms + this.#init.expiry_ms;
  }

  /** The state from which a writer resumes. This upload holds the leases on its contents. */
  get writerState(): WriterState {
    const { pages, entries, tail } = this.#state;
    const { chunk_bytes } = this.terms;
    return { chunk_bytes, pages: entriesOfPage(pages), entries: entriesOfPage(entries), tail };
  }

  /** Whether all its leased contents are stored. */
  isWhole(volume: Volume): boolean {
    const { pages, entries } = this.#state;
    return [...entriesOfPage(pages), ...entriesOfPage(entries)].every(({ id }) => volume.has('content', id));
  }

  /** Writes the first frame. The upload exists when it resolves. */
  async begin(): Promise<void> {
    await this.#init.journal.replace(this.#snapshot());
  }

  async declareSize(size: number): Promise<void> {
    if (this.#size === size) return;
    if (this.#size !== undefined) throw new RonError('conflict', `the declared size is ${this.#size} bytes`);
    if (size < this.offset) throw new RonError('conflict', `${this.offset} bytes have been received already`);
    await this.#write({ type: FrameType.size, payload: json({ size }) }, () => (this.#size = size));
  }

  /** Records the progress of a writer, which still holds its leases. */
  async advance(to: WriterState): Promise<void> {
    const before = this.#state;
    const next = grown(before, to);
    const touched_ms = sched.wall_ms();
    await this.#write(progressFrame(before, next, touched_ms), () => {
      this.#state = next;
      this.#touched_ms = touched_ms;
    });
    this.#holdGrown(before);
  }

  /** Resets the upload to offset 0 after a part was lost. */
  async reset(): Promise<void> {
    this.release();
    await this.#init.journal.replace(this.#snapshot());
  }

  /** The copy of its journal in a directory. */
  journalIn(dir: string): FileJournal | undefined {
    return this.#init.journal.copyIn?.(dir);
  }

  /** Rewrites every copy of the journal. */
  async rewriteJournal(): Promise<void> {
    await this.#init.journal.replace(this.#snapshot());
  }

  /** Marks the upload as finished. Its chunks belong to the object from now on. */
  async finish(address: Address): Promise<void> {
    const size = this.offset;
    const touched_ms = sched.wall_ms();
    await this.#init.journal.replace([this.#created(), finishedFrame(address, size, touched_ms)]);
    this.#finished(address, size, touched_ms);
    this.release();
  }

  async remove(): Promise<void> {
    await this.#init.journal.remove();
    this.release();
  }

  /** Releases the leases and the memory; the journal stays. */
  release(): void {
    const { leases } = this.#init;
    const { pages, entries } = this.#state;
    this.#state = NOTHING;
    for (const key of keysOf(entries)) leases.release(key);
    for (const key of keysOf(pages)) leases.releasePage(key);
  }

  /** Appends a frame, or replaces an oversized journal; then `apply` changes the state in memory. */
  async #write(frame: Frame, apply: () => void): Promise<void> {
    const { journal } = this.#init;
    const { pages, entries, tail } = this.#state;
    const whole = (): Frame[] => this.#snapshotAfter(apply);
    if (journal.isWasteful(pages.length + entries.length + tail.length)) await journal.replace(whole());
    else await journal.append(frame, whole);
    apply();
  }

  #snapshotAfter(apply: () => void): Frame[] {
    const before = [this.#state, this.#size, this.#touched_ms] as const;
    try {
      apply();
      return this.#snapshot();
    } finally {
      [this.#state, this.#size, this.#touched_ms] = before;
    }
  }

  #snapshot(): Frame[] {
    const frames = [this.#created()];
    if (this.#address !== undefined) return [...frames, finishedFrame(this.#address, this.offset, this.#touched_ms)];
    if (this.#size !== this.terms.size) frames.push({ type: FrameType.size, payload: json({ size: this.#size }) });
    return [...frames, progressFrame(NOTHING, this.#state, this.#touched_ms)];
  }

  #created(): Frame {
    return { type: FrameType.created, payload: json(this.terms) };
  }

  #apply(frame: Frame): void {
    if (frame.type === FrameType.progress) this.#applyProgress(frame.payload);
    if (frame.type === FrameType.size) this.#size = (parse(frame) as { size: number }).size;
    if (frame.type !== FrameType.finished) return;
    const { address, size, touched_ms } = parse(frame) as { address: Address; size: number; touched_ms: number };
    this.#finished(address, size, touched_ms);
  }

  #finished(address: Address, size: number, touched_ms: number): void {
    this.#address = address;
    this.#size = size;
    this.#touched_ms = touched_ms;
  }

  #applyProgress(payload: Uint8Array): void {
    const header = Buffer.from(payload.buffer, payload.byteOffset, PROGRESS_HEADER_BYTES);
    const pages_end = PROGRESS_HEADER_BYTES + header.readUInt16LE(8) * ENTRY_BYTES;
    const entries_end = pages_end + header.readUInt16LE(10) * ENTRY_BYTES;
    const pages = payload.subarray(PROGRESS_HEADER_BYTES, pages_end);
    const entries = payload.subarray(pages_end, entries_end);
    const tail = payload.subarray(entries_end);
    const before = this.#state;
    this.#state = {
      pages: Buffer.concat([before.pages, pages]),
      entries: pages.length > 0 ? Buffer.from(entries) : Buffer.concat([before.entries, entries]),
      tail: entries_end > PROGRESS_HEADER_BYTES ? Buffer.from(tail) : Buffer.concat([before.tail, tail]),
    };
    this.#touched_ms = header.readDoubleLE(0);
  }

  /** Leases the contents that were added since `before`. The lease of a new page replaces those of its chunks. */
  #holdGrown(before: Packed): void {
    const { leases } = this.#init;
    const { pages, entries } = addedTo(before, this.#state);
    for (const key of keysOf(pages)) leases.takePage(key);
    for (const key of keysOf(entries)) leases.take(key);
    if (pages.length > 0) for (const key of keysOf(before.entries)) leases.release(key);
  }
}

const keysOf = (packed: Uint8Array): string[] => entriesOfPage(packed).map(({ id }) => chunkKey(id));

/** `before` plus the progress of the writer since. */
function grown(before: Packed, { pages, entries, tail }: WriterState): Packed {
  const fresh = pages.slice(before.pages.length / ENTRY_BYTES);
  if (fresh.length > 0) {
    return { pages: Buffer.concat([before.pages, encodePage(fresh)]), entries: encodePage(entries), tail };
  }
  const more = encodePage(entries.slice(before.entries.length / ENTRY_BYTES));
  return { pages: before.pages, entries: Buffer.concat([before.entries, more]), tail };
}

/** The difference from `before` to `next`. A new page consumes the entries before it; a new chunk consumes the tail. */
function addedTo(before: Packed, next: Packed): Packed {
  const pages = next.pages.subarray(before.pages.length);
  const entries = pages.length > 0 ? next.entries : next.entries.subarray(before.entries.length);
  const isGrown = pages.length > 0 || entries.length > 0;
  return { pages, entries, tail: isGrown ? next.tail : next.tail.subarray(before.tail.length) };
}

/** The frame that turns `before` into `next`. */
function progressFrame(before: Packed, next: Packed, touched_ms: number): Frame {
  const { pages, entries, tail } = addedTo(before, next);
  assert(pages.length <= 65_535 * ENTRY_BYTES, 'the pages of an upload fit a frame');
  const header = Buffer.alloc(PROGRESS_HEADER_BYTES);
  header.writeDoubleLE(touched_ms, 0);
  header.writeUInt16LE(pages.length / ENTRY_BYTES, 8);
  header.writeUInt16LE(entries.length / ENTRY_BYTES, 10);
  return { type: FrameType.progress, payload: Buffer.concat([header, pages, entries, tail]) };
}

const finishedFrame = (address: Address, size: number, touched_ms: number): Frame => ({
  type: FrameType.finished,
  payload: json({ address, size, touched_ms }),
});
const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), 'utf8');
const parse = (frame: Frame): unknown => JSON.parse(Buffer.from(frame.payload).toString('utf8'));
