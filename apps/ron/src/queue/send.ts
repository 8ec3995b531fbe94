/**
 * `ron queue send`: sends text, files or lines to a topic.
 *
 * Contract: messages are sent in order, in batches; each batch is stored before the next one is sent. A refused message does
 * not stop its batch, but no further batch is sent. With `--idempotency-key`, a repeated command sends only the messages that
 * are missing. Bound: one batch. Cancellation: by the signal; messages of a batch in flight may be stored.
 */
import { isRonError } from '@ron/kernel/core';
import { MAILBOX_LIMITS, type OutgoingMessage, type SendError, type SendResult } from '@ron/proto';
import type { MailboxClient } from '@ron/client';
import { usage } from '../args.ts';
import { CliError, type Exit } from '../exits.ts';
import { ProgressLine } from '../progress-line.ts';
import { durationArg } from '../quantity-args.ts';
import { headersArg } from './headers.ts';
import { counted, topicArg, withMailbox } from './mailbox-service.ts';
import { FLUSH, payloads, totalBytes, type OutgoingInit, type OutgoingPayload } from './outgoing.ts';
import type { QueueInvocation } from './queue-options.ts';

/** The framing of a batch and of each message. */
const FRAME_BYTES = 64;
/** A slash and the number of a message, which is appended to the idempotency key. */
const KEY_NUMBER_BYTES = 16;

export async function send(invocation: QueueInvocation, [name, ...files]: readonly string[]): Promise<void> {
  const topic = topicArg(name!);
  const sources = sourcesOf(invocation, files);
  const common = commonOf(invocation, isSingle(sources));
  const total_bytes = sources.text === undefined ? await totalBytes(sources.files) : undefined;
  await withMailbox(invocation, async (client) => {
    const sending = new Sending(invocation, client, topic, common, total_bytes);
    using _ = sending;
    for await (const next of payloads(sources)) {
      if (next === FLUSH) await sending.flush();
      else await sending.add(next, isSingle(sources));
    }
    await sending.flush();
    sending.finish();
  });
}

type Common = Pick<OutgoingMessage, 'key' | 'idempotency_key' | 'delay_ms' | 'headers'>;

const isSingle = ({ files, text, lines }: OutgoingInit): boolean =>
  !lines && files.length + Number(text !== undefined) === 1;

function sourcesOf({ values, signal }: QueueInvocation, files: readonly string[]): OutgoingInit {
  const { text, lines = false } = values;
  if (text !== undefined && files.length > 0) throw usage({ name: 'queue' }, 'Specify files or --text, not both');
  if (text !== undefined && lines) throw usage({ name: 'queue' }, '--lines needs a file or -');
  if (text === undefined && files.length === 0 && process.stdin.isTTY)
    throw usage({ name: 'queue' }, 'Specify a file, - for standard input, or --text');
  return { files: files.length === 0 && text === undefined ? ['-'] : files, text, lines, signal };
}

function commonOf({ values }: QueueInvocation, single: boolean): Common {
  const { key, delay, header, 'idempotency-key': idempotency_key } = values;
  const { key_bytes } = MAILBOX_LIMITS;
  for (const [flag, value, bytes_max] of [
    ['--key', key, key_bytes],
    ['--idempotency-key', idempotency_key, single ? key_bytes : key_bytes - KEY_NUMBER_BYTES],
  ] as const) {
    if (value !== undefined && (value === '' || Buffer.byteLength(value) > bytes_max))
      throw usage({ name: 'queue' }, `${flag} must have 1 to ${bytes_max} bytes`);
  }
  return {
    ...(key !== undefined && { key }),
    ...(idempotency_key !== undefined && { idempotency_key }),
    ...(delay !== undefined && { delay_ms: durationArg('--delay', delay, 0, MAILBOX_LIMITS.delay_ms) }),
    ...(header !== undefined && { headers: headersArg(header) }),
  };
}

/** One run of the command: the open batch, and the counts. */
class Sending implements Disposable {
  readonly #invocation: QueueInvocation;
  readonly #client: MailboxClient;
  readonly #topic: string;
  readonly #common: Common;
  readonly #total_bytes: number | undefined;
  readonly #line: ProgressLine;
  /** The bytes of a message besides its payload. */
  readonly #head_bytes: number;
  #batch: (OutgoingPayload & { readonly message: OutgoingMessage })[] = [];
  #batch_bytes = FRAME_BYTES;
  #read = 0;
  /** Without duplicates. */
  #sent = 0;
  #done_bytes = 0;
  #duplicates = 0;
  #last_id = '';

