/**
 * Durations, sizes and rates as people write them: `5s`, `1MiB`, `50MiB/s`.
 *
 * Contract: parsing is exact or refused (undefined), never rounded; `parse(format(x))` is x for every whole x.
 * Bound: results are whole and at most 2^53 - 1. Overflow: larger is refused.
 */

const DURATION_UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;

// Binary units first: `format` takes the first that divides exactly.
const SIZE_UNITS_BYTES = {
  TiB: 1024 ** 4,
  GiB: 1024 ** 3,
  MiB: 1024 ** 2,
  KiB: 1024,
  TB: 1000 ** 4,
  GB: 1000 ** 3,
  MB: 1000 ** 2,
  kB: 1000,
  B: 1,
} as const;

/** `200ms`, `5s`, `1.5m`, `2h`, `1d`; a bare number is milliseconds. */
export function parseDuration_ms(text: string): number | undefined {
  return parseQuantity(text, DURATION_UNITS_MS);
}

/** `64KiB`, `1MiB`, `10MB`; a bare number is bytes. */
export function parseSize_bytes(text: string): number | undefined {
  return parseQuantity(text, SIZE_UNITS_BYTES);
}

/** `50MiB/s`; a bare number is bytes per second. */
export function parseRate_bytes_per_s(text: string): number | undefined {
  if (/^\d+$/.test(text)) return parseQuantity(text, SIZE_UNITS_BYTES);
  return text.endsWith('/s') ? parseQuantity(text.slice(0, -2), SIZE_UNITS_BYTES) : undefined;
}

export function formatDuration(duration_ms: number): string {
  return formatQuantity(duration_ms, DURATION_UNITS_MS, 'ms');
}

export function formatSize(size_bytes: number): string {
  return formatQuantity(size_bytes, BINARY_UNITS_BYTES, 'B');
}

export function formatRate(rate_bytes_per_s: number): string {
  return `${formatSize(rate_bytes_per_s)}/s`;
}

const { TiB, GiB, MiB, KiB } = SIZE_UNITS_BYTES;
const BINARY_UNITS_BYTES = { TiB, GiB, MiB, KiB };

function parseQuantity(text: string, units: Readonly<Record<string, number>>): number | undefined {
  const match = /^(\d{1,16})(?:\.(\d{1,9}))?([a-zA-Z]*)$/.exec(text);
  if (match === null) return undefined;
  const [, whole = '', fraction = '', unit = ''] = match;
  if (unit === '' && fraction !== '') return undefined;
  const scale = unit === '' ? 1 : Object.hasOwn(units, unit) ? units[unit]! : undefined;
  if (scale === undefined) return undefined;
  // In whole numbers: 1.1 * 1000 is 1100.0000000000002.
  const numerator = BigInt(whole + fraction) * BigInt(scale);
  const denominator = 10n ** BigInt(fraction.length);
  if (numerator % denominator !== 0n) return undefined;
  const value = Number(numerator / denominator);
  return Number.isSafeInteger(value) ? value : undefined;
}

function formatQuantity(value: number, units: Readonly<Record<string, number>>, base: string): string {
  for (const [unit, scale] of Object.entries(units)) {
    if (value !== 0 && value % scale === 0) return `${value / scale}${unit}`;
  }
  return `${value}${base}`;
}
