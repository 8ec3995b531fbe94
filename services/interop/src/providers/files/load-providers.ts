/**
 * Loads the provider files at the start, and compares them with the catalog.
 *
 * Contract: a file that cannot be used closes its provider only: damaged, missing, or older than its catalog entry. A creation or
 * removal that a crash interrupted is undone or completed.
 * Bound: one small file for each provider. Cancellation: by the signal.
 */
import { isRonError } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import { unknownDescriptor } from '../descriptor.ts';
import type { Catalog } from './catalog.ts';
import type { ProviderDir, ProviderFile } from './provider-dir.ts';
import { storedOf, type StoredProvider } from './stored-provider.ts';

/** A provider whose file cannot be used. */
export interface ClosedFile {
  /** The last known one. */
  readonly descriptor: Descriptor;
  /** A fixed text. */
  readonly problem: string;
  /** For the operator: may name paths. */
  readonly detail: string | undefined;
}

export type FileState = { readonly stored: StoredProvider } | { readonly closed: ClosedFile };

export interface LoadInit {
  readonly dir: ProviderDir;
  readonly catalog: Catalog;
  readonly signal: AbortSignal;
}

export interface LoadedProviders {
  /** By the name of the provider. */
  readonly states: Map<string, FileState>;
  /** The files that can be used. */
  readonly files: Map<string, ProviderFile>;
}

export async function loadProviders(init: LoadInit): Promise<LoadedProviders> {
  const loaded: LoadedProviders = { states: new Map(), files: new Map() };
  try {
    for (const name of await init.dir.names()) await loadOne(init, name, loaded);
  } catch (error) {
    await Promise.all([...loaded.files.values()].map((file) => file.close()));
    throw error;
  }
  for (const { name } of init.catalog.listed()) {
    if (!loaded.states.has(name)) loaded.states.set(name, closed(init, name, 'its file is missing', undefined));
  }
  return loaded;
}

async function loadOne(init: LoadInit, name: string, { states, files }: LoadedProviders): Promise<void> {
  const { dir, catalog, signal } = init;
  let file: ProviderFile | undefined;
  try {
    file = await dir.open(name, signal);
    const stored = storedOf(name, file.value);
    if (stored !== undefined) catalog.noteIncarnation(stored.incarnation);
    const entry = catalog.get(name);
    const revision = entry?.revision ?? 0;
    const isRemoved = stored === undefined || (stored.revision <= revision && entry?.descriptor === undefined);
    if (isRemoved) return await dir.discard(name, file);
    if (stored.revision < revision) {
      await file.close();
      const detail = `${file.path}: restore the newest copy, or set the provider again`;
      states.set(name, closed(init, name, 'its file is older than its last change', detail));
      return;
    }
    states.set(name, { stored });
    files.set(name, file);
  } catch (error) {
    await file?.close();
    signal.throwIfAborted();
    const detail = isRonError(error) ? error.message : 'unknown error';
    states.set(name, closed(init, name, 'its file is damaged or cannot be read', detail));
  }
}

function closed({ catalog }: LoadInit, name: string, problem: string, detail: string | undefined): FileState {
  const descriptor = catalog.get(name)?.descriptor ?? unknownDescriptor(name);
  return { closed: { descriptor, problem, detail } };
}
