/**
 * The gates of `/readyz` of interop. The listener adds `draining`, the capability keys add `kms` and theirs.
 *
 * Contract: lane `bridge` is ready while all bridges work in full, lane `put` while `/put` is accepted.
 */
import type { GateInit } from '@ron/ingress';
import type { MissingLogs } from './missing-logs.ts';

type Sample = () => string | undefined;

interface Troubled {
  readonly problem: string | undefined;
}

export interface GatesInit {
  readonly receipts: Troubled;
  readonly providers: Troubled;
  readonly spool: Troubled;
  /** Undefined in amnesia. */
  readonly missing: Pick<MissingLogs, 'problem'> | undefined;
  readonly bridge: { readonly problems: Readonly<Record<'slots' | 'passport', Sample>> };
  readonly queues: Readonly<Record<'reads' | 'puts' | 'webhooks', { readonly overloaded: boolean }>>;
  readonly upstreams: { readonly problems: Readonly<Record<'brownout' | 'mailbox' | 'storage' | 'passport', Sample>> };
}

export function gatesOf({
  receipts,
  providers,
  spool,
  missing,
  bridge,
  queues,
  upstreams,
}: GatesInit): Readonly<Record<string, GateInit>> {
  const { problems } = upstreams;
  const ofBridge = (sample: Sample): GateInit => ({ kind: 'soft', lanes: ['bridge'], sample });
  const ofPut = (sample: Sample): GateInit => ({ kind: 'soft', lanes: ['put'], sample });
  return {
    receipts: ofBridge(() => receipts.problem ?? missing?.problem('receipts')),
    providers: { kind: 'soft', sample: () => providers.problem },
    brownout: ofBridge(problems.brownout),
    queues: ofBridge(() => overloaded(queues)),
    put_queue: ofPut(() => overloaded({ puts: queues.puts }) ?? bridge.problems.slots()),
    spool: ofBridge(() => spool.problem ?? missing?.problem('spool')),
    mailbox: ofBridge(problems.mailbox),
    storage: ofPut(problems.storage),
    passport: ofPut(() => problems.passport() ?? bridge.problems.passport()),
  };
}

function overloaded(queues: Partial<GatesInit['queues']>): string | undefined {
  const names = Object.entries(queues).flatMap(([name, { overloaded: isSlow }]) => (isSlow ? [name] : []));
  return names.length === 0 ? undefined : `requests wait too long for a worker: ${names.join(', ')}`;
}
