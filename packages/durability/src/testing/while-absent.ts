/** Hides members of a set without closing their volumes, for tests and benchmarks. */
import { VolumeLifecycle } from '../lifecycle/volume-lifecycle.ts';
import type { Member } from '../membership/member.ts';

/** Runs `work` while the members count as lost. */
export async function whileAbsent<T>(members: readonly Member[], work: () => Promise<T>): Promise<T> {
  const hidden = members.map((member) => ({ member: member as { lifecycle: VolumeLifecycle }, was: member.lifecycle }));
  for (const { member } of hidden) member.lifecycle = VolumeLifecycle.absent('test');
  try {
    return await work();
  } finally {
    for (const { member, was } of hidden) member.lifecycle = was;
  }
}
