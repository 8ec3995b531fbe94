/**
 * Where `ron queue receive` and `peek` put messages: standard output, or files of a directory.
 *
 * Contract: `write` resolves once the message is written to standard output, or its file is complete and synced, so that the
 * message may be acknowledged. A file is named SEQ-ID: a message that is delivered again replaces its own file.
 */
import { join } from 'node:path';
import { makeDirectory } from '@ron/log';
import { usage } from '../args.ts';
import { CliError, systemCode } from '../exits.ts';
import type { Io } from '../io.ts';
import { PartFile } from '../part-file.ts';
import { messageJson, messageText, rawBytes, type ShownMessage } from './message-text.ts';
import type { QueueInvocation } from './queue-options.ts';

export interface MessageOutput {
  write(message: ShownMessage): Promise<void>;
}

export async function messageOutput({ values, io }: QueueInvocation): Promise<MessageOutput> {
  const { out, raw = false, lines = false } = values;
  if ([raw, lines, out !== undefined, io.json].filter(Boolean).length > 1 && !(out !== undefined && io.json))
    throw usage({ name: 'queue' }, 'Specify one of --raw, --lines, --out and --json');
  if (out !== undefined) return await directoryOutput(io, out);
  if (!raw && !lines) return { write: (message) => printed(io, message) };
  const end = lines ? Buffer.from('\n') : new Uint8Array(0);
  return {
    write: async ({ payload }) => {
      await io.bytes(Buffer.concat([rawBytes(payload, io.stdout.isTTY), end]));
      await io.flushed();
    },
  };
}

async function printed(io: Io, message: ShownMessage): Promise<void> {
  io.result(messageText(message), messageJson(message));
  await io.flushed();
}

async function directoryOutput(io: Io, dir: string): Promise<MessageOutput> {
  await makeDirectory(dir, 0o777).catch((error: unknown) => {
    throw new CliError('no_output', `${dir} cannot be created (${systemCode(error)})`);
  });
  return {
    write: async (message) => {
      const { id, seq, payload, ...facts } = message;
      // The client has checked that the id is a ULID and the seq a number: the file stays in the directory.
      const path = join(dir, `${seq}-${id}`);
      await using file = await PartFile.open(path);
      await file.startAt(0);
      await file.write(payload);
      await file.finish();
      io.result(message.token === undefined ? path : `${path}  ${message.token}`, { id, seq, ...facts, path });
      await io.flushed();
    },
  };
}
