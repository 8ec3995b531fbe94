/** The gates of `/readyz` of storage. */
import type { ServiceAuth } from '@ron/auth/service';
import { Readiness } from '@ron/ingress';
import type { WorkQueue } from '@ron/kernel';
import type { Upkeep } from './upkeep/upkeep.ts';
import type { Volumes } from './volumes/volumes.ts';

export function readinessOf(
  volumes: Volumes,
  upkeep: Upkeep,
  queues: readonly WorkQueue[],
  auth: ServiceAuth,
): Readiness {
  const readiness = new Readiness();
  readiness.gate('volume', { kind: 'soft', lanes: ['put'], sample: () => volumes.writeProblem });
  // Reads and writes continue; the operator must know.
  readiness.gate('durability', { kind: 'soft', sample: () => durabilityProblem(volumes) });
  readiness.gate('scrub', { kind: 'soft', sample: () => upkeep.scrubProblem });
  readiness.gate('overload', {
    kind: 'soft',
    sample: () => (queues.some((queue) => queue.overloaded) ? 'requests wait too long for a worker' : undefined),
  });
  auth.report(readiness);
  return readiness;
}

function durabilityProblem(volumes: Volumes): string | undefined {
  if (volumes.isSingle) return volumes.listProblem;
  const { problems, incomplete } = volumes;
  const paused = incomplete === undefined ? [] : [`compaction is paused: ${incomplete}`];
  const all = [...problems, ...paused];
  return all.length === 0 ? undefined : all.join('; ');
}
