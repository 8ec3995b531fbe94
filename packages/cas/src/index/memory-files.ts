/**
 * A file system in memory, for the index of a volume in a directory that cannot be written.
 *
 * Contract: as FileSystem; nothing survives the process. Bound: the bytes that are written to it.
 */
import { dirname } from 'node:path';
import type { File, FileSystem } from '@ron/log';

interface Content {
  bytes: Buffer;
  length: number;
}

function errno(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

function fileOf(content: Content): File {
  const readNow = (into: Uint8Array, length: number, position: number): number => {
    const end = Math.min(position + length, content.length);
    if (end <= position) return 0;
    into.set(content.bytes.subarray(position, end));
    return end - position;
  };
  const write = (buffers: readonly Uint8Array[], position: number): void => {
    let at = position;
    for (const buffer of buffers) {
      const end = at + buffer.length;
      if (end > content.bytes.length) {
        const grown = Buffer.alloc(Math.max(end, content.bytes.length * 2));
        content.bytes.copy(grown);
        content.bytes = grown;
      }
      content.bytes.set(buffer, at);
      content.length = Math.max(content.length, end);
      at = end;
    }
  };
  return {
    readNow,
    read: async (into, length, position) => readNow(into, length, position),
    write: async (buffers, position) => write(buffers, position),
    sync: async () => undefined,
    truncate: async (bytes) => void (content.length = bytes),
    size: async () => content.length,
    close: async () => undefined,
  };
}

export function memoryFiles(): FileSystem {
  const files = new Map<string, Content>();
  const contentOf = (path: string): Content => {
    const content = files.get(path);
    if (content === undefined) throw errno('ENOENT', path);
    return content;
  };
  return {
    create: async (path) => {
      if (files.has(path)) throw errno('EEXIST', path);
      const content = { bytes: Buffer.alloc(0), length: 0 };
      files.set(path, content);
      return fileOf(content);
    },
    open: async (path) => fileOf(contentOf(path)),
    list: async (dir) =>
      [...files.keys()].filter((path) => dirname(path) === dir).map((path) => path.slice(dir.length + 1)),
    makeDir: async () => undefined,
    rename: async (from, to) => {
      files.set(to, contentOf(from));
      files.delete(from);
    },
    remove: async (path) => {
      contentOf(path);
      files.delete(path);
    },
    syncDir: async () => undefined,
  };
}
