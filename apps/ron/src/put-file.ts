/** Stores a file or standard input as an object, with progress and resumption. */
import { realpath } from 'node:fs/promises';
import { basename } from 'node:path';
import type { PutBody, PutInit, StorageClient } from '@ron/client';
import type { Receipt } from '@ron/proto';
import { CliError } from './exits.ts';
import { fileBody } from './file-body.ts';
import { humanSize } from './format.ts';
import { openInput } from './input-file.ts';
import type { Io } from './io.ts';
import { ProgressLine } from './progress-line.ts';
import type { ResolvedService } from './resolve-service.ts';
import { uploadStoreDir, UploadUrlStore } from './upload-url-store.ts';

export interface PutFileInit {
  readonly io: Io;
  /** Default: the stored type, or application/octet-stream for a new object. */
  readonly media_type?: string | undefined;
  /** The directory with the URLs of unfinished uploads. Default ~/.cache/ron/uploads. */
  readonly state_dir?: string | undefined;
  /** Runs the upload with a client of storage. */
  readonly withStorage: <T>(work: (client: StorageClient, resolved: ResolvedService) => Promise<T>) => Promise<T>;
}

/** `path` is `-` for standard input. An interrupted upload of a file is resumed by the same call. */
export async function putFile(path: string, init: PutFileInit): Promise<Receipt> {
  if (path === '-') return await put('standard input', process.stdin, undefined, init);
  await using file = await openInput(path);
  const stats = await file.stat();
  if (stats.isDirectory())
    throw new CliError('usage', `${path} is a directory; \`tar c ${path} | ron put -\` stores it as one object`);
  if (!stats.isFile()) return await put(path, file.createReadStream({ autoClose: false }), undefined, init);
  const whole = await realpath(path);
  const storeAt = (url: string): UploadUrlStore =>
    new UploadUrlStore(uploadStoreDir(init.state_dir, init.io), url, whole, stats);
  return await put(basename(path), fileBody(file, stats.size), storeAt, init);
}

async function put(
  label: string,
  body: PutBody,
  storeAt: ((url: string) => UploadUrlStore) | undefined,
  { io, media_type, withStorage }: PutFileInit,
): Promise<Receipt> {
  return await withStorage(async (client, { url }) => {
    using line = new ProgressLine(`put ${label}`, io);
    const store = storeAt?.(url);
    const resume_url = await store?.load();
    let resumed = resume_url === undefined;
    const init: PutInit = {
      media_type,
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
}
