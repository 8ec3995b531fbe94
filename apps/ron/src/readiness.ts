/** Probes `/readyz` of a service. */
import { reach } from '@ron/client/node';
import { sched } from '@ron/kernel/core';

const PROBE_MS = 2000;

export interface ServiceReadiness {
  readonly isReady: boolean;
  /** The closed gates with their reasons; empty when all are open. */
  readonly reasons: string;
}

interface ReadyAnswer {
  readonly detail?: string;
  readonly gates?: readonly { readonly gate: string; readonly open: boolean; readonly reason?: string }[];
}

/** `url` may be `unix:PATH`. `lane`: readiness for one kind of work. Throws when the service does not answer within two seconds. */
export async function readinessOf(
  url: string,
  signal: AbortSignal,
  lane?: string,
  pin?: string,
): Promise<ServiceReadiness> {
  const { url: base, fetch } = reach(url, pin);
  const response = await fetch(new URL(lane === undefined ? '/readyz' : `/readyz?lane=${lane}`, base), {
    method: 'GET',
    headers: {},
    signal: AbortSignal.any([signal, after(PROBE_MS)]),
    redirect: 'error',
    cache: 'no-store',
    credentials: 'omit',
  });
  const isReady = response.status < 400;
  const { gates = [], detail } = (await response.json()) as ReadyAnswer;
  const closed = gates
    .filter(({ open }) => !open)
    .map(({ gate, reason }) => `${gate} (${reason ?? 'no reason given'})`);
  const reasons = closed.length > 0 ? closed.join(', ') : (detail ?? '');
  return { isReady, reasons: isReady ? reasons : reasons || `status ${response.status}` };
}

function after(delay_ms: number): AbortSignal {
  const controller = new AbortController();
  sched.timer(delay_ms, () => controller.abort(), 'readyz');
  return controller.signal;
}
