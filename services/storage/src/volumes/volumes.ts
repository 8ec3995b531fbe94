/**
 * The volumes that storage uses: opened, probed, lost, reopened and removed.
 *
 * Contract: with one directory the object store uses its volume directly; with several it uses the set. An absent directory
 * does not keep the others from serving: it counts as lost, is listed in `problems`, and is opened again once its volume
 * reappears, unless the operator abandoned it. An empty directory in its place may be the mount point of a missing disk: only
 * `ron volumes restore` makes it a volume.
 * Bound: one probe of each directory per second. Cancellation: by the signals given, between two steps.
 */
import { MemoryVolume, type Volume } from '@ron/cas';
import { VolumeProber, VolumeSet, type Fault, type Member, type Probe } from '@ron/durability';
import { sleep } from '@ron/kernel';
import type { KnownVolume, VolumeInfo } from '@ron/proto';
import type { StorageConfig } from '../config.ts';
import { formatDataDir, parseDataDir } from './data-dirs.ts';
import { holdsVolume } from './directory-probes.ts';
import type { EngineEvent } from './engine.ts';
import { KnownVolumes } from './known-volumes.ts';
import { openVolumes } from './open-volumes.ts';
import { Slots } from './slots.ts';
import { applyConfig, removeUnconfigured } from './volume-config.ts';
import { VolumeOpener } from './volume-opener.ts';
import { memberOf, NOWHERE, Slot, type VolumesInit } from './volume-slot.ts';
import { problemOf, viewOf } from './volume-views.ts';

const PROBE_EVERY_MS = 1000;

export class Volumes implements AsyncDisposable {
  readonly set: VolumeSet;
  /** The volume of the object store: the set, or the only volume. */
  readonly volume: Volume;
  /** The directory for other files, such as journals; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly #init: VolumesInit;
  readonly #slots: Slots;
  readonly #opener: VolumeOpener;
  readonly #probes = new Map<string, Probe>();
  readonly #prober: VolumeProber;
  /** The volumes that this node has had. */
  #known: KnownVolumes | undefined;
  /** The tail of the chain of operations that open volumes: they run one at a time. */
  #last: Promise<unknown> = Promise.resolve();
  /** Called when a volume was added, lost or removed. */
  onChange: () => void = () => undefined;
  /** Called for each record that a volume failed to deliver. */
  onFault: (fault: Fault) => void = () => undefined;

  private constructor(init: VolumesInit, set: VolumeSet, slots: readonly Slot[], volume: Volume) {
    this.#init = init;
    this.set = set;
    this.#slots = new Slots(slots);
    this.#opener = new VolumeOpener(this, init);
    this.volume = volume;
    this.#prober = new VolumeProber({ set, probes: this.#probes });
    for (const slot of slots) this.#watchOver(slot);
    this.dir = slots.find((slot) => slot.isOpen && slot.name !== '')?.name;
  }

  static async open(init: VolumesInit): Promise<Volumes> {
    const { config } = init;
    if (config.amnesia.enabled) {
      const volume = new MemoryVolume({ bytes_max: config.amnesia.bytes_max });
      return await Volumes.#over(init, [[new Slot(NOWHERE), volume]], true);
    }
    const known = await KnownVolumes.open(config.volumes_file);
    const { opened, later } = await openVolumes(init, known.volumes);
    try {
      const missing = known.volumes.filter(({ id }) => !opened.some(([, volume]) => volume.id === id));
      const volumes = await Volumes.#over(init, opened, opened.length + later.length === 1 && missing.length === 0);
      volumes.#known = known;
      await volumes.#listMissing(missing);
      await volumes.join(later);
      volumes.trackRoster();
      await volumes.#remember();
      return volumes;
    } catch (error) {
      await Promise.allSettled(opened.map(([, volume]) => volume.close()));
      throw error;
    }
  }

  /** Puts volumes on the roster that the node had at an earlier start and that the open volumes may not list. */
  async #listMissing(missing: readonly KnownVolume[]): Promise<void> {
    const places = missing.map(({ id, item }) => ({ id, dir: parseDataDir(item)?.dir ?? item }));
    if (!this.isSingle) await this.set.membership.addAbsent(places, this.#init.signal);
  }

