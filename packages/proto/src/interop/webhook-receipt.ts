/**
 * Receipts of webhooks: their canonical JSON, which is a leaf of a signed tree, and their strict check.
 *
 * Contract: a receipt has one canonical text: sorted keys, no spaces. `receiptProblem` refuses a missing, an extra and a
 * malformed field, so a receipt without a problem is equal to another one exactly if their texts are.
 * Bound: `RECEIPT_LIMITS`.
 */
import { isUlid } from '../ulid.ts';
import { INTEROP_LIMITS } from './limits.ts';
import { HOOKS_PREFIX, PROVIDER_PATTERN, SCHEMES } from './providers.ts';
import type { WebhookReceipt } from './receipts.ts';

export const RECEIPT_LIMITS = {
  /** Receipts in a tree. */
  tree: 128,
  delivery_id_chars: 1024,
  topic_chars: 256,
} as const;

const PROVIDER = new RegExp(PROVIDER_PATTERN);
const B3 = /^b3:[0-9a-f]{64}$/;

type Check = (value: unknown) => boolean;

/** `-0` is refused: its text is that of 0. */
const isCount: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
const isText =
  (chars_max: number): Check =>
  (value) =>
    typeof value === 'string' && value.length > 0 && value.length <= chars_max;

/** In the order of the canonical text. */
const FIELDS: Readonly<Record<keyof WebhookReceipt, Check>> = {
  b3: (value) => typeof value === 'string' && B3.test(value),
  bytes: (value) => isCount(value) && (value as number) <= INTEROP_LIMITS.webhook_bytes,
  delivery_id: isText(RECEIPT_LIMITS.delivery_id_chars),
  id: isUlid,
  provider: (value) => typeof value === 'string' && PROVIDER.test(value),
  received_ms: isCount,
  scheme: (value) => SCHEMES.some((scheme) => scheme === value),
  secret_version: isCount,
  topic: (value) => isText(RECEIPT_LIMITS.topic_chars)(value) && (value as string).startsWith(HOOKS_PREFIX),
};
const NAMES = Object.keys(FIELDS) as (keyof WebhookReceipt)[];
const OPTIONAL: ReadonlySet<string> = new Set<keyof WebhookReceipt>(['delivery_id']);

export function canonicalReceipt(receipt: WebhookReceipt): string {
  return JSON.stringify(Object.fromEntries(NAMES.map((name) => [name, receipt[name]])));
}

/** Why a value is not a receipt; undefined if it is one. */
export function receiptProblem(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'the receipt is not an object';
  const extra = Object.keys(value).find((name) => !Object.hasOwn(FIELDS, name));
  if (extra !== undefined) return `the receipt has an unknown field: ${JSON.stringify(extra)}`;
  for (const name of NAMES) {
    if (!Object.hasOwn(value, name)) {
      if (OPTIONAL.has(name)) continue;
      return `the receipt has no ${name}`;
    }
    if (!FIELDS[name]((value as Partial<Record<string, unknown>>)[name]))
      return `the ${name} of the receipt is not valid`;
  }
  return undefined;
}
