/**
 * The volumes that storage stands on, and their life: opened, watched, lost, taken back, added, emptied and let go.
 *
 * Promise: with one directory the object store has that directory's volume itself, with nothing in between; with several it
 * has the set. A directory that is not there does not keep the others from serving: it counts as lost, is named by
 * `problems`, and is taken back as soon as it is there again with what it held. An empty one in its place may be the mount
 * point of a disk that is missing: that is taken only when somebody says so.
 * Bound: one look at each directory in a second. Cancellation: by the signals given, between two steps.
 */
import { MemoryVolume, type Volume } from '@ron/cas';
import { Vigil, VolumeSet, type Fault, type Member, type Probe } from '@ron/durability';
import { Deadline, RonError, sched, sleep, type Timer } from '@ron/kernel';
import type { StorageConfig } from './config.ts';
import type { EngineEvent } from './engine.ts';
import {
  dirsOf,
  holdsVolume,
  memberOf,
  NOWHERE,
  openSlot,
  slotOf,
  type Slot,
  type VolumesInit,
} from './volume-slot.ts';

export interface VolumeView {
  readonly name: string;
  readonly domain: string;
  readonly weight: number;
  readonly life: 'active' | 'draining' | 'drained' | 'lost';
  readonly condition: string;
  /** Why it takes no writes. */
  readonly reason: string;
  /** False while it has not been told everything that was decided in its absence. */
  readonly is_current: boolean;
  readonly used_bytes: number;
  readonly segments: number;
}

const LOOK_EVERY_MS = 1000;
/** Reads that are under way on a lost volume may still end well. */
const CLOSE_AFTER_MS = 10_000;
const CLOSE_MS_MAX = 5000;

export class Volumes implements AsyncDisposable {
  readonly set: VolumeSet;
  /** What the object store stands on. */
  readonly volume: Volume;
  /** Where what is not an object is kept, such as journals; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly #init: VolumesInit;
  readonly #slots: Slot[];
  readonly #probes = new Map<string, Probe>();
  readonly #vigil: Vigil;
  readonly #closings = new Set<Timer>();
  /** The tail of what changes volumes: one thing after the other. */
  #last: Promise<unknown> = Promise.resolve();
  /** Told when a volume came or went. */
  onChange: () => void = () => undefined;
  /** Told of records that a volume did not give. */
  onFault: (fault: Fault) => void = () => undefined;

  private constructor(init: VolumesInit, set: VolumeSet, slots: Slot[], volume: Volume) {
    this.#init = init;
    this.set = set;
    this.#slots = slots;
    this.volume = volume;
    this.#vigil = new Vigil({ set, probes: this.#probes });
    for (const slot of slots) this.#watchOver(slot);
    this.dir = slots.find((slot) => slot.lost === undefined && slot.spec.dir !== '')?.spec.dir;
  }

  static async open(init: VolumesInit): Promise<Volumes> {
    const { config } = init;
    if (config.amnesia.enabled) {
      const volume = new MemoryVolume({ bytes_max: config.amnesia.bytes_max });
      return await Volumes.#over(init, [[slotOf(NOWHERE), volume]]);
    }
    const specs = dirsOf(config);
    const opened: [Slot, Volume][] = [];
    const later: Slot[] = [];
    const isFirstStart = !(await Promise.all(specs.map((spec) => holdsVolume(spec.dir)))).includes(true);
    try {
      for (const spec of specs) {
        const slot = slotOf(spec);
        const isNew = !isFirstStart && specs.length > 1 && !(await holdsVolume(spec.dir));
        const volume = isNew ? undefined : await openSlot(slot, init, specs.length > 1 ? 'with others' : 'alone');
        if (volume === undefined) later.push(slot);
        else opened.push([slot, volume]);
      }
      if (opened.length === 0) throw new RonError('not_ready', later.map((slot) => slot.lost).join('; '));
      const volumes = await Volumes.#over(init, opened);
      await volumes.#join(later);
      return volumes;
    } catch (error) {
      await Promise.allSettled(opened.map(([, volume]) => volume.close()));
      throw error;
    }
  }

