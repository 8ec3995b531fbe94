/**
 * Notes by name, independent of HTTP.
 *
 * Contract: a note is stored completely or not at all. Bound: `notes_max` notes; the newest stay in RAM up to
 * `ram_bytes`, all others are "cold" and are read in chunks with a pause in between, as if from a disk.
 */
import { createHash } from 'node:crypto';
import { RonError, sched } from '@ron/kernel';
import type { Cell } from '@ron/kernel';
import { FastEntry } from '@ron/ingress';
import type { ByteSource } from '@ron/ingress';

export const CHUNK_BYTES = 64 * 1024;
const NOTES_MAX = 1024;

interface Note {
  readonly bytes: Uint8Array;
  readonly media_type: string;
  readonly etag: string;
}

export interface ShelfState {
  readonly notes: Map<string, Note>;
  readonly hot: Map<string, FastEntry>;
  hot_bytes: number;
}

export const emptyShelf = (): ShelfState => ({ notes: new Map(), hot: new Map(), hot_bytes: 0 });

const HEADERS = { 'Cache-Control': 'no-cache', Vary: 'Accept-Encoding' };

export class Shelf {
  readonly #state: Cell<ShelfState>;
  readonly #ram_bytes: number;
  /** Set by tests: the next cold read fails after this many chunks. */
  break_after_chunks: number | undefined;

  constructor(state: Cell<ShelfState>, ram_bytes: number) {
    this.#state = state;
    this.#ram_bytes = ram_bytes;
  }

  put(name: string, bytes: Uint8Array, media_type: string): { created: boolean; etag: string } {
    const etag = `"${createHash('sha256').update(bytes).digest('hex')}"`;
    const note: Note = { bytes, media_type, etag };
    return this.#state.withSync((state) => {
      const created = !state.notes.has(name);
      if (created && state.notes.size >= NOTES_MAX) throw new RonError('storage_full', 'the shelf is full');
      state.notes.set(name, note);
      cool(state, name);
      if (state.hot_bytes + bytes.byteLength <= this.#ram_bytes) {
        const source = { ...this.#describe(note), ram: [bytes], read: () => this.#read(note, 0, bytes.byteLength) };
        state.hot.set(`/notes/${name}`, new FastEntry(source, { name }));
        state.hot_bytes += bytes.byteLength;
      }
      return { created, etag };
    });
  }

  /** For the fast path. */
  hot(target: string): FastEntry | undefined {
    return this.#state.withSync((state) => state.hot.get(target));
  }

  open(name: string): ByteSource {
    const note = this.#state.withSync((state) => state.notes.get(name));
    if (note === undefined) throw new RonError('not_found', `there is no note ${name}`);
    return { ...this.#describe(note), read: (start, end) => this.#read(note, start, end) };
  }

  #describe(note: Note): Omit<ByteSource, 'read'> {
    return { size: note.bytes.byteLength, etag: note.etag, media_type: note.media_type, headers: HEADERS };
  }

  async *#read(note: Note, start: number, end: number): AsyncGenerator<readonly Uint8Array[], void, void> {
    let chunks = 0;
    for (let at = start; at < end; at += CHUNK_BYTES) {
      if (chunks++ === this.break_after_chunks) throw new RonError('integrity', 'the note is damaged');
      await sched.pause('shelf');
      yield [note.bytes.subarray(at, Math.min(at + CHUNK_BYTES, end))];
    }
  }
}

function cool(state: ShelfState, name: string): void {
  const target = `/notes/${name}`;
  const entry = state.hot.get(target);
  if (entry === undefined) return;
  state.hot_bytes -= entry.source.size;
  state.hot.delete(target);
}
