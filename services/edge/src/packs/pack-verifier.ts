/**
 * The task `pack_verifier`: verifies files, mounts packs, and retires them.
 *
 * Contract: every file is verified before it is mounted, at the start too; a bad one is listed in the plan with its reason. A
 * changed file is verified again, and if it is bad, the mounted version stays. Packs of deleted files are retired. Uploads and
 * removals go before files of a scan.
 * The file of a mounted PMTiles pack never changes: if it was written to, its new content is damage until an operator requests
 * a reload. So a flipped byte is not served under a new address. The file of a damaged pack is verified in full, and mounted
 * again if it has its earlier address: by a reload, or once it was written to.
 * Bound: the channel `verify`; `VERIFIED_AT_A_TIME` files of a scan at a time; `packs.open_max` open packs.
 * Cancellation: `stopping` ends the task; jobs that wait then are refused with `draining`.
 */
import { Deadline, isRonError, Notify, RonError, type Mpsc } from '@ron/kernel';
import { diskError } from '@ron/log';
import type { Address } from '@ron/proto';
import { watchDirectory } from './directory-watch.ts';
import { MountedPack } from './mounted-pack.ts';
import type { MountTable } from './mount-table.ts';
import type { OpenPack, OpenPackInit, PackFormat, PackInfo, PackOpener } from './pack.ts';
import type { PackDirectory, PackFile } from './pack-directory.ts';
import type { InstallJob, JobEnd, PackJob } from './pack-jobs.ts';
import { ScanPlan } from './scan-plan.ts';

const VERIFIED_AT_A_TIME = 4;
const IN_PLACE =
  'the file was changed in place: restore it, replace it by rename, or reload edge (SIGHUP) to accept its new content';
const DAMAGED = 'its content does not match its address: restore it, or replace it by rename';
/** Changes that the system does not report are found after this time. */
const POLL_MS = 10_000;
/** A file without a sidecar is read in full: the time that a slow disk needs is added to the budget. */
const SLOW_BYTES_PER_MS = 20 * 1024;

export interface PackVerifierInit {
  /** Undefined: there are no packs. */
  readonly directory: PackDirectory | undefined;
  /** In amnesia no file is written. */
  readonly isReadOnly: boolean;
  readonly table: MountTable;
  readonly openers: Readonly<Record<PackFormat, PackOpener>>;
  readonly jobs: Mpsc<PackJob>;
  /** The budget for verifying a file, besides the time to read it. */
  readonly budget_ms: number;
  readonly onMounted: (name: string, address: Address) => void;
  readonly onRemoved: (name: string) => void;
  readonly onRefused: (name: string, problem: string) => void;
  readonly onDamaged: (name: string, problem: string) => void;
}

export class PackVerifier implements AsyncDisposable {
  readonly table: MountTable;
  readonly plan = new ScanPlan();
  readonly #init: PackVerifierInit;
  readonly #wakeUp = new Notify('pack_verifier');
  /** Callers that wait for the end of the scan. */
  readonly #scans: JobEnd<void>[] = [];
  #isScanDue = true;
  #isPollDue = false;
  #isStarted: boolean;
  #opening = 0;

  constructor(init: PackVerifierInit) {
    this.#init = init;
    this.table = init.table;
    this.#isStarted = init.directory === undefined;
  }

