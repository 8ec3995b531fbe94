/**
 * Reads the log of a directory without changing anything: for proofs, beside a running process or on a copy.
 *
 * Contract: every record with a valid header and body is reported once, in log order; so is damage, as in SegmentLog. The
 * torn tail of the last segment is not damage: a start cuts it off. Bound: as in scan.ts. Cancellation: by the signal.
 */
import { join } from 'node:path';
import { realFileSystem, type FileSystem } from '../disk/file-system.ts';
import type { Position, RecordHead } from './record.ts';
import { scan } from './scan.ts';
import { fileNameOf, listSegments } from './segment-leftovers.ts';
import type { Damage } from './segment-log.ts';

export interface ScanDirectoryInit {
  /** The directory of the log. */
  dir: string;
  /** Default: the real one. */
  fs?: FileSystem;
  /** The segments to read, and where each one ends. Default: all, completely. */
  ends?: ReadonlyMap<number, number>;
  onRecord: (head: RecordHead, position: Position, body: Buffer) => void | Promise<void>;
  onDamage: (damage: Damage) => void;
  /** As in `SegmentLogInit`. */
  skipsUnreadable?: boolean;
  /** As in scan.ts. */
  onBadBody?: (head: RecordHead, position: Position, body: Buffer) => boolean | void;
  /** Called after each segment. */
  onSegment?: (done: { readonly bytes: number; readonly bytes_total: number }) => void;
  signal: AbortSignal;
}

interface Part {
  readonly segment: number;
  readonly salt: number;
  readonly path: string;
  readonly bytes: number;
}

/** Returns the number of segments and their bytes. */
export async function scanDirectory(init: ScanDirectoryInit): Promise<{ segments: number; bytes: number }> {
  const { fs = realFileSystem } = init;
  const parts = await partsOf(fs, join(init.dir, 'segments'), init.ends);
  const bytes_total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  let bytes = 0;
  for (const part of parts) {
    const torn = await scanPart(fs, part, init);
    const isLast = part === parts.at(-1);
    if (torn.bytes > 0 && !isLast) init.onDamage({ segment: part.segment, ...torn, what: 'torn tail' });
    bytes += part.bytes;
    init.onSegment?.({ bytes, bytes_total });
  }
  return { segments: parts.length, bytes };
}

async function partsOf(fs: FileSystem, dir: string, ends: ScanDirectoryInit['ends']): Promise<Part[]> {
  const parts: Part[] = [];
  for (const { segment, salt, isMarked } of await listSegments(fs, dir)) {
    if (ends !== undefined && !ends.has(segment)) continue;
    const path = join(dir, fileNameOf(segment, salt, isMarked ? 'dup' : 'seg'));
    const file = await fs.open(path, 'read');
    try {
      parts.push({ segment, salt, path, bytes: ends?.get(segment) ?? (await file.size()) });
    } finally {
      await file.close();
    }
  }
  return parts;
}

async function scanPart(
  fs: FileSystem,
  part: Part,
  init: ScanDirectoryInit,
): Promise<{ offset: number; bytes: number }> {
  const { segment, salt } = part;
  if (part.bytes === 0) return { offset: 0, bytes: 0 };
  const file = await fs.open(part.path, 'read');
  try {
    const end = await scan({
      file,
      from: 0,
      until: part.bytes,
      salt,
      onRecord: (head, offset, body) => init.onRecord(head, { segment, offset }, body),
      onGap: (offset, bytes) => init.onDamage({ segment, offset, bytes, what: 'gap' }),
      onBadBody: (head, offset, body) => init.onBadBody?.(head, { segment, offset }, body),
      onUnreadable:
        init.skipsUnreadable === true
          ? (offset, bytes) => init.onDamage({ segment, offset, bytes, what: 'unreadable part' })
          : undefined,
      signal: init.signal,
    });
    return { offset: end.tail, bytes: end.torn_bytes };
  } finally {
    await file.close();
  }
}
