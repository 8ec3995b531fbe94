/**
 * The `Retry-After` of an answer (RFC 9110): seconds, or a date.
 *
 * Contract: undefined for a header that is absent, repeated or malformed. A date that has passed is 0.
 * Bound: `RETRY_AFTER_MS_MAX`. A retry that would have to wait past its deadline is not made.
 *
 *   retryAfter_ms(['120'], wall_ms); // 120_000
 */
const RETRY_AFTER_MS_MAX = 24 * 60 * 60 * 1000;
const HTTP_DATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

export function retryAfter_ms(values: readonly string[] | undefined, wall_ms: number): number | undefined {
  const [value] = values ?? [];
  if (value === undefined || values?.length !== 1) return undefined;
  const wait_ms = /^\d{1,10}$/.test(value)
    ? Number(value) * 1000
    : HTTP_DATE.test(value)
      ? Date.parse(value) - wall_ms
      : Number.NaN;
  return Number.isNaN(wait_ms) ? undefined : Math.min(Math.max(wait_ms, 0), RETRY_AFTER_MS_MAX);
}
