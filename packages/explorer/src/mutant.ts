/**
 * A module with one bug planted, imported from its real source: how a test shows that a model can fail.
 *
 * Everything that the mutant imports is the ordinary module, shared with the rest of the process.
 */
import { registerHooks, type LoadFnOutput, type LoadHookSync, type ResolveHookSync } from 'node:module';

interface Mutation {
  /** The file that changes. */
  readonly url: string;
  readonly find: string;
  readonly replace: string;
  /** Files that are imported anew so that they use the changed one. */
  readonly anew: ReadonlySet<string>;
  /** The changed file was loaded. */
  isUsed: boolean;
}

export interface MutantInit {
  /** Imported in place of the changed module: a module that uses it, directly or through `through`. */
  entry?: string;
  /** Modules between `entry` and the changed one. */
  through?: readonly string[];
}

const QUERY = '?mutant=';
const mutations: Mutation[] = [];

/** Imports `moduleUrl` with `find`, which must occur exactly once in its source, replaced. */
export async function mutant<T>(moduleUrl: string, find: string, replace: string, init: MutantInit = {}): Promise<T> {
  if (mutations.length === 0) registerHooks({ resolve, load });
  const entry = init.entry ?? moduleUrl;
  const anew = new Set([moduleUrl, entry, ...(init.through ?? [])]);
  const mutation: Mutation = { url: moduleUrl, find, replace, anew, isUsed: false };
  const id = mutations.push(mutation) - 1;
  const imported = (await import(`${entry}${QUERY}${id}`)) as T;
  if (!mutation.isUsed) throw new Error(`${entry} does not import ${moduleUrl}, unless through modules not named`);
  return imported;
}

function mutationOf(url: string | undefined): { readonly mutation: Mutation; readonly query: string } | undefined {
  const at = url?.lastIndexOf(QUERY) ?? -1;
  if (url === undefined || at < 0) return undefined;
  const query = url.slice(at);
  const mutation = mutations[Number(query.slice(QUERY.length))];
  return mutation && { mutation, query };
}

const resolve: ResolveHookSync = (specifier, context, next) => {
  const resolved = next(specifier, context);
  const importer = mutationOf(context.parentURL);
  if (importer === undefined || !importer.mutation.anew.has(resolved.url)) return resolved;
  return { ...resolved, url: resolved.url + importer.query };
};

const load: LoadHookSync = (url, context, next) => {
  const loaded = next(url, context);
  const found = mutationOf(url);
  if (found === undefined || url !== found.mutation.url + found.query) return loaded;
  return { ...loaded, source: mutate(textOf(loaded.source), found.mutation) };
};

function textOf(source: LoadFnOutput['source']): string {
  return typeof source === 'string' ? source : new TextDecoder().decode(source ?? undefined);
}

function mutate(source: string, mutation: Mutation): string {
  const { url, find, replace } = mutation;
  const parts = source.split(find);
  if (parts.length !== 2) {
    throw new Error(`'${find}' occurs ${parts.length - 1} times in ${url}; a mutant needs exactly one`);
  }
  mutation.isUsed = true;
  return parts.join(replace);
}
