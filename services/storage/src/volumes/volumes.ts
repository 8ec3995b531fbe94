/**
 * The volumes that storage stands on: opened, watched, lost, taken back, and let go.
 *
 * Promise: with one directory the object store has that directory's volume itself, with nothing in between; with several it
 * has the set. A directory that is not there does not keep the others from serving: it counts as lost, is named by
 * `problems`, and is taken back as soon as it is there again with what it held, unless it was given up. An empty one in
 * its place may be the mount point of a disk that is missing: that is taken only by `ron volumes restore`.
 * Bound: one look at each directory in a second; each directory is opened once at a time, and a caller waits at most
 * `OPEN_MS_MAX` for that: the others are looked at meanwhile. Cancellation: by the signals given, between two steps.
 */
import { MemoryVolume, type Superblock, type Volume } from '@ron/cas';
import { Vigil, VolumeSet, within, type Fault, type Member, type Probe } from '@ron/durability';
import { RonError, sched, sleep, type Timer } from '@ron/kernel';
import type { KnownVolume, VolumeInfo } from '@ron/proto';
import type { StorageConfig } from '../config.ts';
import { formatDataDir, parseDataDir } from './data-dirs.ts';
import { holdsVolume } from './directory-looks.ts';
import type { EngineEvent } from './engine.ts';
import { KnownVolumes } from './known-volumes.ts';
import { openVolumes } from './open-volumes.ts';
import { awaySlot, dirsOf, memberOf, NOWHERE, openSlot, slotOf, weightOf } from './volume-slot.ts';
import type { Slot, VolumesInit } from './volume-slot.ts';
import { problemOf, viewOf } from './volume-views.ts';

