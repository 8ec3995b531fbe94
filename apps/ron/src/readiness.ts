/** Probes `/readyz` of a service. */
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

/** Throws when the service does not answer within two seconds. */
export async function readinessOf(url: string, signal: AbortSignal): Promise<ServiceReadiness> {
  const response = await fetch(`${url}/readyz`, { signal: AbortSignal.any([signal, after(PROBE_MS)]) });
  const { gates = [], detail } = (await response.json()) as ReadyAnswer;
  const closed = gates
    .filter(({ open }) => !open)
    .map(({ gate, reason }) => `${gate} (${reason ?? 'no reason given'})`);
  const reasons = closed.length > 0 ? closed.join(', ') : (detail ?? '');
  return { isReady: response.ok, reasons: response.ok ? reasons : reasons || `status ${response.status}` };
}

function after(delay_ms: number): AbortSignal {
  const controller = new AbortController();
  sched.timer(delay_ms, () => controller.abort(), 'readyz');
  return controller.signal;
}
