/** `ron get`: writes an object to a file or to standard output, after verifying it. */
import type { ByteRange } from '@ron/client';
import { ADDRESS_PREFIX, type Address } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { CliError, type Exit } from '../exits.ts';
import { humanSize } from '../format.ts';
import { servicesOf } from '../names/node-services.ts';
import { ObjectReader } from '../net/object-reader.ts';
import { PartFile } from '../part-file.ts';
import { oneLine } from '../printable.ts';
import { ProgressLine } from '../progress-line.ts';
import { addressArg, withStorage } from '../storage.ts';

const options = {
  output: { type: 'string', short: 'o', value: 'FILE', doc: 'Write to this file. Default: standard output.' },
  range: {
    type: 'string',
    value: 'A-B',
    doc: 'Fetch bytes A to B only, inclusive and counted from 0; A- means to the end.',
  },
  verbose: { type: 'boolean', doc: 'Print the nodes that the object came from, if not from this one.' },
  ...CONNECTION_OPTIONS,
} as const;

type GetInvocation = Invocation<typeof options>;

export default command({
  name: 'get',
  usage: 'get ADDRESS|NAME [-o FILE] [--range A-B]',
  about:
    'Fetches an object. Every byte is verified against the address before it is written. A name is LABEL, or LABEL@KEY for\n' +
    'the name of another key; its signed record is verified. With -o, the data goes to\n' +
    'FILE.part, which is renamed to FILE once it is complete. After an interruption, run the same command again: it\n' +
    'verifies FILE.part and fetches the rest. An object that this node lacks is read from nodes that its index finds.',
  options,
  args: [1, 1],
  examples: {
    'ron get b3:... -o photo.jpg': 'write to a file',
    'ron get site/home -o index.html': 'fetch the object that a name stands for',
    'ron get b3:... | tar x': 'pipe to another program',
    'ron get b3:... --range 0-99': 'fetch the first 100 bytes',
  },
  async run(invocation): Promise<Exit | void> {
    const { values, args, io } = invocation;
    const address = await addressOf(args[0]!, invocation);
    const range = values.range === undefined ? undefined : parseRange(values.range);
    if (values.output === undefined) {
      if (io.json) throw usage({ name: 'get' }, '--json requires -o FILE, because standard output holds the object');
      return await toStandardOutput(invocation, address, range);
    }
    return await toFile(invocation, values.output, address, range);
  },
});

/** A name is resolved by the node of the directory, and its record verified here. */
async function addressOf(text: string, invocation: GetInvocation): Promise<Address> {
  if (text.startsWith(ADDRESS_PREFIX)) return addressArg(text);
  const { addressOfName } = await import('../names/read-name.ts');
  return await addressOfName(text, servicesOf(invocation, 'storage'), invocation.io);
}

function parseRange(text: string): ByteRange {
  const match = /^(\d{1,15})-(\d{1,15})?$/.exec(text);
  const [, first, last] = match ?? [];
  if (match === null || (last !== undefined && Number(last) < Number(first))) {
    throw usage({ name: 'get' }, `--range must be A-B or A-, like 0-99 or 100-, not ${JSON.stringify(text)}`);
  }
  const offset = Number(first);
  return { offset, length: last === undefined ? undefined : Number(last) - offset + 1 };
}

/** Reads from the named service, or from the own node and the nodes that its index knows. */
async function withReader<T>(invocation: GetInvocation, work: (reader: ObjectReader) => Promise<T>): Promise<T> {
  const { values, io, signal } = invocation;
  const isOwn = values.url === undefined && !io.env['RON_URL'];
  const { index } = servicesOf(invocation, 'storage');
  return await withStorage(values, io, signal, async (own) => {
    let wanted: Address | undefined;
    let hasFailed = false;
    const reader = new ObjectReader({
      own,
      providers: async (address, within) => {
        if (!isOwn) return [];
        wanted = address;
        return (await index((client) => client.providers(address, { signal: within }))).providers;
      },
      onFailure: (url, why) => {
        hasFailed = true;
        if (values.verbose === true) io.note(oneLine(`${url} could not deliver the object: ${why}`));
      },
    });
    try {
      const result = await work(reader);
      if (values.verbose === true && reader.from.length > 0) io.note(`read from ${reader.from.join(', ')}`);
      return result;
    } finally {
      if (hasFailed && wanted !== undefined) await requestProofs(wanted, index, signal);
    }
  });
}

/** A provider failed: a fresh lookup makes the node probe all of them again. The read does not depend on it. */
async function requestProofs(
  address: Address,
  index: ReturnType<typeof servicesOf>['index'],
  signal: AbortSignal,
): Promise<void> {
  const target = { kind: 'address', address } as const;
  await index((client) => client.resolve(target, { fresh: true, signal })).catch(() => undefined);
}

async function toStandardOutput(
  invocation: GetInvocation,
  address: Address,
  range: ByteRange | undefined,
): Promise<void> {
  const { io, signal } = invocation;
  await withReader(invocation, async (reader) => {
    using line = new ProgressLine('get', io);
    // On a terminal the progress line would mix with the object itself.
    const onProgress = io.stdout.isTTY ? undefined : line.update.bind(line);
    for await (const bytes of reader.get(address, { range, onProgress, signal })) await io.bytes(bytes);
  });
}

async function toFile(
  invocation: GetInvocation,
  output: string,
  address: Address,
  range: ByteRange | undefined,
): Promise<void> {
  const { io, signal } = invocation;
  await using part = await PartFile.open(output);
  const { size, from } = await withReader(invocation, async (reader) => {
    using line = new ProgressLine(`get ${output}`, io);
    // A range cannot be resumed: only whole groups of the object can be verified again.
    const kept = range === undefined ? await part.resume(reader, address, signal) : 0;
    if (range !== undefined) await part.startAt(0);
    if (kept > 0) io.note(`resuming after ${humanSize(kept)}`);
    let done = kept;
    const onProgress = ({ done_bytes = 0, total_bytes = 0 }): void =>
      line.update({ done_bytes: kept + done_bytes, total_bytes: kept + total_bytes });
    try {
      const init = { range: range ?? { offset: kept }, onProgress, signal, transient: true };
      for await (const bytes of reader.get(address, init)) {
        await part.write(bytes);
        done += bytes.length;
      }
    } catch (error) {
      await part.flush();
      if (signal.aborted) throw interrupted(signal, done, part.path);
      throw error;
    }
    return { size: done, from: reader.from };
  });
  await part.finish();
  io.result('', { address, size, file: output, ...(from.length > 0 && { from }) });
}

function interrupted(signal: AbortSignal, size: number, path: string): CliError {
  const exit = signal.reason instanceof CliError ? signal.reason.exit : 'interrupted';
  return new CliError(exit, `interrupted: ${humanSize(size)} saved in ${path}; run the same command again to resume`);
}
