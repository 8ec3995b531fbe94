/**
 * `ron pack verify`: checks a pack byte for byte against its address.
 *
 * A file is checked against --expect, or against the pack with its name. A PMTiles pack is read from edge with proofs, so
 * that the bytes on the wire are checked. MBTiles cannot be read over HTTP: the file in the directory of the node is checked.
 */
import { existsSync } from 'node:fs';
import { basename, extname, join } from 'node:path';
import { EdgeClient, TRANSPORT_DEFAULTS, type TransportInit } from '@ron/client';
import type { Address, PackDto } from '@ron/proto';
import { usage } from '../args.ts';
import { CliError } from '../exits.ts';
import { humanSize } from '../format.ts';
import { homeOf } from '../home.ts';
import { addressOfFile } from '../input-file.ts';
import { oneLine } from '../printable.ts';
import { ProgressLine } from '../progress-line.ts';
import { withClient } from '../service-client.ts';
import { addressArg } from '../storage.ts';
import { packNameArg, withEdge } from './edge-service.ts';
import type { PackInvocation } from './pack-options.ts';

export async function verifyPack(invocation: PackInvocation, target: string): Promise<void> {
  const { values, io } = invocation;
  const expect = values.expect === undefined ? undefined : addressArg(values.expect);
  const isFile = target.includes('/') || extname(target) !== '' || existsSync(target);
  const { address, size } = isFile
    ? await verifyFile(invocation, target, expect)
    : await verifyServed(invocation, packNameArg(target), expect);
  const what = { target, address, size, ok: true };
  io.result(`valid: ${target} is ${address}, ${humanSize(size)} verified`, what);
}

interface Verified {
  readonly address: Address;
  readonly size: number;
}

async function verifyFile(invocation: PackInvocation, path: string, expect: Address | undefined): Promise<Verified> {
  const { io, signal } = invocation;
  using line = new ProgressLine(`verify ${basename(path)}`, io);
  let size = 0;
  const address = await addressOfFile(path, signal, (progress) => {
    size = progress.done_bytes;
    line.update(progress);
  });
  const wanted = expect ?? (await servedAddress(invocation, basename(path, extname(path)), path));
  if (address !== wanted) throw new CliError('data', `${path} is ${address}, not ${wanted}`, 'address_mismatch');
  return { address, size };
}

async function servedAddress(invocation: PackInvocation, name: string, path: string): Promise<Address> {
  const pack = await servedPack(invocation, name);
  if (pack !== undefined) return pack.address;
  throw usage({ name: 'pack' }, `no pack ${name} is served: name the address of ${path} with --expect`);
}

async function verifyServed(invocation: PackInvocation, name: string, expect: Address | undefined): Promise<Verified> {
  const { values, io, signal } = invocation;
  const pack = await servedPack(invocation, name);
  if (pack === undefined) throw new CliError('no_input', `no pack ${name} is served; list them with \`ron pack ls\``);
  const { address } = pack;
  if (expect !== undefined && expect !== address)
    throw new CliError('data', `pack ${name} is ${address}, not ${expect}`, 'address_mismatch');
  if (pack.problem !== undefined)
    throw new CliError('data', `pack ${name} is not served: ${oneLine(pack.problem)}`, 'damaged');
  if (pack.format === 'mbtiles') return await verifyFile(invocation, fileOf(invocation, pack), address);
  return await withClient('edge', impatient, values, io, signal, async (edge) => {
    using line = new ProgressLine(`verify ${name}`, io);
    let size = 0;
    const onProgress = line.update.bind(line);
    for await (const bytes of edge.readPack(name, address, { onProgress, signal, transient: true }))
      size += bytes.length;
    return { address, size };
  });
}

/** A pack that turns out to be damaged stays so: the read is not repeated for long. */
const impatient = (init: TransportInit): EdgeClient =>
  new EdgeClient({ ...init, policy: TRANSPORT_DEFAULTS.policy, resume_policy: TRANSPORT_DEFAULTS.policy });

async function servedPack({ values, io, signal }: PackInvocation, name: string): Promise<PackDto | undefined> {
  const { packs } = await withEdge(values, io, signal, (edge) => edge.packs({ signal }));
  return packs.find((pack) => pack.name === name);
}

function fileOf({ values, io }: PackInvocation, { name }: PackDto): string {
  const isElsewhere = values.url !== undefined || (io.env['RON_URL'] ?? '') !== '';
  if (isElsewhere) throw new CliError('usage', `pack ${name} is an MBTiles file: run this on its node, without --url`);
  return join(homeOf(values, io).of('edge').data, 'packs', `${name}.mbtiles`);
}
