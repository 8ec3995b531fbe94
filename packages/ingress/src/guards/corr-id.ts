/**
 * Correlation ids: the client's own if it is safe to echo, otherwise a new ULID.
 *
 * Contract: 26 characters of Crockford base32, unique, and strictly ascending within the process even if the clock
 * stops or goes back. An echoed id holds nothing that could break a header, a log line or a metric.
 * Bound: one pool of random bytes, a table of 1024 character pairs. Overflow: an exhausted half of the counter carries
 * into the half above it, and that one into the time. Never waits.
 *
 *   01J9ZK3Q7B  C4D8WZ1V  00A7  K2M4
 *   time        random    high  low      48 + 40 + 20 + 20 bits; fresh random bits in each millisecond, then `low` counts
 */
import { sched } from '@ron/kernel';

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const PAIRS: readonly string[] = Array.from({ length: 1024 }, (_, n) => ALPHABET[n >> 5]! + ALPHABET[n & 31]!);
const TIME_MS_MAX = 2 ** 48 - 1;
const HALF_MAX = 2 ** 20 - 1;
const POOL_BYTES = 2000;
const DRAW_BYTES = 10;

let pool = new Uint8Array(0);
let pool_used = 0;
let time_ms = -1;
/** Time and random: characters 1 to 18 of every id of this millisecond. */
let stem = '';
/** `stem` and the high half of the counter: characters 1 to 22. */
let prefix = '';
let high = 0;
let low = 0;

/** A new ULID. Cheap enough for every request: one clock read, one addition and two lookups. */
export function newCorrId(): string {
  const wall_ms = sched.wall_ms();
  if (wall_ms > time_ms) startMillisecond(wall_ms);
  else if (low === HALF_MAX) carry();
  else low += 1;
  return prefix + PAIRS[low >> 10]! + PAIRS[low & 1023]!;
}

function startMillisecond(next_ms: number): void {
  time_ms = next_ms;
  if (pool_used + DRAW_BYTES > pool.length) {
    pool = sched.randomBytes(POOL_BYTES);
    pool_used = 0;
  }
  const draw = pool.subarray(pool_used, pool_used + DRAW_BYTES);
  pool_used += DRAW_BYTES;
  stem = base32(Math.min(Math.max(Math.floor(next_ms), 0), TIME_MS_MAX), 10) + base32(readUint(draw, 0, 5), 8);
  high = readUint(draw, 5, 3) & HALF_MAX;
  low = readUint(draw, 7, 3) & HALF_MAX;
  prefix = stem + PAIRS[high >> 10]! + PAIRS[high & 1023]!;
}

function carry(): void {
  // Both halves are full only if the clock went far back: take the next millisecond rather than repeat an id.
  if (high === HALF_MAX) return startMillisecond(time_ms + 1);
  high += 1;
  low = 0;
  prefix = stem + PAIRS[high >> 10]! + PAIRS[high & 1023]!;
}

function readUint(bytes: Uint8Array, at: number, length: number): number {
  let value = 0;
  for (let i = at; i < at + length; i += 1) value = value * 256 + bytes[i]!;
  return value;
}

function base32(value: number, length: number): string {
  let text = '';
  for (let rest = value; text.length < length; rest = Math.floor(rest / 32)) text = ALPHABET[rest % 32]! + text;
  return text;
}

/** Whether a client's id may be echoed. */
export function isCorrId(text: string): boolean {
  return /^[0-9A-Za-z_-]{1,64}$/.test(text);
}

/** The id of a request: its `X-Corr-ID`, or a new one. */
export function corrIdFrom(header: string | undefined): string {
  return header !== undefined && isCorrId(header) ? header : newCorrId();
}
