/** The headers of the message that a webhook becomes. Values are printable ASCII of a bounded length. */
import type { Verified } from '../signatures/verify.ts';

const VALUE_CHARS_MAX = 256;
const PRINTABLE = /^[\x20-\x7e]+$/;

export interface MessageHeadersInit {
  readonly provider: string;
  readonly receipt: string;
  readonly content_type: string | undefined;
  readonly verified: Verified;
  readonly isTest: boolean;
}

export function messageHeaders(init: MessageHeadersInit): Readonly<Record<string, string>> {
  const { provider, receipt, content_type, verified, isTest } = init;
  return {
    'content-type': printable(content_type) ?? 'application/octet-stream',
    'ron-provider': provider,
    'ron-receipt': receipt,
    ...optional('ron-event', verified.event),
    ...optional('ron-delivery-id', verified.delivery_id),
    ...(isTest && { 'ron-test': '1' }),
  };
}

function optional(name: string, value: string | undefined): Readonly<Record<string, string>> {
  const text = printable(value);
  return text === undefined ? {} : { [name]: text };
}

function printable(value: string | undefined): string | undefined {
  return value !== undefined && value.length <= VALUE_CHARS_MAX && PRINTABLE.test(value) ? value : undefined;
}
