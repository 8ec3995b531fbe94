/** Numbers and durations in flags. A value out of bounds is a `usage` error that states the bounds. */
import { formatDuration, parseDuration_ms } from '@ron/config/units';
import { CliError } from './exits.ts';

export function numberArg(flag: string, text: string, min: number, max: number): number {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
  if (number >= min && number <= max) return number;
  throw new CliError('usage', `${flag} must be a number from ${min} to ${max}, not ${JSON.stringify(text)}`);
}

/** Such as `30s`, `5m` or `2h`, in milliseconds. */
export function durationArg(flag: string, text: string, min_ms: number, max_ms: number): number {
  const duration_ms = parseDuration_ms(text);
  if (duration_ms !== undefined && duration_ms >= min_ms && duration_ms <= max_ms) return duration_ms;
  const bounds = `from ${formatDuration(min_ms)} to ${formatDuration(max_ms)}, such as 30s or 5m`;
  throw new CliError('usage', `${flag} must be a duration ${bounds}, not ${JSON.stringify(text)}`);
}
