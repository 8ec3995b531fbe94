/**
 * Opens a transparency log for an audit: its directory, a copy, or a URL, with the keys that must have signed it.
 *
 * Contract: the path of a URL decides which service gets the capability: `/edge/fills` is edge, every other path kms. Without a
 * place, the log of this node is read from its directory, or over HTTP if there is none. A fill log of this node without an entry
 * is reported as such, unless keys, a checkpoint or a proof are given: these prove that there was one.
 */
import { existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TileSource } from '@ron/tlog';
import { withEdge } from '../edge/edge-service.ts';
import { CliError, systemCode } from '../exits.ts';
import { homeOf } from '../home.ts';
import type { Io } from '../io.ts';
import { withKms } from '../kms.ts';
import { resolveService, type ConnectionValues } from '../resolve-service.ts';
import { explained, senderOf } from '../service-client.ts';

export const LOGS = ['kms', 'edge'] as const;
export type LogName = (typeof LOGS)[number];

export interface OpenedLog {
  readonly source: TileSource;
  readonly vkeys: readonly string[];
}

/** Keys, checkpoints and proofs that the log must match. */
interface Expected {
  readonly vkey?: readonly string[] | undefined;
  readonly since?: readonly string[] | undefined;
  readonly proof?: readonly string[] | undefined;
}

export interface OpenLogInit {
  readonly log: LogName;
  /** A directory or a URL. Default: the log of this node. */
  readonly place: string | undefined;
  readonly values: ConnectionValues & Expected;
  readonly io: Io;
  readonly signal: AbortSignal;
}

const PLACES: Readonly<Record<LogName, { readonly dir: string; readonly path: string }>> = {
  kms: { dir: 'audit', path: '/v1/kms/audit' },
  edge: { dir: 'fills', path: '/edge/fills' },
};

export async function openLog(init: OpenLogInit): Promise<OpenedLog> {
  const { log, place, values, io } = init;
  if (place !== undefined && /^https?:/.test(place)) {
    const { origin, pathname } = new URL(place);
    const isEdge = pathname.replace(/\/+$/, '') === PLACES.edge.path;
    return await openUrl({ ...init, log: isEdge ? 'edge' : 'kms' }, origin, pathname);
  }
  if (place !== undefined) return await openDir(place, values.vkey);
  const dir = join(homeOf(values, io).of(log).data, PLACES[log].dir);
  if (values.url === undefined && !io.env['RON_URL'] && existsSync(dir)) {
    if (mayBeEmpty(init) && isEmpty(dir)) throw noFills();
    return await openDir(dir, values.vkey);
  }
  return await openUrl(init, values.url, PLACES[log].path);
}

async function openDir(dir: string, given: readonly string[] | undefined): Promise<OpenedLog> {
  const { dirSource } = await import('@ron/tlog');
  if (!existsSync(dir)) throw new CliError('no_input', `${dir}: no such directory`);
  const vkeys = given ?? (await storedKeys(dir));
  return { source: await dirSource(dir), vkeys };
}

async function storedKeys(dir: string): Promise<string[]> {
  const { parseVkey } = await import('@ron/tlog');
  const path = join(dir, 'vkeys');
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new CliError('no_input', `cannot read the keys in ${path} (${systemCode(error)}); pass them with --vkey`);
  }
  const vkeys = text.split('\n').filter((line) => line !== '');
  try {
    vkeys.forEach(parseVkey);
  } catch {
    throw new CliError('data', `${path} is damaged: a line is not a valid key; pass the keys with --vkey`, 'damaged');
  }
  return vkeys;
}

async function openUrl(init: OpenLogInit, url: string | undefined, path: string): Promise<OpenedLog> {
  const { log, values, io } = init;
  const { urlSource } = await import('@ron/tlog');
  // Like in every other command, the given URL decides whether a capability may be sent.
  const service = { ...values, url };
  const resolved = await resolveService(log, service, io);
  const { url: base, send } = senderOf(log, resolved);
  const plain = urlSource(new URL(path, base).href, { send, name: `${resolved.url}${path}` });
  const source = withAdvice(plain, (error) => explained(error, log, resolved));
  if (mayBeEmpty(init) && (await source.checkpoint(init.signal)) === undefined) throw noFills();
  return { source, vkeys: values.vkey ?? (await servedKeys(init, service)) };
}

function mayBeEmpty({ log, place, values: { vkey, since, proof } }: OpenLogInit): boolean {
  return log === 'edge' && place === undefined && vkey === undefined && since === undefined && proof === undefined;
}

/** Edge has neither an entry nor a checkpoint; it keeps a copy of its checkpoint beside the log. */
function isEmpty(dir: string): boolean {
  const { size = 0 } = statSync(join(dir, 'entries'), { throwIfNoEntry: false }) ?? {};
  return size === 0 && !existsSync(join(dir, 'checkpoint')) && !existsSync(`${dir}.checkpoint`);
}

const noFills = (): CliError =>
  new CliError('no_input', 'edge has logged no fill yet: there is nothing to verify', 'no_fills');

async function servedKeys({ log, io, signal }: OpenLogInit, values: ConnectionValues): Promise<readonly string[]> {
  const { vkeys } =
    log === 'kms'
      ? await withKms(values, io, signal, (client) => client.auditKeys())
      : await withEdge(values, io, signal, (client) => client.fillKeys());
  if (vkeys.length > 0) return vkeys;
  throw new CliError('unavailable', `${log} has no key for its log yet: try again once kms is reachable`);
}

/** A source whose errors carry advice. */
function withAdvice(source: TileSource, explain: (error: unknown) => unknown): TileSource {
  const rethrow = (error: unknown): never => {
    throw explain(error);
  };
  return {
    name: source.name,
    checkpoint: (signal) => source.checkpoint(signal).catch(rethrow),
    mark: (signal) => source.mark(signal).catch(rethrow),
    tile: (path, signal) => source.tile(path, signal).catch(rethrow),
    [Symbol.asyncDispose]: () => source[Symbol.asyncDispose](),
  };
}
