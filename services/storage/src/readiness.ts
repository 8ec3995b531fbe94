/** The gates of `/readyz` of storage. */
import type { GateInit } from '@ron/ingress';
import type { WorkQueue } from '@ron/kernel';
import type { Announcer } from './announce/announcer.ts';
import type { Maintenance } from './maintenance/maintenance.ts';
import type { Volumes } from './volumes/volumes.ts';

export interface GatesInit {
  readonly volumes: Volumes;
  readonly maintenance: Maintenance;
  readonly announcer: Announcer | undefined;
  readonly queues: readonly WorkQueue[];
}

export function gatesOf({ volumes, maintenance, announcer, queues }: GatesInit): Readonly<Record<string, GateInit>> {
  return {
    volume: { kind: 'soft', lanes: ['put'], sample: () => volumes.writeProblem },
    // Reads and writes continue; the operator must know.
    durability: { kind: 'soft', sample: () => durabilityProblem(volumes) },
    scrub: { kind: 'soft', sample: () => maintenance.scrubProblem },
    // Only other nodes, and names, depend on the index.
    announce: { kind: 'soft', sample: () => announcer?.problem },
    overload: {
      kind: 'soft',
      sample: () => (queues.some((queue) => queue.overloaded) ? 'requests wait too long for a worker' : undefined),
    },
  };
}

function durabilityProblem(volumes: Volumes): string | undefined {
  if (volumes.isSingle) return volumes.listProblem;
  const { problems, incomplete } = volumes;
  const paused = incomplete === undefined ? [] : [`compaction is paused: ${incomplete}`];
  const all = [...problems, ...paused];
  return all.length === 0 ? undefined : all.join('; ');
}
