/**
 * Applies a changed configuration to the volumes of a set: adds new directories, drains those that it does not name any more,
 * and removes them once they are drained.
 *
 * Contract: a volume that is absent is kept: it may hold the last copy of a record. Cancellation: by the signals given, between
 * two directories.
 */
import type { StorageConfig } from '../config.ts';
import { dirsOf, Slot, weightOf } from './volume-slot.ts';
import type { Volumes } from './volumes.ts';

export async function applyConfig(volumes: Volumes, config: StorageConfig, signal: AbortSignal): Promise<void> {
  const specs = config.amnesia.enabled ? [] : dirsOf(config);
  volumes.set.isDegradedAccepted = config.durability.degraded;
  if (volumes.isSingle) {
    if (specs.length > 1) volumes.publish('single', volumes.volume.name, 'more directories need a restart');
    return;
  }
  for (const spec of specs) {
    signal.throwIfAborted();
    const slot = volumes.slots.find((each) => each.name === spec.dir);
    if (slot === undefined) {
      await volumes.join([new Slot(spec)]);
      continue;
    }
    slot.spec = spec;
    slot.isConfigured = true;
    const weight = await weightOf(spec);
    if (volumes.memberOf(slot) !== undefined) {
      volumes.set.lifecycle.reshape(slot.id!, { weight, domain: spec.domain });
    }
    await drainAsConfigured(volumes, slot, signal);
  }
  for (const slot of volumes.slots.filter((each) => !specs.some((spec) => spec.dir === each.name))) {
    slot.isConfigured = false;
    await drainAsConfigured(volumes, slot, signal);
  }
  await removeUnconfigured(volumes, signal);
}

/** Drains a volume that the configuration or the operator wants drained, and stops the drain of any other. */
async function drainAsConfigured(volumes: Volumes, slot: Slot, signal: AbortSignal): Promise<void> {
  const { lifecycle, membership } = volumes.set;
  const member = volumes.memberOf(slot);
  if (member === undefined || !slot.isOpen) return;
  const isToDrain = slot.spec.isDraining || !slot.isConfigured || membership.roster.draining.includes(member.id);
  if (isToDrain === member.isDraining) return;
  if (isToDrain) {
    lifecycle.beginDrain(member.id);
    volumes.publish('draining', slot.name, 'its records are moved to other volumes');
  } else await lifecycle.undrain(member.id, signal);
  volumes.onChange();
}

/** Removes volumes that are not configured any more and are either drained or abandoned. */
export async function removeUnconfigured(volumes: Volumes, signal: AbortSignal): Promise<void> {
  for (const slot of volumes.slots.filter((each) => !each.isConfigured)) {
    const isDrained = slot.isOpen && volumes.memberOf(slot)?.isDrained === true;
    if (isDrained || slot.isAbandoned) await volumes.remove(slot, { force: false, signal });
  }
}
