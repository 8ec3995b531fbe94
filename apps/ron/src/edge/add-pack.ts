/** `ron pack add`: uploads a file, or mounts an object of storage. */
import { basename, extname } from 'node:path';
import { isRonError } from '@ron/kernel/core';
import { ADDRESS_PREFIX, type Address, type PackDto } from '@ron/proto';
import { usage } from '../args.ts';
import { CliError, messageOf } from '../exits.ts';
import { fileBody } from '../file-body.ts';
import { homeOf, runningService } from '../home.ts';
import { openInput } from '../input-file.ts';
import { ProgressLine } from '../progress-line.ts';
import { StatusLine } from '../status-line.ts';
import { addressArg } from '../storage.ts';
import { packNameArg, withEdge } from './edge-service.ts';
import { packSummary } from './pack-text.ts';
import type { PackInvocation } from './pack-options.ts';

export async function addPack(invocation: PackInvocation, source: string): Promise<void> {
  const { values, io } = invocation;
  const expect = values.expect === undefined ? undefined : addressArg(values.expect);
  const isAddress = source.startsWith(ADDRESS_PREFIX);
  if (isAddress && values.name === undefined) throw usage({ name: 'pack' }, '--name is required for an address');
  const name = packNameArg(values.name ?? basename(source, extname(source)));
  const pack = isAddress
    ? await addObject(invocation, name, addressArg(source), expect)
    : await addFile(invocation, name, source, expect);
  io.result(packSummary(pack), pack);
  const map = await mapUrl(invocation, pack);
  if (map !== undefined) io.note(`map: ${map}`);
}

async function addFile(
  { values, io, signal }: PackInvocation,
  name: string,
  path: string,
  expect: Address | undefined,
): Promise<PackDto> {
  await using file = await openInput(path);
  const stats = await file.stat();
  if (!stats.isFile()) throw new CliError('usage', `${path} is not a file`);
  return await withEdge(values, io, signal, async (edge) => {
    using line = new ProgressLine(`add ${basename(path)}`, io);
    const onProgress = line.update.bind(line);
    const adding = edge.putPack(name, fileBody(file, stats.size), { expect, onProgress, signal });
    return await adding.catch((error: unknown) => refused(path, error));
  });
}

async function addObject(
  { values, io, signal }: PackInvocation,
  name: string,
  address: Address,
  expect: Address | undefined,
): Promise<PackDto> {
  if (expect !== undefined && expect !== address)
    throw new CliError('data', `${address} is not the expected address ${expect}`);
  return await withEdge(values, io, signal, async (edge) => {
    using line = new StatusLine(io);
    line.update(`edge reads ${address} from storage`);
    return await edge.putPackFrom(name, address, { signal }).catch((error: unknown) => refused(address, error));
  });
}

/** The error names the file besides the reason of the service. */
function refused(source: string, error: unknown): never {
  if (!isRonError(error, 'validation') && !isRonError(error, 'bad_request')) throw error;
  throw new CliError('data', `${source} was refused: ${messageOf(error)}`, error.code);
}

/** The page that draws the pack and verifies it against the address here, if the node of the directory runs. */
async function mapUrl({ values, io }: PackInvocation, { name, address }: PackDto): Promise<string | undefined> {
  if (values.url !== undefined || (io.env['RON_URL'] ?? '') !== '') return undefined;
  const running = await runningService(homeOf(values, io), 'edge');
  return running === undefined ? undefined : `${running.url}/edge/map/${name}#${address}`;
}
