/**
 * A provider as its sealed file holds it.
 *
 * Contract: no plaintext of a secret is in the document; `sealed_b64` is sealed again, as a part of its own. `revision` grows with
 * every change, and versions of secrets are never reused, even after a removal. A provider that is created, also in place of one
 * whose secrets were lost, gets an `incarnation` of its own; replacements and rotations keep it.
 */
import { assert } from '@ron/kernel';
import { INTEROP_LIMITS, type Descriptor } from '@ron/proto';
import { requireDescriptor } from '../descriptor.ts';

/** A secret wrapped by kms. */
export interface WrappedSecret {
  /** The kid with its version, as kms gave it. */
  readonly kid: string;
  readonly wrapped_b64: string;
}

export interface StoredSecret {
  readonly version: number;
  readonly kind: 'hmac' | 'ed25519';
  readonly created_ms: number;
  /** By the wall clock. Absent for the newest. */
  readonly ends_ms?: number;
  /** Absent without kms. */
  readonly wrapped?: WrappedSecret;
  /** Absent if `secrets.cache` is off. */
  readonly sealed_b64?: string;
}

export interface StoredProvider {
  readonly format: 1;
  readonly revision: number;
  /** The highest version that was ever given out. */
  readonly secret_version: number;
  /** Above that of every provider that was created before. */
  readonly incarnation: number;
  readonly descriptor: Descriptor;
  /** The newest first. */
  readonly secrets: readonly StoredSecret[];
}

/** Without a descriptor: the file of a creation that a crash of an earlier version interrupted. */
export type ProviderDocument = StoredProvider | { readonly format: 1 };

export const EMPTY_DOCUMENT: ProviderDocument = { format: 1 };

/** Undefined for the file of a creation that did not complete. Throws if this version cannot use the document. */
export function storedOf(name: string, document: ProviderDocument): StoredProvider | undefined {
  assert(document.format === 1, 'the format of the file is known');
  if (!('descriptor' in document)) return undefined;
  const { descriptor, secrets, revision, secret_version, incarnation } = document;
  assert(descriptor.name === name, 'the file has the name of its provider');
  assert([revision, secret_version, incarnation].every(Number.isSafeInteger), 'revisions are numbers');
  assert(Array.isArray(secrets), 'secrets are a list');
  assert(secrets.length > 0 && secrets.length <= INTEROP_LIMITS.secrets, 'a provider has one or two secrets');
  return { ...document, descriptor: requireDescriptor(name, descriptor) };
}

export const hasEnded = ({ ends_ms }: Pick<StoredSecret, 'ends_ms'>, wall_ms: number): boolean =>
  ends_ms !== undefined && ends_ms <= wall_ms;
