/** Schemas of the routes. Limits are those of `MAILBOX_LIMITS`; byte lengths and header bytes are checked in `outgoing.ts`. */
import { parseDuration_ms, parseSize_bytes } from '@ron/config';
import { Type, type JsonSchema } from '@ron/ingress';
import {
  MAILBOX_LIMITS,
  TOPIC_PATTERN,
  ULID_PATTERN,
  type DeadLetterDto,
  type DeadPageDto,
  type PeekedMessage,
  type ReceivedMessage,
  type TopicDto,
  type TopicLedger,
  type TopicPolicy,
} from '@ron/proto';
import { POLICY_BOUNDS } from '../config.ts';
import { DEAD_REASONS } from '../store/records.ts';

/** Exactly one schema for each field of `T`. */
type Fields<T> = Record<keyof T, JsonSchema>;

const { batch_messages, headers, key_bytes, delay_ms, topic_chars, page } = MAILBOX_LIMITS;
const { visibility_ms_min, visibility_ms_max, wait_ms, receive_bytes_max } = MAILBOX_LIMITS;
const TOKEN_CHARS_MAX = 128;

const strict = { additionalProperties: false } as const;
/** A request without a body fits too: the listener checks it as `null`, and the handler gets undefined. */
const orNone = <T>(schema: JsonSchema<T>): JsonSchema<T | undefined> => ({ ...schema, type: ['object', 'null'] });
const count = (maximum: number): JsonSchema<number> => Type.Integer({ minimum: 1, maximum });
const Count = Type.Integer({ minimum: 0 });

const Topic = Type.String({ pattern: TOPIC_PATTERN, maxLength: topic_chars });
const Key = Type.String({ minLength: 1, maxLength: key_bytes });
export const TopicParams = Type.Object({ topic: Topic }, strict);

/** Lower-case names of HTTP. `outgoing.ts` limits their bytes: a `maxLength` would count the characters of each value. */
const Headers = Type.Record(Type.String(), {
  maxProperties: headers,
  propertyNames: { pattern: "^[a-z0-9][a-z0-9!#$%&'*+.^_`|~-]{0,127}$" },
});

const headFields = {
  topic: Topic,
  id: Type.Optional(Type.String({ pattern: ULID_PATTERN, description: 'A label. Default: made by mailbox.' })),
  key: Type.Optional({ ...Key, description: 'Messages of one key are delivered one at a time and in order.' }),
  idempotency_key: Type.Optional(Key),
  delay_ms: Type.Optional(Type.Integer({ minimum: 0, maximum: delay_ms })),
  headers: Type.Optional(Headers),
};
/** The head of a message in a framed batch. */
export const Head = Type.Object(headFields, strict);
const Base64 = Type.String({ description: 'Base64.' });
export const SendBody = Type.Object(
  {
    messages: Type.Array(Type.Object({ ...headFields, payload: Base64 }, strict), {
      minItems: 1,
      maxItems: batch_messages,
    }),
  },
  strict,
);

const stored = { id: Type.String(), seq: Count, duplicate: Type.Boolean(), b3: Type.String() };
export const Stored = Type.Object(stored, strict);
/** A stored or a refused message. */
export const SendResults = Type.Object(
  {
    results: Type.Array(
      Type.Object(
        {
          id: Type.Optional(stored.id),
          seq: Type.Optional(stored.seq),
          duplicate: Type.Optional(stored.duplicate),
          b3: Type.Optional(stored.b3),
          error: Type.Optional(Type.Unsafe<string>({ type: 'string', enum: ['conflict', 'full', 'topic'] })),
          detail: Type.Optional(Type.String()),
          retryable: Type.Optional(Type.Literal(false)),
        },
        strict,
      ),
    ),
  },
  strict,
);

export const ReceiveBody = orNone(
  Type.Object(
    {
      max: Type.Optional(count(batch_messages)),
      visibility_ms: Type.Optional(Type.Integer({ minimum: visibility_ms_min, maximum: visibility_ms_max })),
      wait_ms: Type.Optional(Type.Integer({ minimum: 0, maximum: wait_ms })),
      bytes_max: Type.Optional(count(receive_bytes_max)),
    },
    strict,
  ),
);

const peekedFields = {
  id: Type.String(),
  seq: Count,
  delivery: Count,
  attempts: Count,
  sent_ms: Type.Integer(),
  key: Type.Optional(Type.String()),
  headers: Type.Record(Type.String()),
  replay_of: Type.Optional(Type.String()),
  b3: Type.String(),
  payload: Base64,
} satisfies Fields<PeekedMessage>;
const receivedFields = { ...peekedFields, token: Type.String() } satisfies Fields<ReceivedMessage>;
export const Peeked = Type.Object({ messages: Type.Array(Type.Object(peekedFields, strict)) }, strict);
export const Received = Type.Object({ messages: Type.Array(Type.Object(receivedFields, strict)) }, strict);

const tokens = Type.Array(Type.String({ maxLength: TOKEN_CHARS_MAX }), { minItems: 1, maxItems: batch_messages });
export const AckBody = Type.Object({ tokens }, strict);
export const NackBody = Type.Object(
  {
    tokens,
    delay_ms: Type.Optional(Type.Integer({ minimum: 0, maximum: delay_ms })),
    error: Type.Optional(Type.String({ description: 'Kept with a dead letter. Cut after 1 KiB.' })),
    dead: Type.Optional(Type.Boolean({ description: 'Turns the messages into dead letters now.' })),
  },
  strict,
);
export const ExtendBody = Type.Object(
  { tokens, visibility_ms: Type.Integer({ minimum: visibility_ms_min, maximum: visibility_ms_max }) },
  strict,
);
export const TokenResults = Type.Object(
  { results: Type.Array(Type.Unsafe<string>({ type: 'string', enum: ['ok', 'stale', 'unknown'] })) },
  strict,
);

