/** The gates of `/readyz` of interop. The listener adds `draining`, the capability keys add `kms` and theirs. */
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
  readonly queues: Readonly<Record<string, { readonly overloaded: boolean }>>;
  readonly upstreams: { readonly problems: Readonly<Record<'brownout' | 'mailbox' | 'storage' | 'passport', Sample>> };
}

export function gatesOf({
  receipts,
  providers,
  spool,
  missing,
  queues,
  upstreams,
}: GatesInit): Readonly<Record<string, GateInit>> {
  const { problems } = upstreams;
  const bridge = (sample: Sample): GateInit => ({ kind: 'soft', lanes: ['bridge'], sample });
  const put = (sample: Sample): GateInit => ({ kind: 'soft', lanes: ['put'], sample });
  return {
    receipts: { kind: 'soft', sample: () => receipts.problem ?? missing?.problem('receipts') },
    providers: { kind: 'soft', sample: () => providers.problem },
    brownout: { kind: 'soft', lanes: ['bridge', 'put'], sample: problems.brownout },
    queues: bridge(() => overloaded(queues)),
    spool: bridge(() => spool.problem ?? missing?.problem('spool')),
    mailbox: bridge(problems.mailbox),
    storage: put(problems.storage),
    passport: put(problems.passport),
  };
}

function overloaded(queues: GatesInit['queues']): string | undefined {
  const names = Object.keys(queues).filter((name) => queues[name]!.overloaded);
  return names.length === 0 ? undefined : `requests wait too long for a worker: ${names.join(', ')}`;
}