  /** Whether all files were verified once. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  submit(job: PackJob): ReturnType<Mpsc<PackJob>['trySend']> {
    const sent = this.#init.jobs.trySend(job);
    this.#wakeUp.notifyOne();
    return sent;
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { directory, isReadOnly } = this.#init;
    using _ = directory && watchDirectory(directory.path, () => this.#requestScan());
    try {
      if (directory !== undefined && !isReadOnly) await directory.removeLeftovers().catch(() => undefined);
      this.#isScanDue = true;
      while (!stopping.aborted) await this.#step(stopping);
    } catch (error) {
      if (!stopping.aborted) throw error;
    } finally {
      if (stopping.aborted) await this.#refuseAll();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.table.close();
    await Promise.all(Object.values(this.#init.openers).map((opener) => opener[Symbol.asyncDispose]()));
  }

  async #step(stopping: AbortSignal): Promise<void> {
    const { jobs } = this.#init;
    if (jobs.depth > 0) return await this.#handle((await jobs.recv(stopping))!);
    if (this.#isScanDue) return await this.#scan(!this.#isStarted || this.#scans.length > 0);
    if (this.plan.pending > 0) return await this.#verifySome(stopping);
    this.#isStarted = true;
    for (const ends of this.#scans.splice(0)) await ends.with(() => Promise.resolve());
    const isWoken = await this.#wakeUp.notified(stopping, { within_ms: this.plan.settles_ms ?? POLL_MS });
    if (!isWoken) this.#isPollDue = this.#isScanDue = true;
  }

  async #handle(job: PackJob): Promise<void> {
    if (job.kind === 'install') return await job.ends.with(() => this.#install(job));
    if (job.kind === 'remove') return await job.ends.with(() => this.#remove(job.name, job.ends));
    this.#scans.push(job.ends);
    this.#isScanDue = true;
  }

  async #refuseAll(): Promise<void> {
    const { jobs } = this.#init;
    const stopped = new RonError('draining', 'edge is stopping');
    for (const ends of this.#scans.splice(0)) ends.fail(stopped);
    while (jobs.depth > 0) {
      const [job] = await jobs.recvMany(1, new AbortController().signal);
      job?.ends.fail(stopped);
    }
  }

  #requestScan(): void {
    this.#isScanDue = true;
    this.#wakeUp.notifyOne();
  }

  /** `isUrgent`: files that may still be written to are verified too. */
  async #scan(isUrgent: boolean): Promise<void> {
    const isPoll = this.#isPollDue;
    this.#isPollDue = this.#isScanDue = false;
    const { directory, onRefused } = this.#init;
    if (directory === undefined) return;
    try {
      const files = await directory.list();
      const identityOf = (name: string): string | undefined => {
        const mount = this.table.get(name);
        return mount?.pack.problem === undefined ? mount?.identity : undefined;
      };
      const { names, refused } = this.plan.update({ files, identityOf, isUrgent, isPoll });
      for (const { name, file, reason } of refused) onRefused(name, `${file}: ${reason}`);
      for (const { name } of this.table.list()) if (!names.has(name)) this.#unmount(name);
    } catch (error) {
      // A directory that cannot be read for a moment must not unmount its packs.
      this.plan.fail(`${directory.path}: ${diskError(error).message}`);
    }
  }

  /** [edge I-7] Verifies the next files of the scan, a few at a time, in the threads of the openers. */
  async #verifySome(stopping: AbortSignal): Promise<void> {
    const files = this.plan.next(VERIFIED_AT_A_TIME);
    await Promise.all(files.map((file) => this.#verify(file, stopping)));
  }

  async #verify(file: PackFile, stopping: AbortSignal): Promise<void> {
    const { directory, isReadOnly, budget_ms, onRefused } = this.#init;
    // Only the file of a damaged pack is verified although it seems unchanged: in full, because its sidecar seems right too.
    const isUnchanged = this.table.get(file.name)?.identity === file.identity;
    const expect = this.plan.isUrgent && !isUnchanged ? undefined : this.#addressInPlace(file);
    using due = Deadline.after('pack', budget_ms + file.size / SLOW_BYTES_PER_MS, { signal: stopping });
    try {
      const path = directory!.pathOf(file.file);
      const sidecar = isReadOnly || isUnchanged ? undefined : directory!.sidecarOf(file.file);
      const pack = await this.#open(file, { path, sidecar, expect, signal: due.signal });
      this.#mount(file.name, pack, file.identity);
    } catch (error) {
      stopping.throwIfAborted();
      const isInPlace = expect !== undefined && isRonError(error, 'address_mismatch');
      const inPlace = isUnchanged ? DAMAGED : IN_PLACE;
      const reason = isInPlace ? inPlace : reasonOf(error);
      this.plan.refuse(file, reason, !isInPlace && !isRonError(error, 'validation'));
      onRefused(file.name, `${file.file}: ${reason}`);
    }
  }

  async #open(
    { name, format }: Pick<PackFile, 'name' | 'format'>,
    init: Omit<OpenPackInit, 'onDamage'>,
  ): Promise<OpenPack> {
    this.table.requireRoom(this.#opening);
    const onDamage = (problem: string): void => this.#init.onDamaged(name, problem);
    this.#opening += 1;
    try {
      return await this.#init.openers[format].open({ ...init, onDamage });
    } finally {
      this.#opening -= 1;
    }
  }

  /** The address that a file must have because the mounted pack is the same file. */
  #addressInPlace({ name, identity }: PackFile): Address | undefined {
    const mount = this.table.get(name);
    const isSame = mount !== undefined && inodeOf(mount.identity) === inodeOf(identity);
    return isSame ? mount.pack.info.address : undefined;
  }

  async #install(job: InstallJob): Promise<PackInfo> {
    const { name, format, upload, expect, ends } = job;
    const directory = this.#init.directory!;
    const file = `${name}.${format}`;
    await requireOneFormat(directory, name, format);
    await directory.requireNoDirectory(file);
    const { path, sidecar } = upload;
    const pack = await this.#open(job, { path, sidecar, expect: undefined, signal: ends.signal });
    try {
      requireExpected(pack.info.address, expect);
      const identity = await directory.identityOf(upload);
      ends.commit();
      await directory.install(upload, file);
      pack.renamed?.(directory.pathOf(file));
      this.#mount(name, pack, identity);
      return pack.info;
    } catch (error) {
      await pack.close();
      throw isRonError(error) ? error : diskError(error);
    }
  }

  async #remove(name: string, ends: JobEnd<boolean>): Promise<boolean> {
    const directory = this.#init.directory!;
    try {
      const files = await directory.filesOf(name);
      // One of them may be served: the operator decides which file goes.
      if (files.length > 1)
        throw new RonError('conflict', `${name}: rename or delete one of its files in the directory`);
      ends.commit();
      for (const { file } of files) await directory.remove(file);
      this.plan.forget(name);
      return this.#unmount(name) || files.length > 0;
    } catch (error) {
      throw isRonError(error) ? error : diskError(error);
    }
  }

  #mount(name: string, pack: OpenPack, identity: string): void {
    this.plan.forget(name);
    this.table.mount(new MountedPack({ name, pack, identity }));
    this.#init.onMounted(name, pack.info.address);
  }

  #unmount(name: string): boolean {
    const isUnmounted = this.table.unmount(name);
    if (isUnmounted) this.#init.onRemoved(name);
    return isUnmounted;
  }
}

/** Device and inode. */
const inodeOf = (identity: string): string => identity.split(' ', 2).join(' ');

const reasonOf = (error: unknown): string => (isRonError(error) ? error : diskError(error)).message;

/** After a restart, two files with one stem would both be refused. */
async function requireOneFormat(directory: PackDirectory, name: string, format: PackFormat): Promise<void> {
  const other = (await directory.filesOf(name)).find((file) => file.format !== format);
  if (other === undefined) return;
  throw new RonError('conflict', `pack ${name} is in the format ${other.format}: remove it first, or use another name`);
}

function requireExpected(address: Address, expect: Address | undefined): void {
  if (expect === undefined || address === expect) return;
  throw new RonError('validation', `the pack has the address ${address}, not the expected ${expect}`);
}
