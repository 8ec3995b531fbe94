/** `--header NAME:VALUE`. */
import { MAILBOX_LIMITS } from '@ron/proto';
import { usage } from '../args.ts';

/** `token` of RFC 9110, in lower case. */
const NAME = /^[a-z0-9!#$%&'*+.^_`|~-]+$/;

export function headersArg(texts: readonly string[]): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  for (const text of texts) {
    const colon = text.indexOf(':');
    const name = text.slice(0, Math.max(0, colon)).trim().toLowerCase();
    if (!NAME.test(name)) throw usage({ name: 'queue' }, `--header must be NAME:VALUE, not ${JSON.stringify(text)}`);
    if (Object.hasOwn(headers, name)) throw usage({ name: 'queue' }, `duplicate header ${name}`);
    Object.defineProperty(headers, name, { value: text.slice(colon + 1).trim(), enumerable: true });
  }
  const { headers: count_max, headers_bytes } = MAILBOX_LIMITS;
  if (texts.length > count_max) throw usage({ name: 'queue' }, `a message has at most ${count_max} headers`);
  const bytes = Object.entries(headers).reduce((sum, pair) => sum + Buffer.byteLength(pair.join('')), 0);
  if (bytes > headers_bytes) throw usage({ name: 'queue' }, `headers have at most ${headers_bytes} bytes`);
  return headers;
}
