/**
 * GitHub: `X-Hub-Signature-256: sha256=<hex>` over the body.
 *
 * Contract: no time is signed, so a replay is accepted once the dedup window has passed. Delivery id and event are unsigned.
 * The SHA-1 header that GitHub also sends is not read.
 */
import type { SignedRequest } from '../verify.ts';
import { b3Of } from './body-fields.ts';
import { decodeHex, isRepeated, SHA256_BYTES, soleHeader, unsignedText, type Parsed } from './claim.ts';

export const GITHUB = {
  signature: 'x-hub-signature-256',
  delivery: 'x-github-delivery',
  event: 'x-github-event',
  prefix: 'sha256=',
} as const;

export function parseGithub(request: SignedRequest): Parsed {
  const header = soleHeader(request, GITHUB.signature);
  if (header === undefined) return 'X-Hub-Signature-256 is missing or repeated';
  if (isRepeated(request, GITHUB.delivery) || isRepeated(request, GITHUB.event))
    return 'X-GitHub-Delivery or X-GitHub-Event is repeated';
  if (!header.startsWith(GITHUB.prefix)) return 'X-Hub-Signature-256 has no known version';
  const bytes = decodeHex(header.slice(GITHUB.prefix.length), SHA256_BYTES);
  if (bytes === undefined) return 'X-Hub-Signature-256 is not 64 digits of lower-case hex';
  return {
    prefix: '',
    algorithm: 'sha256',
    signatures: [{ kind: 'hmac', bytes }],
    describe() {
      const delivery_id = unsignedText(request, GITHUB.delivery);
      const event = unsignedText(request, GITHUB.event);
      return {
        dedup: b3Of(request.body),
        answers_empty: false,
        ...(delivery_id !== undefined && { delivery_id }),
        ...(event !== undefined && { event }),
      };
    },
  };
}