  static async #over(init: VolumesInit, opened: readonly [Slot, Volume][]): Promise<Volumes> {
    const { durability, amnesia, data_dirs } = init.config;
    const isSingle = amnesia.enabled || data_dirs.length === 1;
    const members = await Promise.all(opened.map(([slot, volume]) => memberOf(slot, volume)));
    const replication_factor = durability.replication_factor ?? (isSingle ? 1 : 2);
    let volumes: Volumes | undefined;
    const set = await VolumeSet.open({
      members,
      replication_factor,
      write_min: durability.write_min ?? replication_factor,
      ...(durability.ec && { lone_copies: durability.ec_parity_shards + 1 }),
      onFault: (fault) => volumes?.onFault(fault),
      onLost: (name, reason) => void (volumes !== undefined && volumes.#lost(volumes.#slotNamed(name), reason)),
      signal: init.signal,
    });
    const slots = opened.map(([slot]) => slot);
    volumes = new Volumes(init, set, slots, isSingle ? opened[0]![1] : set);
    for (const { name, life, reason } of set.views)
      if (life === 'lost') volumes.#lost(volumes.#slotNamed(name), reason);
    return volumes;
  }

  get isSingle(): boolean {
    return this.volume !== this.set;
  }

  /** Why a write would fail now. */
  get writeProblem(): string | undefined {
    if (this.isSingle) return this.#slots[0]?.watch?.problem;
    const usable = this.#slots.filter((slot) => {
      return slot.lost === undefined && slot.watch?.problem === undefined && this.#memberOf(slot)?.life === 'active';
    });
    const { write_min } = this.set;
    if (usable.length >= write_min) return undefined;
    return [`${usable.length} of ${write_min} volumes take writes`, ...this.problems].join('; ');
  }

  /** What is wrong with which volume. */
  get problems(): string[] {
    return this.#slots.flatMap((slot) => slot.lost ?? slot.watch?.problem ?? []);
  }

  get views(): VolumeView[] {
    return this.#slots.map((slot) => this.#viewOf(slot));
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      await this.look(stopping);
      await sleep(LOOK_EVERY_MS, stopping, 'volume_watch');
    }
  }

  /** Looks at every directory: which are gone, which are back. */
  look(signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#look(signal));
  }

  async #look(signal: AbortSignal): Promise<void> {
    for (const slot of this.#slots) {
      signal.throwIfAborted();
      await slot.watch?.look();
      if (this.isSingle) continue;
      if (slot.lost !== undefined && !slot.isGivenUp && (await holdsVolume(slot.spec.dir))) await this.#takeBack(slot);
    }
    if (!this.isSingle) await this.#vigil.look();
  }

  /** Follows a configuration that was changed: new directories come in, those that are not named any more are emptied. */
  follow(config: StorageConfig, signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#follow(config, signal));
  }

  async #follow(config: StorageConfig, signal: AbortSignal): Promise<void> {
    const specs = config.amnesia.enabled ? [] : dirsOf(config);
    if (this.isSingle) {
      if (specs.length > 1) this.#publish('single', this.volume.name, 'more directories need a restart');
      return;
    }
    for (const spec of specs) {
      signal.throwIfAborted();
      const slot = this.#slots.find((each) => each.spec.dir === spec.dir);
      if (slot === undefined) await this.#join([slotOf(spec)]);
      else {
        slot.spec = spec;
        slot.isLeaving = false;
        if (spec.isDraining) this.drain(spec.dir);
      }
    }
    for (const slot of this.#slots.filter((each) => !specs.some((spec) => spec.dir === each.spec.dir))) {
      slot.isLeaving = true;
      if (slot.lost === undefined) this.drain(slot.spec.dir);
    }
    await this.#letGo();
  }

  /** Gives it nothing more; what it has is moved to others. */
  drain(name: string): void {
    this.#requireSet();
    if (this.set.member(name).life === 'draining') return;
    this.set.drain(name);
    this.#publish('draining', name, 'it is being emptied');
    this.onChange();
  }

  /** Expects nothing of it any more, until somebody says otherwise. */
  lose(name: string): void {
    this.#requireSet();
    const slot = this.#slotNamed(name);
    const reason = `${name}: somebody gave it up`;
    slot.isGivenUp = true;
    if (this.#memberOf(slot)?.isReadable === true) this.set.lose(name, reason);
    else slot.lost = reason;
  }

  /** Takes back one that was lost, or an empty directory in its place. */
  async restore(name: string): Promise<void> {
    this.#requireSet();
    const slot = this.#slotNamed(name);
    if (slot.lost === undefined) throw new RonError('conflict', `${name} is not lost`);
    await this.#inTurn(() => this.#takeBack(slot));
    if (slot.lost !== undefined) throw new RonError('conflict', slot.lost);
  }

  /** Forgets a volume that is empty or lost; `force` also one that may hold the last copy of something. */
  async remove(name: string, force: boolean): Promise<void> {
    this.#requireSet();
    const slot = this.#slotNamed(name);
    if (this.#memberOf(slot) !== undefined) await this.set.remove(name, { force });
    this.#slots.splice(this.#slots.indexOf(slot), 1);
    this.#publish('removed', name, 'it was removed; take it out of the configuration as well');
    this.onChange();
  }

  /** Lets go of those that are no longer configured and hold nothing that others do not. */
  letGo(): Promise<void> {
    return this.#inTurn(() => this.#letGo());
  }

  async #letGo(): Promise<void> {
    for (const slot of this.#slots.filter((each) => each.isLeaving)) {
      const member = this.#memberOf(slot);
      if (slot.lost === undefined && member?.isDrained !== true) continue;
      await this.remove(slot.spec.dir, false);
    }
  }

  async close(): Promise<void> {
    for (const timer of this.#closings) timer.cancel();
    this.#closings.clear();
    await this.set.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Directories that were not there when the others were opened: new ones, or lost ones. */
  async #join(slots: readonly Slot[]): Promise<void> {
    const known = new Set(this.set.membership.absent());
    for (const slot of slots) {
      this.#slots.push(slot);
      if (known.has(slot.spec.dir)) slot.lost ??= `${slot.spec.dir}: the directory is gone, or empty`;
      if (slot.lost === undefined) await this.#takeBack(slot);
      else this.#publish('lost', slot.spec.dir, slot.lost);
    }
  }

  /** The set has lost it. */
  #lost(slot: Slot, reason: string): void {
    const { dir } = slot.spec;
    slot.lost = reason;
    slot.watch = undefined;
    const member = this.#memberOf(slot);
    if (member === undefined) return;
    const timer = sched.timer(
      CLOSE_AFTER_MS,
      () => {
        this.#closings.delete(timer);
        // What it could not take to disk is elsewhere.
        void member.volume.close().catch(() => undefined);
      },
      'volumes.close',
    );
    this.#closings.add(timer);
    this.#publish('lost', dir, reason);
    this.onChange();
  }

  /** When it cannot be opened, it stays lost and says why. */
  async #takeBack(slot: Slot): Promise<void> {
    const former = this.#memberOf(slot);
    if (former !== undefined) {
      using deadline = Deadline.after('volumes.close', CLOSE_MS_MAX);
      await deadline.run(() => former.volume.close()).catch(() => undefined);
    }
    const volume = await openSlot(slot, this.#init, 'later');
    if (volume === undefined) return;
    slot.isGivenUp = false;
    this.set.add(await memberOf(slot, volume));
    this.#watchOver(slot);
    this.#publish('joined', slot.spec.dir, 'it is told what it missed, and filled');
    this.onChange();
  }

  #watchOver({ spec, probe }: Slot): void {
    if (probe === undefined) this.#probes.delete(spec.dir);
    else this.#probes.set(spec.dir, probe);
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined);
    return done;
  }

  #viewOf(slot: Slot): VolumeView {
    const { dir, domain, weight } = slot.spec;
    const member = this.#memberOf(slot);
    if (member === undefined || slot.lost !== undefined) {
      const gone = { condition: 'failed', reason: slot.lost ?? '', is_current: false, used_bytes: 0, segments: 0 };
      return { name: dir, domain, weight: weight ?? 0, life: 'lost', ...gone };
    }
    const { condition, reason } = this.isSingle ? this.volume.state : member.view;
    const life = member.life === 'draining' && member.isDrained ? 'drained' : member.life;
    const seen = slot.watch?.problem;
    return {
      name: member.name,
      domain: member.domain,
      weight: member.weight,
      life,
      condition,
      reason: reason || (seen ?? ''),
      is_current: member.isCurrent,
      ...member.volume.stats(),
    };
  }

  #memberOf(slot: Slot): Member | undefined {
    const name = slot.spec.dir;
    return this.isSingle ? this.set.members[0] : this.set.members.find((member) => member.name === name);
  }

  #slotNamed(name: string): Slot {
    const slot = this.#slots.find((each) => each.spec.dir === name);
    if (slot === undefined) throw new RonError('not_found', `there is no volume ${name}`);
    return slot;
  }

  #requireSet(): void {
    if (this.isSingle) throw new RonError('conflict', 'there is one volume: what it holds has nowhere else to be');
  }

  #publish(change: (EngineEvent & { kind: 'volume' })['change'], volume: string, reason: string): void {
    this.#init.publish({ kind: 'volume', change, volume, reason });
  }
}
