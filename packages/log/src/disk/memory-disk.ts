/**
 * An in-memory file system for amnesia mode.
 *
 * Contract: as `FileSystem`, until the process ends. Bound: `bytes_max` in all files. Overflow: `ENOSPC`, as on a full disk.
 */
import type { DiskRoom, File, FileSystem } from './file-system.ts';

interface Content {
  /** The bytes from `start` on. */
  bytes: Buffer;
  /** The first byte that was not discarded. */
  start: number;
  length: number;
}

export class MemoryDisk implements FileSystem {
  readonly #files = new Map<string, Content>();
  readonly #bytes_max: number;
  #used_bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  async create(path: string): Promise<File> {
    if (this.#files.has(path)) throw failure('EEXIST', path);
    const content: Content = { bytes: Buffer.alloc(0), start: 0, length: 0 };
    this.#files.set(path, content);
    return this.#file(content);
  }

  async open(path: string): Promise<File> {
    const content = this.#files.get(path);
    if (content === undefined) throw failure('ENOENT', path);
    return this.#file(content);
  }

  async list(dir: string): Promise<string[]> {
    const names = [...this.#files.keys()].filter((path) => path.startsWith(`${dir}/`));
    return names.map((path) => path.slice(dir.length + 1)).filter((name) => !name.includes('/'));
  }

  async makeDir(): Promise<void> {}

  async rename(from: string, to: string): Promise<void> {
    const content = this.#files.get(from);
    if (content === undefined) throw failure('ENOENT', from);
    await this.remove(to).catch(() => undefined);
    this.#files.delete(from);
    this.#files.set(to, content);
  }

  async remove(path: string): Promise<void> {
    const content = this.#files.get(path);
    if (content === undefined) throw failure('ENOENT', path);
    this.#used_bytes -= content.length - content.start;
    this.#files.delete(path);
  }

  async syncDir(): Promise<void> {}

  async room(): Promise<DiskRoom> {
    return { free_bytes: this.#bytes_max - this.#used_bytes, total_bytes: this.#bytes_max };
  }

  #file(content: Content): File {
    return {
      write: async (buffers, position) => {
        const bytes = Buffer.concat(buffers);
        this.#resize(content, Math.max(content.length, position + bytes.length));
        writeAt(content, bytes, position);
      },
      read: async (into, length, position) => {
        const end = Math.min(content.length, position + length);
        if (end <= position) return 0;
        const { bytes, start } = content;
        const kept = Math.min(end, Math.max(position, start));
        into.fill(0, 0, kept - position);
        into.set(bytes.subarray(kept - start, end - start), kept - position);
        return end - position;
      },
      discardStart: async (bytes) => this.#discard(content, Math.min(bytes, content.length)),
      sync: async () => undefined,
      truncate: async (bytes) => this.#resize(content, bytes),
      size: async () => content.length,
      close: async () => undefined,
    };
  }

  #resize(content: Content, length: number): void {
    const { start } = content;
    const kept = Math.max(0, length - start);
    const before = content.length - start;
    const used_bytes = this.#used_bytes + kept - before;
    if (used_bytes > this.#bytes_max) throw failure('ENOSPC', 'memory');
    if (kept > content.bytes.length) {
      const grown = Buffer.alloc(Math.max(kept, 2 * content.bytes.length));
      grown.set(content.bytes.subarray(0, before));
      content.bytes = grown;
    } else if (kept > before) content.bytes.fill(0, before, kept);
    content.length = length;
    content.start = Math.min(start, length);
    this.#used_bytes = used_bytes;
  }

  /** A read of discarded bytes returns zeros, as a hole in a file does. */
  #discard(content: Content, start: number): void {
    if (start <= content.start) return;
    content.bytes = Buffer.from(content.bytes.subarray(start - content.start, content.length - content.start));
    this.#used_bytes -= start - content.start;
    content.start = start;
  }
}

/** Bytes in front of `start` stay discarded. */
function writeAt({ bytes, start }: Content, written: Uint8Array, position: number): void {
  const skipped = Math.max(0, start - position);
  if (skipped < written.length) bytes.set(written.subarray(skipped), position + skipped - start);
}

function failure(code: string, path: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}