const LOOK_EVERY_MS = 1000;
/** Reads that are under way on a lost volume may still end well. */
const CLOSE_AFTER_MS = 10_000;
const CLOSE_MS_MAX = 5000;
/** A large index may take minutes to make, a disk that hangs for ever: it joins when it is open. */
const OPEN_MS_MAX = 10_000;

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
  /** The volumes that this node has had. */
  #known: KnownVolumes | undefined;
  /** The tail of what opens volumes: one thing after the other. */
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;
  /** Called when a volume came or went. */
  onChange: () => void = () => undefined;
  /** Called for each record that a volume failed to deliver. */
  onFault: (fault: Fault) => void = () => undefined;

  private constructor(init: VolumesInit, set: VolumeSet, slots: Slot[], volume: Volume) {
    this.#init = init;
    this.set = set;
    this.#slots = slots;
    this.volume = volume;
    this.#vigil = new Vigil({ set, probes: this.#probes });
    for (const slot of slots) this.#watchOver(slot);
    this.dir = slots.find((slot) => slot.lost === undefined && slot.name !== '')?.name;
  }

  static async open(init: VolumesInit): Promise<Volumes> {
    const { config } = init;
    if (config.amnesia.enabled) {
      const volume = new MemoryVolume({ bytes_max: config.amnesia.bytes_max });
      return await Volumes.#over(init, [[slotOf(NOWHERE), volume]], true);
    }
    const known = await KnownVolumes.open(config.volumes_file);
    const { opened, later } = await openVolumes(init, known.volumes);
    try {
      const missing = known.volumes.filter(({ id }) => !opened.some(([, volume]) => volume.id === id));
      const volumes = await Volumes.#over(init, opened, opened.length + later.length === 1 && missing.length === 0);
      volumes.#known = known;
      await volumes.#expect(missing);
      await volumes.#join(later);
      volumes.trackAway();
      await volumes.#remember();
      return volumes;
    } catch (error) {
      await Promise.allSettled(opened.map(([, volume]) => volume.close()));
      throw error;
    }
  }

  /** Volumes that the node had at an earlier start, and that the open ones may not know of. */
  async #expect(missing: readonly KnownVolume[]): Promise<void> {
    const places = missing.map(({ id, item }) => ({ id, dir: parseDataDir(item)?.dir ?? item }));
    if (!this.isSingle) await this.set.membership.expect(places, this.#init.signal);
  }

  /** Writes down which volumes the node has, so that a start without one of them names it. */
  async #remember(): Promise<void> {
    const open = this.#slots.filter((slot) => slot.lost === undefined && slot.id !== undefined && slot.name !== '');
    await this.#known?.remember(open.map(({ id, spec }) => ({ id: id!, item: formatDataDir(spec) })));
  }

  static async #over(
    init: VolumesInit,
    opened: readonly (readonly [Slot, Volume])[],
    isSingle: boolean,
  ): Promise<Volumes> {
    const { durability, data_dirs } = init.config;
    const members = await Promise.all(opened.map(([slot, volume]) => memberOf(slot, volume)));
    const replication_factor = durability.replication_factor ?? (isSingle || data_dirs.length === 1 ? 1 : 2);
    let volumes: Volumes | undefined;
    const set = await VolumeSet.open({
      members,
      replication_factor,
      write_min: durability.write_min ?? replication_factor,
      ...(durability.ec && { lone_copies: durability.ec_parity_shards + 1 }),
      onFault: (fault) => volumes?.onFault(fault),
      onLost: (name, reason) => void (volumes !== undefined && volumes.#lost(name, reason)),
      signal: init.signal,
    });
    const slots = opened.map(([slot]) => slot);
    set.isDegradedAccepted = durability.degraded;
    volumes = new Volumes(init, set, slots, isSingle ? opened[0]![1] : set);
    for (const { name, life, reason } of set.views) if (life === 'lost') volumes.#lost(name, reason);
    return volumes;
  }

  get isSingle(): boolean {
    return this.volume !== this.set;
  }

  get slots(): readonly Slot[] {
    return this.#slots;
  }

  /** Why a write would fail now. */
  get writeProblem(): string | undefined {
    if (this.isSingle) return this.#slots[0]?.watch?.problem;
    const usable = this.#slots.filter((slot) => {
      return slot.lost === undefined && slot.watch?.problem === undefined && this.memberOf(slot)?.life === 'active';
    });
    const { write_min } = this.set;
    if (usable.length >= write_min) return undefined;
    return [`${usable.length} of ${write_min} volumes take writes`, ...this.problems].join('; ');
  }

  /** The problems of the volumes, each with the name of its volume. */
  get problems(): string[] {
    const problems = this.#slots.flatMap((slot) => problemOf(slot, this.memberOf(slot), this.set) ?? []);
    return this.listProblem === undefined ? problems : [...problems, this.listProblem];
  }

  /** Why the list of the node's volumes is not up to date. */
  get listProblem(): string | undefined {
    return this.#known?.problem;
  }

  /** Why nothing is reclaimed now, with the names of the volumes; undefined when every volume has answered completely. */
  get incomplete(): string | undefined {
    return this.isSingle ? undefined : this.set.incomplete;
  }

  get views(): VolumeInfo[] {
    return this.#slots.map((slot) => viewOf(slot, this.memberOf(slot), this.set));
  }

  /** By its directory, or the id of its volume. */
  slot(key: string): Slot {
    const { seen } = this.set.membership.roster;
    const slot =
      this.#slots.find((each) => each.name === key) ??
      this.#slots.find((each) => each.id === key) ??
      // A volume that is away goes by the directory where it was last open, too.
      this.#slots.find((each) => each.isPlaceless && each.id !== undefined && seen[each.id]?.dir === key);
    if (slot === undefined) throw new RonError('not_found', `there is no volume ${key}`);
    return slot;
  }

  memberOf({ id }: Slot): Member | undefined {
    return this.isSingle ? this.set.members[0] : this.set.members.find((member) => member.id === id);
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
    await Promise.all(this.#slots.flatMap((slot) => slot.watch?.look() ?? []));
    if (this.isSingle) return;
    for (const slot of this.#slots.filter((each) => each.lost !== undefined && !each.isGivenUp)) {
      signal.throwIfAborted();
      if (slot.opening === undefined && (await holdsVolume(slot.name))) await this.takeBack(slot, LOOK_EVERY_MS);
    }
    await this.#vigil.look();
    this.trackAway();
  }

  /** Each volume of the roster has one slot. */
  trackAway(): void {
    const { members, seen } = this.set.membership.roster;
    const isOf = (slot: Slot, id: string): boolean => slot.id === id && !slot.isPlaceless;
    for (const slot of this.#slots.filter((each) => each.isPlaceless)) {
      const isNeeded = members.includes(slot.id!) && !this.#slots.some((each) => isOf(each, slot.id!));
      if (!isNeeded) this.#slots.splice(this.#slots.indexOf(slot), 1);
    }
    for (const id of members) {
      if (!this.#slots.some((slot) => slot.id === id)) this.#slots.push(awaySlot(id, seen[id]?.dir));
    }
  }

  /** Follows a configuration that was changed: new directories come in, those that are not named any more are emptied. */
  follow(config: StorageConfig, signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#follow(config, signal));
  }

  async #follow(config: StorageConfig, signal: AbortSignal): Promise<void> {
    const specs = config.amnesia.enabled ? [] : dirsOf(config);
    this.set.isDegradedAccepted = config.durability.degraded;
    if (this.isSingle) {
      if (specs.length > 1) this.publish('single', this.volume.name, 'more directories need a restart');
      return;
    }
    for (const spec of specs) {
      signal.throwIfAborted();
      const slot = this.#slots.find((each) => each.name === spec.dir);
      if (slot === undefined) {
        await this.#join([slotOf(spec)]);
        continue;
      }
      slot.spec = spec;
      slot.isLeaving = false;
      const weight = await weightOf(spec);
      if (this.memberOf(slot) !== undefined) this.set.life.reshape(slot.id!, { weight, domain: spec.domain });
      await this.#followDrain(slot, signal);
    }
    for (const slot of this.#slots.filter((each) => !specs.some((spec) => spec.dir === each.name))) {
      slot.isLeaving = true;
      await this.#followDrain(slot, signal);
    }
    await this.#letGo(signal);
  }

  /** It is emptied when the configuration or the operator says so. */
  async #followDrain(slot: Slot, signal: AbortSignal): Promise<void> {
    const { life, membership } = this.set;
    const member = this.memberOf(slot);
    if (member === undefined || slot.lost !== undefined) return;
    const isWanted = slot.spec.isDraining || slot.isLeaving || membership.roster.draining.includes(member.id);
    if (isWanted === (member.life === 'draining')) return;
    if (isWanted) {
      life.beginDrain(member.id);
      this.publish('draining', slot.name, 'it is being emptied');
    } else await life.undrain(member.id, signal);
    this.onChange();
  }

  /**
   * Lets go of volumes that are no longer configured and are either drained or were given up. One that is away is kept: it
   * may hold the last copy of something.
   */
  letGo(signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#letGo(signal));
  }

  async #letGo(signal: AbortSignal): Promise<void> {
    for (const slot of this.#slots.filter((each) => each.isLeaving)) {
      const isDrained = slot.lost === undefined && this.memberOf(slot)?.isDrained === true;
      if (!isDrained && !slot.isGivenUp) continue;
      await this.remove(slot, { force: false, signal });
    }
  }

  /** Forgets a volume. What is being opened in its place is closed again. */
  async remove(slot: Slot, init: { force: boolean; signal: AbortSignal }): Promise<void> {
    slot.isGoing = true;
    try {
      if (slot.id !== undefined) await this.forget(slot.id, init);
      this.#slots.splice(this.#slots.indexOf(slot), 1);
    } catch (error) {
      slot.isGoing = false;
      if (this.memberOf(slot) === undefined)
        slot.lost ??= `${slot.name}: it could not be removed altogether; ask again`;
      throw error;
    } finally {
      this.onChange();
    }
    this.publish('removed', slot.name, 'it was removed; take it out of the configuration as well');
  }

  /** Takes a volume off the roster. */
  async forget(id: string, init: { force?: boolean; signal: AbortSignal }): Promise<void> {
    const { life, membership, members } = this.set;
    // First: if the next step fails, the roster still names the volume at the next start.
    await this.#known?.forget(id);
    try {
      if (members.some((member) => member.id === id)) await life.remove(id, init);
      else await membership.forget(id, init.signal);
    } catch (error) {
      await this.#remember();
      throw error;
    }
    this.trackAway();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const timer of this.#closings) timer.cancel();
    this.#closings.clear();
    const openings = this.#slots.flatMap(({ opening }) => opening ?? []);
    await Promise.all(openings.map((opening) => within(opening, CLOSE_MS_MAX)));
    await this.set.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Directories that were not there when the others were opened: new ones, or lost ones. */
  async #join(slots: readonly Slot[]): Promise<void> {
    for (const slot of slots) {
      this.#slots.push(slot);
      if (slot.lost === undefined) await this.takeBack(slot);
      else this.publish('lost', slot.name, slot.lost);
    }
  }

  /** The set has lost it. */
  #lost(name: string, reason: string): void {
    const slot = this.#slots.find((each) => each.name === name);
    const member = slot === undefined ? undefined : this.memberOf(slot);
    if (slot === undefined || member === undefined) return;
    slot.lost = reason;
    slot.watch = undefined;
    const timer = sched.timer(
      CLOSE_AFTER_MS,
      () => {
        this.#closings.delete(timer);
        void closed(member.volume);
      },
      'volumes.close',
    );
    this.#closings.add(timer);
    this.publish('lost', slot.name, reason);
    this.onChange();
  }

  /** Takes back one that was lost. When it cannot be opened, or not yet, it stays lost and says why. */
  async takeBack(slot: Slot, wait_ms = OPEN_MS_MAX): Promise<void> {
    if (slot.isGivenUp || slot.isGoing || slot.isPlaceless) return;
    slot.opening ??= this.#reopen(slot).finally(() => (slot.opening = undefined));
    await within(slot.opening, wait_ms);
    if (slot.opening !== undefined)
      slot.lost = `${slot.name}: it is being opened, which takes long; it joins when that is done`;
  }

  /** Never rejects: one that cannot be opened says why. */
  async #reopen(slot: Slot): Promise<void> {
    const why = slot.lost;
    let volume: Volume | undefined;
    try {
      await closed(this.memberOf(slot)?.volume);
      volume = await openSlot(slot, this.#init, 'later', (found) => this.#refuseCopy(found));
      if (volume === undefined) return;
      const member = await memberOf(slot, volume);
      // While it was opened, it may have been given up or removed, or the service may be closing.
      if (slot.isGivenUp || slot.isGoing || this.#isClosed)
        throw new Error('it was given up, removed or closed while it was opened');
      this.set.life.add(member);
    } catch (error) {
      slot.lost = slot.isGivenUp
        ? (slot.lost ?? why)
        : `${slot.name}: ${error instanceof Error ? error.message : String(error)}`;
      slot.watch = undefined;
      return await closed(volume);
    }
    slot.lost = undefined;
    // It may have lain elsewhere before.
    for (const other of this.#slots.filter((each) => each !== slot && each.id === slot.id)) this.#vacate(other);
    this.trackAway();
    await this.#remember();
    this.#watchOver(slot);
    this.publish('joined', slot.name, 'it is told what it missed, and filled');
    this.onChange();
  }

  #refuseCopy({ id }: Superblock): void {
    const other = this.set.members.find((member) => member.id === id && member.isReadable);
    if (other === undefined) return;
    throw new RonError('conflict', `it is a copy of the volume in ${other.name} (${id}): take one out of data_dirs`);
  }

  /** Its volume lies elsewhere now. */
  #vacate(slot: Slot): void {
    if (slot.isPlaceless || slot.isLeaving) this.#slots.splice(this.#slots.indexOf(slot), 1);
    else slot.id = undefined;
  }

  #watchOver({ name, probe }: Slot): void {
    if (probe === undefined) this.#probes.delete(name);
    else this.#probes.set(name, probe);
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined);
    return done;
  }

  publish(change: (EngineEvent & { kind: 'volume' })['change'], volume: string, reason: string): void {
    this.#init.publish({ kind: 'volume', change, volume, reason });
  }
}

/** Records that it could not write are on other volumes. */
async function closed(volume: Volume | undefined): Promise<void> {
  if (volume !== undefined) await within(volume.close(), CLOSE_MS_MAX).catch(() => undefined);
}
