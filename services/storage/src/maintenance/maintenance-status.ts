/** Reports of repair and scrub for the admin API. */
import type { RepairResult } from '@ron/proto';
import type { Pacing, Planner, RepairQueue, Scrubber, Striper } from '@ron/durability';
import type { RepairStatus, ScrubInfo } from '@ron/proto';
import type { Volumes } from '../volumes/volumes.ts';

export interface RepairParts {
  readonly volumes: Volumes;
  readonly queue: RepairQueue;
  readonly planner: Planner;
  readonly pacing: Pacing;
  readonly striper: Striper | undefined;
  readonly results: Readonly<Record<RepairResult | 'failed', number>>;
  readonly planned_ms: number | undefined;
  /** Objects with missing parts, if a compaction has counted them. */
  readonly broken: number | undefined;
}

export function repairStatusOf(parts: RepairParts): RepairStatus {
  const { volumes, queue, planner, pacing, striper, results, planned_ms, broken } = parts;
  const { deficit_by_class, crowded, copies_min, records, isComplete, unreadable } = planner.report;
  const { replication_factor } = volumes.set;
  return {
    target: replication_factor,
    observed: Math.min(copies_min, replication_factor),
    deficit: planner.deficit,
    deficit_by_class,
    crowded,
    ...(broken !== undefined && { broken }),
    records,
    is_complete: isComplete,
    is_planning: planner.isPlanning,
    ...(planned_ms !== undefined && { planned_ms }),
    unreadable: [...unreadable],
    problems: volumes.problems,
    queued: queue.depth,
    inflight: queue.inflight,
    skipped_total: queue.skipped_total,
    results: { ...results },
    bytes_total: pacing.taken_bytes_total,
    rate_bytes_per_s: pacing.rate_bytes_per_s,
    allowed_bytes_per_s: Math.round(pacing.allowed_bytes_per_s),
    ...(striper !== undefined && {
      stripes: { ...striper.report, ...(striper.problem !== undefined && { problem: striper.problem }) },
    }),
  };
}

/** The progress of the current pass over each volume, or the result of its last one. */
export function scrubInfosOf(scrubber: Scrubber, volumes: Volumes): ScrubInfo[] {
  const { late, states } = scrubber;
  return volumes.views.map(({ id, name, used_bytes }) => {
    const state = id === undefined ? undefined : states.get(id);
    return {
      name,
      used_bytes,
      pass: state?.pass ?? 0,
      is_running: state?.isRunning ?? false,
      records: state?.records ?? 0,
      bytes: state?.bytes ?? 0,
      bad: state?.bad ?? 0,
      begun_s: state?.begun_s ?? 0,
      ended_s: state?.ended_s ?? 0,
      ...(state?.problem !== undefined && { problem: state.problem }),
      ...(late.has(name) && { late: late.get(name)! }),
    };
  });
}
