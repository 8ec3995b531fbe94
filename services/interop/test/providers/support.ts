/** The provider routes behind a real listener, with providers on a directory, and an intake whose deliveries are kept. */
import { Deadline } from '@ron/kernel';
import { createIngress } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { tempDirFor, type After } from '@ron/testkit';
import { captureLog, send, type Reply } from '@ron/testkit/service';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { REASONS } from '../../src/reasons.ts';
import { openTest, type FakeKms } from '../../src/providers/testing/support.ts';
import { providerRoutes } from '../../src/routes/providers.ts';
import { webhookRoutes } from '../../src/routes/webhooks.ts';
import { Intake } from '../../src/webhooks/intake.ts';
import type { VerifiedDelivery } from '../../src/delivery/accepted.ts';
import { AddressRates } from '../../src/webhooks/address-rates.ts';
import { SourceChecks } from '../../src/webhooks/source-checks.ts';
import { ProviderLimiter } from '../../src/webhooks/provider-limiter.ts';
import { UnverifiedBytes } from '../../src/webhooks/unverified-bytes.ts';
import { ACCESS } from '../access.ts';

export interface ListeningInit {
  readonly kms?: FakeKms;
  /** Default: a temporary directory. */
  readonly dir?: string;
}

export async function listening(t: After, init: ListeningInit = {}) {
  const open = await openTest({ dir: init.dir ?? tempDirFor(t), ...(init.kms !== undefined && { kms: init.kms }) });
  const { providers } = open;
  const delivered: VerifiedDelivery[] = [];
  const audited: AuditEvent[] = [];
  const recorded: unknown[] = [];
  const intake = new Intake({
    providers,
    source: new SourceChecks(providers, new AddressRates(() => 1000)),
    unverified: new UnverifiedBytes(1024 * 1024),
    limits: new ProviderLimiter(),
    sender: {
      store: async (verified: VerifiedDelivery) => {
        delivered.push(verified);
        return { receipt: verified.receipt.id, duplicate: false, place: 'mailbox' as const };
      },
    },
    recorder: { record: (record: unknown) => void recorded.push(record) } as never,
    tolerance_ms: () => 300_000,
    bodyDeadline: (parent: Deadline) => Deadline.after('body', 5000, { parent }),
    requestDeadline: (parent: Deadline) => Deadline.after('request', 2000, { parent }),
  });
  const { log, lines } = captureLog('interop');
  const metrics = new Metrics('interop');
  const ingress = await createIngress({
    service: 'interop',
    version: '0',
    deadlines: { deadline: (name) => Deadline.after(name, 5000) },
    routes: [
      ...providerRoutes({ providers, intake, audit: (event) => void audited.push(event) }),
      ...webhookRoutes({ intake }),
    ],
    access: ACCESS,
    reasons: REASONS,
    metrics,
    log,
  });
  t.after(async () => {
    await ingress[Symbol.asyncDispose]();
    await providers.close();
  });
  const url = await ingress.listen();
  const call = (method: string, path: string, body?: unknown, scope = 'interop:admin'): Promise<Reply> =>
    send(url, method, path, {
      headers: {
        ...(scope !== '' && { authorization: `Bearer ${scope}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
  return { ...open, url, call, delivered, audited, recorded, lines, metrics };
}
