/** `GET` and `PUT /admin/brownout`: the mode, and the figures of each upstream beside their limits. */
import { json, route, Type, type Route } from '@ron/ingress';
import { sched } from '@ron/kernel';
import { BROWNOUT_UPSTREAMS, INTEROP_LIMITS } from '@ron/proto';
import type { AuditEvent } from '../audit/audit-event.ts';
import type { Sentinel } from '../upstreams/sentinel.ts';

const Mode = Type.Union([Type.Literal('auto'), Type.Literal('on'), Type.Literal('off')]);
/** One line of printable text: it is logged and shown. */
const Why = Type.String({
  minLength: 1,
  maxLength: INTEROP_LIMITS.brownout_why_chars,
  pattern: '^[^\\p{C}\\u2028\\u2029]+$',
});
const request = {
  mode: Mode,
  until_ms: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  why: Type.Optional(Why),
};
const Request = Type.Object(request, { additionalProperties: false });
const Upstream = Type.Object(
  {
    upstream: Type.Union(BROWNOUT_UPSTREAMS.map((name) => Type.Literal(name))),
    active: Type.Boolean(),
    sheds: Type.Boolean(),
    error_rate: Type.Optional(Type.Number()),
    error_rate_limit: Type.Number(),
    p95_ms: Type.Optional(Type.Number()),
    p95_limit_ms: Type.Number(),
    breaker: Type.String(),
  },
  { additionalProperties: false },
);
const Answer = Type.Object(
  { ...request, active: Type.Boolean(), upstreams: Type.Array(Upstream) },
  { additionalProperties: false },
);

export interface BrownoutRoutesInit {
  readonly sentinel: Pick<Sentinel, 'mode' | 'set'>;
  /** Hands an event to the audit channel; never waits. */
  readonly audit: (event: AuditEvent) => void;
}

export function brownoutRoutes({ sentinel, audit }: BrownoutRoutesInit): Route[] {
  const ADMIN = { scope: 'interop:admin', lane: 'inline', path: '/admin/brownout' } as const;
  const answer = () => json(200, sentinel.mode(), { 'Cache-Control': 'no-store' });
  return [
    route({
      ...ADMIN,
      method: 'GET',
      summary: 'The brownout mode, and the figures of each upstream beside their limits.',
      body: 'none',
      schema: { response: { 200: Answer } },
      handler: answer,
    }),
    route({
      ...ADMIN,
      method: 'PUT',
      summary:
        'Sets the brownout mode. `on` and `off` need `until_ms`, at most 24 h ahead; `auto` returns then, or after a restart.',
      body: 'buffered',
      schema: { body: Request, response: { 200: Answer } },
      handler: ({ body, grant, corr_id }) => {
        sentinel.set(body);
        const { subject, capability_id } = grant!;
        const { mode, why: detail } = body;
        const by = { subject, capability_id, corr_id, ...(detail !== undefined && { detail }) };
        audit({ kind: 'admin', at_ms: sched.wall_ms(), action: `brownout ${mode}`, ...by });
        return answer();
      },
    }),
  ];
}
