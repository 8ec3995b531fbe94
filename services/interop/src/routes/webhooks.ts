/** `POST /webhooks/{provider}`: open, because the signature is the proof of origin. */
import { route, Type, type Route } from '@ron/ingress';
import { INTEROP_LIMITS } from '@ron/proto';
import type { Intake } from '../webhooks/intake.ts';

/** Any other name is an unknown provider, not a malformed request. */
const Params = Type.Object({ provider: Type.String() }, { additionalProperties: false });
const Accepted = Type.Object(
  {
    receipt: Type.String(),
    duplicate: Type.Boolean(),
    b3: Type.String(),
    place: Type.Union([Type.Literal('mailbox'), Type.Literal('spool')]),
  },
  { additionalProperties: false },
);

export interface WebhookRoutesInit {
  readonly intake: Pick<Intake, 'handle'>;
}

export function webhookRoutes({ intake }: WebhookRoutesInit): Route[] {
  return [
    route({
      method: 'POST',
      path: '/webhooks/:provider',
      summary:
        'Accepts a signed webhook: 202 once the message and its receipt are durable. Slack gets 200 with an empty body.',
      scope: null,
      lane: 'inline',
      body: 'stream',
      body_bytes_max: INTEROP_LIMITS.webhook_bytes,
      decoded_bytes_max: INTEROP_LIMITS.webhook_bytes,
      deadline: 'intake',
      statuses: [200],
      schema: { params: Params, response: { 202: Accepted } },
      handler: (context) => intake.handle(context.params.provider, context),
    }),
  ];
}
