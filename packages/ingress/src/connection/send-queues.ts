/**
 * Measures how many sent bytes the peers of TCP connections have not acknowledged.
 *
 * Contract: reads the `tx_queue` column of `/proc/self/net/tcp` and `tcp6` (the value of `SIOCOUTQ`) once for all sockets
 * of a call. A socket that is not found has no entry in the result: Unix sockets, other systems, a table beyond the bound.
 * Bound: `TABLE_BYTES_MAX` of each table, `READ_BYTES` in memory. The kernel returns 4 KiB per read, so a table of 12 000
 * connections takes about 500 reads in the thread pool and 50 ms; the caller decides how often. Never rejects.
 * Cancellation: `signal` ends it before the next read.
 *
 *   const queued = await queuedBytes([socket], signal);
 *   const acknowledged = sent_bytes - (queued.get(socket) ?? 0);
 */
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { isIPv4 } from 'node:net';
import type { Socket } from 'node:net';
import { endianness } from 'node:os';

const TABLE_BYTES_MAX = 8 * 1024 * 1024;
const READ_BYTES = 64 * 1024;
const TABLES = { 4: '/proc/self/net/tcp', 6: '/proc/self/net/tcp6' } as const;

type Family = keyof typeof TABLES;

export async function queuedBytes(
  sockets: Iterable<Socket>,
  signal: AbortSignal,
): Promise<ReadonlyMap<Socket, number>> {
  const wanted: Record<Family, Map<string, Socket>> = { 4: new Map(), 6: new Map() };
  for (const socket of sockets) {
    const { localAddress, localPort, remoteAddress, remotePort } = socket;
    if (localAddress === undefined || remoteAddress === undefined) continue;
    const family: Family = isIPv4(localAddress) ? 4 : 6;
    wanted[family].set(`${entry(localAddress, localPort!)} ${entry(remoteAddress, remotePort!)}`, socket);
  }
  const found = new Map<Socket, number>();
  for (const family of [4, 6] as const) {
    if (wanted[family].size === 0) continue;
    try {
      await scan(TABLES[family], wanted[family], found, signal);
    } catch {
      // No such table on this system: the sockets stay unmeasured.
    }
  }
  return found;
}

async function scan(
  path: string,
  wanted: Map<string, Socket>,
  found: Map<Socket, number>,
  signal: AbortSignal,
): Promise<void> {
  await using file: FileHandle = await open(path);
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  let rest = '';
  for (let total = 0; total < TABLE_BYTES_MAX && wanted.size > 0 && !signal.aborted;) {
    const { bytesRead } = await file.read(buffer, 0, READ_BYTES, null);
    if (bytesRead === 0) return;
    total += bytesRead;
    const lines = (rest + buffer.toString('latin1', 0, bytesRead)).split('\n');
    rest = lines.pop()!;
    for (const line of lines) take(line, wanted, found);
  }
}

/** A line is `sl: local remote state tx_queue:rx_queue ...`. */
function take(line: string, wanted: Map<string, Socket>, found: Map<Socket, number>): void {
  const local_at = line.indexOf(': ') + 2;
  const remote_at = line.indexOf(' ', local_at) + 1;
  const remote_end = line.indexOf(' ', remote_at);
  const key = line.slice(local_at, remote_end);
  const socket = wanted.get(key);
  if (socket === undefined) return;
  wanted.delete(key);
  const queue_at = line.indexOf(' ', remote_end + 1) + 1;
  const queued_bytes = Number.parseInt(line.slice(queue_at, line.indexOf(':', queue_at)), 16);
  if (Number.isSafeInteger(queued_bytes)) found.set(socket, queued_bytes);
}

/** An address as these tables print it: words of 32 bits in the byte order of the machine, then the port. */
function entry(address: string, port: number): string {
  const bytes = isIPv4(address) ? bytesOf4(address) : bytesOf6(address);
  if (endianness() === 'LE') bytes.swap32();
  return `${bytes.toString('hex').toUpperCase()}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
}

function bytesOf4(address: string): Buffer {
  return Buffer.from(address.split('.').map(Number));
}

function bytesOf6(address: string): Buffer {
  const bytes = Buffer.alloc(16);
  const [head = '', tail] = address.split('%')[0]!.split('::');
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  before.forEach((group, index) => bytes.writeUInt16BE(group, index * 2));
  after.forEach((group, index) => bytes.writeUInt16BE(group, 16 - (after.length - index) * 2));
  return bytes;
}

function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const bytes = bytesOf4(group);
    return [bytes.readUInt16BE(0), bytes.readUInt16BE(2)];
  });
}