const bytesIn = ({ min, max }: { readonly min: string; readonly max: string }): JsonSchema<number> =>
  Type.Integer({ minimum: parseSize_bytes(min)!, maximum: parseSize_bytes(max)! });
const msIn = ({ min, max }: { readonly min: string; readonly max: string }): JsonSchema<number> =>
  Type.Integer({ minimum: parseDuration_ms(min)!, maximum: parseDuration_ms(max)! });
const policyFields = {
  max_messages: count(POLICY_BOUNDS.max_messages.max),
  max_bytes: bytesIn(POLICY_BOUNDS.max_bytes),
  max_age_ms: msIn(POLICY_BOUNDS.max_age),
  max_deliveries: count(POLICY_BOUNDS.max_deliveries.max),
  window_ms: msIn(POLICY_BOUNDS.window),
  dead_max_age_ms: msIn(POLICY_BOUNDS.dead_max_age),
  dead_max_messages: count(POLICY_BOUNDS.dead_max_messages.max),
  dead_max_bytes: bytesIn(POLICY_BOUNDS.dead_max_bytes),
} satisfies Fields<TopicPolicy>;
export const PolicyBody = Type.Object(
  {
    max_messages: Type.Optional(policyFields.max_messages),
    max_bytes: Type.Optional(policyFields.max_bytes),
    max_age_ms: Type.Optional(policyFields.max_age_ms),
    max_deliveries: Type.Optional(policyFields.max_deliveries),
    window_ms: Type.Optional(policyFields.window_ms),
    dead_max_age_ms: Type.Optional(policyFields.dead_max_age_ms),
    dead_max_messages: Type.Optional(policyFields.dead_max_messages),
    dead_max_bytes: Type.Optional(policyFields.dead_max_bytes),
  } satisfies Fields<TopicPolicy>,
  strict,
);

const Ledger = Type.Object(
  {
    sent: Count,
    acked: Count,
    ready: Count,
    delayed: Count,
    leased: Count,
    dead: Count,
    gone: Count,
  } satisfies Fields<TopicLedger>,
  strict,
);
export const TopicAnswer = Type.Object(
  {
    topic: Type.String(),
    ledger: Ledger,
    bytes: Count,
    dead_bytes: Count,
    oldest_s: Type.Unsafe<number | null>({ type: ['number', 'null'] }),
    sent_per_s: Type.Number(),
    acked_per_s: Type.Number(),
    policy: Type.Object(policyFields, strict),
    policy_set: Type.Array(Type.String()),
    window_ms: Type.Number(),
    keys: Count,
  } satisfies Fields<TopicDto>,
  strict,
);
export const Topics = Type.Object({ topics: Type.Array(TopicAnswer) }, strict);

/** 1 to 128; query values are text. */
const Limit = Type.String({ pattern: '^(?:[1-9][0-9]?|1[01][0-9]|12[0-8])$', description: `1 to ${page}.` });
const SEQ = '(?:0|[1-9][0-9]{0,15})';
export const SendQuery = Type.Object(
  {
    ordered: Type.Optional(
      Type.String({
        pattern: '^1$',
        description: 'Messages behind one that is refused as `full` or `topic` are refused too, in each topic.',
      }),
    ),
  },
  strict,
);
export const LimitQuery = Type.Object({ limit: Type.Optional(Limit) }, strict);
export const DeadQuery = Type.Object(
  { after: Type.Optional(Type.String({ pattern: `^${SEQ}$` })), limit: Type.Optional(Limit) },
  strict,
);
export const DeleteQuery = Type.Object(
  {
    seqs: Type.Optional(
      Type.String({ pattern: `^${SEQ}(?:,${SEQ}){0,127}$`, description: 'Sequence numbers, separated by commas.' }),
    ),
    limit: Type.Optional(Limit),
  },
  strict,
);
export const ReplayBody = orNone(
  Type.Object(
    {
      seqs: Type.Optional(Type.Array(Count, { minItems: 1, maxItems: page })),
      limit: Type.Optional(count(page)),
    },
    strict,
  ),
);
export const Replayed = Type.Object({ replayed: Count, left: Count }, strict);
export const Deleted = Type.Object({ deleted: Count, left: Count }, strict);

const DeadLetter = Type.Object(
  {
    id: Type.String(),
    seq: Count,
    reason: Type.Unsafe<string>({ type: 'string', enum: [...DEAD_REASONS] }),
    attempts: Count,
    error: Type.Optional(Type.String()),
    key: Type.Optional(Type.String()),
    headers: Type.Record(Type.String()),
    b3: Type.String(),
    bytes: Count,
    sent_ms: Type.Integer(),
    dead_ms: Type.Integer(),
  } satisfies Fields<DeadLetterDto>,
  strict,
);
export const DeadPage = Type.Object(
  { dead: Type.Array(DeadLetter), next: Type.Optional(Count) } satisfies Fields<DeadPageDto>,
  strict,
);