  constructor(
    invocation: QueueInvocation,
    client: MailboxClient,
    topic: string,
    common: Common,
    total_bytes: number | undefined,
  ) {
    this.#invocation = invocation;
    this.#client = client;
    this.#topic = topic;
    this.#common = common;
    this.#total_bytes = total_bytes;
    this.#line = new ProgressLine(`send to ${topic}`, invocation.io);
    this.#head_bytes = FRAME_BYTES + Buffer.byteLength(JSON.stringify({ topic, ...common }));
  }

  async add(outgoing: OutgoingPayload, single: boolean): Promise<void> {
    const bytes = outgoing.payload.length + this.#head_bytes;
    const { batch_messages, batch_bytes } = MAILBOX_LIMITS;
    if (this.#batch.length === batch_messages || this.#batch_bytes + bytes > batch_bytes) await this.flush();
    this.#read += 1;
    const { idempotency_key } = this.#common;
    const own = idempotency_key === undefined || single ? {} : { idempotency_key: `${idempotency_key}/${this.#read}` };
    const message = { topic: this.#topic, ...this.#common, ...own, payload: outgoing.payload };
    this.#batch.push({ ...outgoing, message });
    this.#batch_bytes += bytes;
  }

  async flush(): Promise<void> {
    const batch = this.#batch;
    if (batch.length === 0) return;
    this.#batch = [];
    this.#batch_bytes = FRAME_BYTES;
    const { signal } = this.#invocation;
    const messages = batch.map(({ message }) => message);
    const results = await this.#client
      .send(messages, { signal })
      .catch((error: unknown) => this.#failed(error, batch.length));
    let refused: CliError | undefined;
    for (const [at, result] of results.entries()) {
      const error = this.#record(batch[at]!, result);
      refused ??= error;
    }
    this.#line.update({ done_bytes: this.#done_bytes, total_bytes: this.#total_bytes });
    if (refused !== undefined) throw this.#stopped(refused);
  }

  /** Prints the result of a single message, or the counts. */
  finish(): void {
    const { io } = this.#invocation;
    if (io.json) return;
    if (this.#read === 1) {
      io.result(this.#last_id, {});
      if (this.#duplicates === 1) io.note('duplicate of an earlier message: nothing was stored');
    } else io.result(`sent ${this.#counts()}`, {});
  }

  #counts(): string {
    const duplicates = this.#duplicates === 0 ? '' : `, ${counted(this.#duplicates, 'duplicate')} of earlier messages`;
    return `${counted(this.#sent, 'message')}${duplicates}`;
  }

  [Symbol.dispose](): void {
    this.#line[Symbol.dispose]();
  }

  /** Returns the error of a refused message. */
  #record({ source, payload }: OutgoingPayload, result: SendResult): CliError | undefined {
    const { io } = this.#invocation;
    if (io.json) io.result('', { topic: this.#topic, source, ...result });
    if ('error' in result) {
      const first = result.id === undefined ? '' : ` (first message ${result.id})`;
      return new CliError(
        EXIT_OF_REFUSAL[result.error],
        `${this.#topic} refused ${source}: ${result.detail}${first}`,
        result.error,
      );
    }
    if (result.duplicate) this.#duplicates += 1;
    else this.#sent += 1;
    this.#done_bytes += payload.length + 1;
    this.#last_id = result.id;
    return undefined;
  }

  #failed(error: unknown, unknown: number): never {
    const { io, values } = this.#invocation;
    if (this.#sent + this.#duplicates > 0) io.note(`sent before the error: ${this.#counts()}`);
    const mayBeStored = !isRonError(error) || UNCERTAIN.has(error.code);
    if (mayBeStored && values['idempotency-key'] === undefined)
      io.note(
        `${counted(unknown, 'message')} may have been stored; --idempotency-key makes it safe to repeat the command`,
      );
    throw error;
  }

  #stopped(refused: CliError): CliError {
    const others = this.#sent + this.#duplicates === 0 ? 'nothing was sent' : `sent ${this.#counts()}`;
    return this.#read === 1 ? refused : new CliError(refused.exit, `${refused.message}; ${others}`, refused.code);
  }
}

const EXIT_OF_REFUSAL: Readonly<Record<SendError, Exit>> = { conflict: 'failed', full: 'temporary', topic: 'failed' };

/** The answer was lost: mailbox may have stored the messages. */
const UNCERTAIN: ReadonlySet<string> = new Set(['unreachable', 'timeout', 'canceled', 'integrity']);
