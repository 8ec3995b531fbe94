/** `ron put`: stores a file or standard input as an object. */
import { open, realpath, type FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import type { PutBody, PutInit } from '@ron/client';
import type { Receipt } from '@ron/proto';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { fileBody } from '../file-body.ts';
import { humanSize } from '../format.ts';
import { ProgressLine } from '../progress-line.ts';
import { withStorage } from '../storage.ts';
import { uploadStoreDir, UploadUrlStore } from '../upload-url-store.ts';

const options = {
  type: {
    type: 'string',
    value: 'TYPE',
    doc: 'The media type. Default: the stored one, or application/octet-stream for a new object.',
  },
  state: {
    type: 'string',
    value: 'DIR',
    doc: 'The directory with the URLs of unfinished uploads. Default ~/.cache/ron/uploads.',
  },
  ...CONNECTION_OPTIONS,
} as const;

export default command({
  name: 'put',
  usage: 'put FILE|- [--type TYPE]',
  about:
    'Stores a file, or standard input with -, and prints its address once it is on disk. The address is verified against\n' +
    'the local file. After an interruption, run the same command again: the upload of a file resumes where it stopped.',
  options,
  args: [1, 1],
  examples: {
    'ron put photo.jpg --type image/jpeg': 'print its address, b3:...',
    'tar c docs | ron put -': 'store standard input',
    'ron put big.iso --json': '{"address":"b3:...","size":...}',
  },
  async run(invocation) {
    const [path] = invocation.args;
    if (path === '-') return await put(invocation, 'standard input', process.stdin, undefined);
    await using file = await openInput(path!);
    const stats = await file.stat();
    if (stats.isDirectory())
      throw new CliError('usage', `${path} is a directory; \`tar c ${path} | ron put -\` stores it as one object`);
    if (!stats.isFile()) return await put(invocation, path!, file.createReadStream({ autoClose: false }), undefined);
    const whole = await realpath(path!);
    const storeAt = (url: string): UploadUrlStore =>
      new UploadUrlStore(uploadStoreDir(invocation.values.state, invocation.io), url, whole, stats);
    return await put(invocation, basename(path!), fileBody(file, stats.size), storeAt);
  },
});

async function openInput(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (error) {
    const why = systemCode(error) === 'ENOENT' ? 'no such file' : `cannot be read (${systemCode(error)})`;
    throw new CliError('no_input', `${path}: ${why}`);
  }
}

async function put(
  { values, io, signal }: Invocation<typeof options>,
  label: string,
  body: PutBody,
  storeAt: ((url: string) => UploadUrlStore) | undefined,
): Promise<void> {
  const receipt = await withStorage(values, io, signal, async (client, { url }): Promise<Receipt> => {
    using line = new ProgressLine(`put ${label}`, io);
    const store = storeAt?.(url);
    const resume_url = await store?.load();
    let resumed = resume_url === undefined;
    const init: PutInit = {
      media_type: values.type,
      resume_url,
      onUploadUrl: (upload_url) => store?.save(upload_url),
      onProgress: (progress) => {
        if (!resumed && progress.done_bytes > 0) io.note(`resuming after ${humanSize(progress.done_bytes)}`);
        resumed = true;
        line.update(progress);
      },
    };
    const stored = await client.put(body, init);
    await store?.remove();
    return stored;
  });
  io.result(receipt.address, receipt);
}
