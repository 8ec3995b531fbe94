/**
 * The directory of the packs: their files, sidecars and unfinished uploads.
 *
 *     planet.pmtiles, planet.pmtiles.b3          a pack and its hashes; MBTiles have none
 *     .planet.6f1c09a2b7d3e845.upload(.b3)       an upload, until it is verified and renamed
 *
 * Contract: a file gets the name of a pack only after it is complete, verified and synced, and the name is durable when `install`
 * resolves. Only files with these names are touched.
 * Bound: `entries_max` names are read. Overflow: `not_ready`. Cancellation: by the time limit of the gate.
 */
import type { BigIntStats } from 'node:fs';
import { lstat, opendir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { RonError, sched } from '@ron/kernel';
import { gatedFileSystem, isGone, type DiskGate, type File, type FileSystem } from '@ron/log';
import { PACK_NAME_PATTERN } from '@ron/proto';
import type { PackFormat } from './pack.ts';

const STATS_AT_A_TIME = 32;
const FORMATS: readonly PackFormat[] = ['pmtiles', 'mbtiles'];
const PACK = /^(?<name>.*)\.(?<format>pmtiles|mbtiles)$/;
const SIDECAR = /^(?<pack>.+\.(?:pmtiles|mbtiles))\.b3$/;
/** The digits are a tag of the process and a random number. */
const UPLOAD = /^\.[a-z0-9_-]{1,64}\.[0-9a-f]{16}\.upload(?:\.b3)?(?:\.tmp)?$/;

export interface PackFile {
  /** The stem. Not a valid name of a pack if `isMisnamed`. */
  readonly name: string;
  readonly isMisnamed: boolean;
  /** The name in the directory. */
  readonly file: string;
  readonly format: PackFormat;
  /** Device, inode, size and mtime: another text means another content. */
  readonly identity: string;
  /** The identity with the ctime, which changes with every write, even if the writer restores the mtime. */
  readonly state: string;
  readonly size: number;
  readonly mtime_ms: number;
}

/** A file that is being uploaded. */
export interface UploadFile {
  readonly path: string;
  readonly sidecar: string;
  readonly file: File;
}

export class PackDirectory {
  readonly path: string;
  readonly #fs: FileSystem;
  readonly #gate: DiskGate;
  readonly #tag = sched.randomBytes(4).toHex();
  readonly #entries_max: number;

  /** [edge I-4] Each call to the disk ends within the time limit of the gate. */
  constructor(path: string, fs: FileSystem, gate: DiskGate, entries_max: number) {
    this.path = path;
    this.#fs = gatedFileSystem(fs, gate);
    this.#gate = gate;
    this.#entries_max = entries_max;
  }

  /** The files that have the name of a pack. */
  async list(): Promise<PackFile[]> {
    const names = (await this.#names()).filter((name) => PACK.test(name) && !name.startsWith('.')).toSorted();
    const files: PackFile[] = [];
    for (let at = 0; at < names.length; at += STATS_AT_A_TIME) {
      const some = await Promise.all(names.slice(at, at + STATS_AT_A_TIME).map((name) => this.#stat(name)));
      files.push(...some.filter((file) => file !== undefined));
    }
    // Throws if the directory was moved away meanwhile: its files are not deleted.
    await this.#gate.run(() => stat(this.path));
    return files;
  }

  /** The files of one pack; more than one if both formats are there. */
  async filesOf(name: string): Promise<PackFile[]> {
    const files = await Promise.all(FORMATS.map((format) => this.#stat(`${name}.${format}`)));
    return files.filter((file) => file !== undefined);
  }

  /** Throws `conflict` if a directory has the name of the file, which no rename replaces. */
  async requireNoDirectory(file: string): Promise<void> {
    const found = await this.#gate.run(() => lstat(this.pathOf(file))).catch(ignoreGone);
    if (found?.isDirectory() !== true) return;
    throw new RonError('conflict', `${this.pathOf(file)} is a directory: remove it, or use another name`);
  }

  pathOf(file: string): string {
    return join(this.path, file);
  }

  sidecarOf(file: string): string {
    return this.pathOf(`${file}.b3`);
  }

  async createUpload(name: string): Promise<UploadFile> {
    const path = join(this.path, `.${name}.${this.#tag}${sched.randomBytes(4).toHex()}.upload`);
    return { path, sidecar: `${path}.b3`, file: await this.#fs.create(path) };
  }

  /** The identity of an upload. It keeps it under another name. */
  async identityOf({ path }: UploadFile): Promise<string> {
    return identityIn(await this.#gate.run(() => stat(path, { bigint: true })));
  }

  /** Removes the files of an upload that was not installed. */
  async discard({ path, sidecar, file }: UploadFile): Promise<void> {
    await file.close();
    await this.#removeIfThere(path);
    await this.#removeIfThere(sidecar);
  }

  /** Gives an upload the name of a pack, durably, in place of an earlier file. */
  async install(upload: UploadFile, file: string): Promise<void> {
    await upload.file.sync();
    await this.#fs.rename(upload.path, this.pathOf(file));
    // After the pack, so that a failed rename leaves the earlier pack its sidecar. Without one the next start reads the pack in
    // full: an earlier sidecar is ignored, because it is bound to another inode.
    await this.#fs.rename(upload.sidecar, this.sidecarOf(file)).catch(() => undefined);
    await this.#fs.syncDir(this.path);
  }

  /** Removes a pack and its sidecar, durably. */
  async remove(file: string): Promise<void> {
    await this.#removeIfThere(this.pathOf(file));
    await this.#removeIfThere(this.sidecarOf(file));
    await this.#fs.syncDir(this.path);
  }

  /** Removes uploads that a killed process left, not those of this one, and sidecars without a PMTiles pack. */
  async removeLeftovers(): Promise<void> {
    const names = await this.#names();
    const present = new Set(names);
    for (const name of names) {
      const pack = SIDECAR.exec(name)?.groups?.['pack'];
      const isOrphan =
        pack !== undefined &&
        PACK_NAME_PATTERN.test(PACK.exec(pack)!.groups!['name']!) &&
        (pack.endsWith('.mbtiles') || !present.has(pack));
      const isLeft = UPLOAD.test(name) && !name.includes(`.${this.#tag}`);
      if (isOrphan || isLeft) await this.#removeIfThere(join(this.path, name));
    }
  }

  async #names(): Promise<string[]> {
    return await this.#gate.run(async () => {
      const names: string[] = [];
      for await (const { name } of await opendir(this.path)) {
        if (names.length === this.#entries_max) throw tooMany(this.#entries_max);
        names.push(name);
      }
      return names;
    });
  }

  async #stat(file: string): Promise<PackFile | undefined> {
    const found = await this.#gate.run(() => stat(this.pathOf(file), { bigint: true })).catch(ignoreGone);
    if (found === undefined || found.isDirectory()) return undefined;
    const { name, format } = PACK.exec(file)!.groups as { name: string; format: PackFormat };
    const { size, mtimeMs } = found;
    return {
      name,
      isMisnamed: !PACK_NAME_PATTERN.test(name),
      file,
      format,
      identity: identityIn(found),
      state: `${identityIn(found)} ${found.ctimeNs}`,
      size: Number(size),
      mtime_ms: Number(mtimeMs),
    };
  }

  async #removeIfThere(path: string): Promise<void> {
    await this.#fs.remove(path).catch(ignoreGone);
  }
}

const tooMany = (entries_max: number): RonError =>
  new RonError('not_ready', `more than ${entries_max} entries: move other files away, or raise packs.open_max`);

const identityIn = ({ dev, ino, size, mtimeNs }: BigIntStats): string => `${dev} ${ino} ${size} ${mtimeNs}`;

function ignoreGone(error: unknown): undefined {
  if (!isGone(error)) throw error;
}
