/** The mounted packs, as routes and the readiness see them. */
import type { RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { OpenPack, PackInfo } from './pack.ts';

/** A pack under its name. A replaced or removed one is retired: it serves the requests that hold it, then it is closed. */
export interface Mount {
  readonly name: string;
  readonly pack: OpenPack;
  /** Replaced, removed or damaged: outer caches must not answer from it any more. */
  readonly isRetired: boolean;
  /** States the same, without keeping the pack in memory: for outer caches. */
  readonly validity: { readonly isRetired: boolean };
  /** Keeps the pack open until the result is disposed. Throws `not_ready` if it is damaged. */
  hold(): Disposable;
}

/** A file in the directory that is not mounted. */
export interface BadPack {
  readonly name: string;
  readonly file: string;
  readonly reason: string;
  /** An earlier version under this name is still served. */
  readonly isServed: boolean;
}

export interface PutPackInit {
  readonly name: string;
  /** The bytes of the pack, or the address of an object in storage. */
  readonly from: AsyncIterable<Uint8Array> | Address;
  readonly expect: Address | undefined;
  readonly signal: AbortSignal;
}

export interface Packs {
  /** A mounted pack; one lookup in a snapshot. */
  get(name: string): Mount | undefined;
  /** Why there is no such mount: `not_found`, or `not_ready` if its file is refused or still being verified. */
  absence(name: string): RonError;
  list(): readonly Mount[];
  /** Files that cannot be mounted. */
  bad(): readonly BadPack[];
  /** Why packs are not served, besides bad files: the directory, a damaged pack, or the verification at the start. */
  readonly problem: string | undefined;
  /** Resolves once the pack is verified, synced and mounted. Refuses with `validation` and the reason; nothing is kept. */
  put(init: PutPackInit): Promise<{ readonly name: string; readonly info: PackInfo; readonly existed: boolean }>;
  /** False if there is neither a mount nor a file with this name. */
  remove(name: string, signal: AbortSignal): Promise<boolean>;
  /** Compares the directory with the mounts, and mounts or retires the differences. */
  reload(signal: AbortSignal): Promise<void>;
}
