/** `ron put`: a file or standard input becomes an object. */
import { open, realpath, type FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import type { PutBody, PutInit } from '@ron/client';
import type { Receipt } from '@ron/proto';
import { command, REACH_OPTIONS, type Invocation } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { fileBody } from '../file-body.ts';
import { humanSize } from '../format.ts';
import { ProgressLine } from '../progress-line.ts';
import { withStorage } from '../storage.ts';
import { memoryDir, UploadMemory } from '../upload-memory.ts';

const options = {
  type: {
    type: 'string',
    value: 'TYPE',
    doc: 'The media type to keep with it. Default: the stored one, application/octet-stream for a new object.',
  },
  state: {
    type: 'string',
    value: 'DIR',
    doc: 'Where unfinished uploads are remembered. Default ~/.cache/ron/uploads.',
  },
  ...REACH_OPTIONS,
} as const;

export default command({
  name: 'put',
  usage: 'put FILE|- [--type TYPE]',
  about:
    'Stores a file, or with - standard input, and prints its address once it is safe on disk. The address is computed\n' +
    'here too and must be the same. An upload of a file that was interrupted goes on where it stopped when the same\n' +
    'command is given again.',
  options,
  args: [1, 1],
  examples: {
    'ron put photo.jpg --type image/jpeg': 'prints b3:...',
    'tar c docs | ron put -': 'whatever comes in',
    'ron put big.iso --json': '{"address":"b3:...","size":...}',
  },
  async run(invocation) {
    const [path] = invocation.args;
    if (path === '-') return await put(invocation, 'standard input', process.stdin, undefined);
    await using file = await openInput(path!);
    const stats = await file.stat();
    if (stats.isDirectory())
      throw new CliError('usage', `${path} is a directory; \`tar c ${path} | ron put -\` stores it as one`);
    if (!stats.isFile()) return await put(invocation, path!, file.createReadStream({ autoClose: false }), undefined);
    const whole = await realpath(path!);
    const memoryAt = (url: string): UploadMemory =>
      new UploadMemory(memoryDir(invocation.values.state, invocation.io), url, whole, stats);
    return await put(invocation, basename(path!), fileBody(file, stats.size), memoryAt);
  },
});

async function openInput(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (error) {
    const why = systemCode(error) === 'ENOENT' ? 'there is no such file' : `it cannot be read (${systemCode(error)})`;
    throw new CliError('no_input', `${path}: ${why}`);
  }
}

async function put(
  { values, io, signal }: Invocation<typeof options>,
  label: string,
  body: PutBody,
  memoryAt: ((url: string) => UploadMemory) | undefined,
): Promise<void> {
  const receipt = await withStorage(values, io, signal, async (client, { url }): Promise<Receipt> => {
    using line = new ProgressLine(`put ${label}`, io);
    const memory = memoryAt?.(url);
    const resume_url = await memory?.recall();
    let resumed = resume_url === undefined;
    const init: PutInit = {
      media_type: values.type,
      resume_url,
      onUploadUrl: (upload_url) => memory?.remember(upload_url),
      onProgress: (progress) => {
        if (!resumed && progress.done_bytes > 0) io.note(`resuming after ${humanSize(progress.done_bytes)}`);
        resumed = true;
        line.update(progress);
      },
    };
    const stored = await client.put(body, init);
    await memory?.forget();
    return stored;
  });
  io.result(receipt.address, receipt);
}