  /** Persists the list of the node's volumes, so that a start without one of them reports it. */
  async #remember(): Promise<void> {
    const open = this.slots.filter((slot) => slot.isOpen && slot.id !== undefined && slot.name !== '');
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
      onLost: (name, reason) => volumes?.onLost(name, reason),
      signal: init.signal,
    });
    const slots = opened.map(([slot]) => slot);
    set.isDegradedAccepted = durability.degraded;
    volumes = new Volumes(init, set, slots, isSingle ? opened[0]![1] : set);
    for (const { name, status, reason } of set.views) if (status === 'lost') volumes.onLost(name, reason);
    return volumes;
  }

  get isSingle(): boolean {
    return this.volume !== this.set;
  }

  get slots(): readonly Slot[] {
    return this.#slots.all;
  }

  /** Why a write would fail now. */
  get writeProblem(): string | undefined {
    if (this.isSingle) return this.slots[0]?.writes?.problem;
    const usable = this.slots.filter((slot) => {
      return slot.isOpen && slot.writes?.problem === undefined && this.memberOf(slot)?.isActive === true;
    });
    const { write_min } = this.set;
    if (usable.length >= write_min) return undefined;
    return [`${usable.length} of ${write_min} volumes take writes`, ...this.problems].join('; ');
  }

  /** The problems of the volumes, each with the name of its volume. */
  get problems(): string[] {
    const problems = this.slots.flatMap((slot) => problemOf(slot, this.memberOf(slot), this.set) ?? []);
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
    return this.slots.map((slot) => viewOf(slot, this.memberOf(slot), this.set));
  }

  /** By its directory, or the id of its volume. */
  slot(key: string): Slot {
    return this.#slots.get(key, this.set.membership.roster);
  }

  memberOf({ id }: Slot): Member | undefined {
    return this.isSingle ? this.set.members[0] : this.set.members.find((member) => member.id === id);
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      await this.probe(stopping);
      await sleep(PROBE_EVERY_MS, stopping, 'volume_watch');
    }
  }

  /** Probes every directory: volumes that vanished are lost, volumes that reappeared are opened. */
  probe(signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#probe(signal));
  }

  async #probe(signal: AbortSignal): Promise<void> {
    await Promise.all(this.slots.flatMap((slot) => slot.writes?.probe() ?? []));
    if (this.isSingle) return;
    for (const slot of this.slots.filter((each) => each.lifecycle.state.kind === 'absent')) {
      signal.throwIfAborted();
      if (slot.opening === undefined && (await holdsVolume(slot.name))) await this.reopen(slot, PROBE_EVERY_MS);
    }
    await this.#prober.probe();
    this.trackRoster();
  }

  trackRoster(): void {
    this.#slots.track(this.set.membership.roster);
  }

  /** Applies a changed configuration: adds new directories, and drains those that it does not name any more. */
  follow(config: StorageConfig, signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => applyConfig(this, config, signal));
  }

  /** Removes volumes that are not configured any more and are either drained or abandoned. */
  removeUnconfigured(signal: AbortSignal): Promise<void> {
    return this.#inTurn(() => removeUnconfigured(this, signal));
  }

  /** Removes a volume. An opening under way in its slot is undone. */
  async remove(slot: Slot, init: { force: boolean; signal: AbortSignal }): Promise<void> {
    slot.lifecycle.apply({ type: 'remove' });
    try {
      if (slot.id !== undefined) await this.forget(slot.id, init);
      slot.lifecycle.apply({ type: 'removed' });
      this.#slots.delete(slot);
    } catch (error) {
      slot.lifecycle.apply({ type: 'removalFailed' });
      if (slot.isOpen && this.memberOf(slot) === undefined) {
        slot.lifecycle.apply({ type: 'lose', reason: `${slot.name}: its removal is incomplete; repeat it` });
      }
      throw error;
    } finally {
      this.onChange();
    }
    this.publish('removed', slot.name, 'it was removed; take it out of the configuration as well');
  }

  /** Takes a volume off the roster. */
  async forget(id: string, init: { force?: boolean; signal: AbortSignal }): Promise<void> {
    const { lifecycle, membership, members } = this.set;
    // First: if the next step fails, the roster still names the volume at the next start.
    await this.#known?.forget(id);
    try {
      if (members.some((member) => member.id === id)) await lifecycle.remove(id, init);
      else await membership.forget(id, init.signal);
    } catch (error) {
      await this.#remember();
      throw error;
    }
    this.trackRoster();
  }

  async close(): Promise<void> {
    await this.#opener.close();
    await this.set.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Adds directories that were not open when the set was: new ones are opened, others count as lost. */
  async join(slots: readonly Slot[]): Promise<void> {
    for (const slot of slots) {
      this.#slots.add(slot);
      if (slot.problem === undefined) await this.reopen(slot);
      else this.publish('lost', slot.name, slot.problem);
    }
  }

  /** Opens a volume that is absent. If it cannot be opened, or takes long, its slot has the reason. */
  reopen(slot: Slot, wait_ms?: number): Promise<void> {
    return this.#opener.open(slot, wait_ms);
  }

  /** The set has the volume of the slot. */
  async joined(slot: Slot): Promise<void> {
    this.#slots.moved(slot);
    this.trackRoster();
    await this.#remember();
    this.#watchOver(slot);
    this.publish('joined', slot.name, 'it is reconciled with the others, and receives records');
    this.onChange();
  }

  /** The set has lost the volume with this name. */
  onLost(name: string, reason: string): void {
    const slot = this.slots.find((each) => each.name === name);
    if (slot !== undefined) this.#opener.lost(slot, reason);
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
