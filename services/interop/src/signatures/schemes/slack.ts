/**
 * Slack: `X-Slack-Signature: v0=<hex>` over `v0:<time>:<body>`, for events, slash commands and interactions.
 *
 * Contract: events are deduplicated by `event_id`, which a retry repeats with a new time. Other requests have no id; two equal
 * slash commands differ in their time only, so it is part of the dedup value.
 */
import type { SignedRequest } from '../verify.ts';
import { jsonMembers, type Members, type TakeTurn } from '../json-members.ts';
import { b3Of, idValue, textMember } from './body-fields.ts';
import { decodeHex, isPlainText, isTime, SHA256_BYTES, soleHeader, type Description, type Parsed } from './claim.ts';

export const SLACK = {
  signature: 'x-slack-signature',
  timestamp: 'x-slack-request-timestamp',
  prefix: 'v0=',
} as const;

export const slackPrefix = (time: string): string => `v0:${time}:`;

export function parseSlack(request: SignedRequest): Parsed {
  const header = soleHeader(request, SLACK.signature);
  if (header === undefined) return 'X-Slack-Signature is missing or repeated';
  const time = soleHeader(request, SLACK.timestamp);
  if (time === undefined) return 'X-Slack-Request-Timestamp is missing or repeated';
  if (!isTime(time)) return 'X-Slack-Request-Timestamp is not a decimal time';
  if (!header.startsWith(SLACK.prefix)) return 'X-Slack-Signature has no known version';
  const bytes = decodeHex(header.slice(SLACK.prefix.length), SHA256_BYTES);
  if (bytes === undefined) return 'X-Slack-Signature is not 64 digits of lower-case hex';
  return {
    prefix: slackPrefix(time),
    algorithm: 'sha256',
    signatures: [{ kind: 'hmac', bytes }],
    signed_s: Number(time),
    describe: (takeTurn) => describe(request.body, time, takeTurn),
  };
}

const MEMBERS = { event_id: 'text', type: 'text', challenge: 'text', event: { type: 'text' } } as const;

async function describe(body: Uint8Array, time: string, takeTurn: TakeTurn): Promise<Description> {
  const members = await jsonMembers(body, MEMBERS, takeTurn);
  const delivery_id = textMember(members, 'event_id');
  const event = eventOf(members) ?? commandOf(body);
  const challenge = textMember(members, 'type') === 'url_verification' ? textMember(members, 'challenge') : undefined;
  return {
    dedup: delivery_id === undefined ? `${b3Of(body)}:${time}` : idValue(delivery_id),
    answers_empty: true,
    ...(delivery_id !== undefined && { delivery_id }),
    ...(event !== undefined && { event }),
    ...(challenge !== undefined && { challenge }),
  };
}

/** The type of the inner event, which is more specific than `event_callback`. */
function eventOf(members: Members): string | undefined {
  const inner = (members['event'] ?? {}) as Members;
  return textMember(inner, 'type') ?? textMember(members, 'type');
}

const COMMAND = Buffer.from('command=');
/** A larger form is not decoded: only the name of the command is read from it. */
const FORM_BYTES_MAX = 64 * 1024;

/** The name of a slash command, such as `/weather`. */
function commandOf(body: Uint8Array): string | undefined {
  const form = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (form.length > FORM_BYTES_MAX || !form.includes(COMMAND)) return undefined;
  const command = new URLSearchParams(form.toString()).get('command');
  return isPlainText(command) ? command : undefined;
}
