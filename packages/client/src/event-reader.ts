/**
 * Reads server-sent events from a response.
 *
 * Contract: yields each event with its name, data and id, in order. Comments are skipped. An event that the end of the
 * stream cuts is dropped, as the standard demands.
 * Bound: `EVENT_BYTES_MAX` for one event. Overflow: `integrity`. Cancellation: by leaving the loop, or by the signal of the
 * request.
 */
import { RonError } from '@ron/kernel/core';
import type { ByteStream } from './answer.ts';
import { chunksOf } from './body.ts';

const EVENT_BYTES_MAX = 64 * 1024;

export interface StreamedEvent {
  /** Default `message`. */
  readonly event: string;
  readonly data: string;
  readonly id?: string;
}

/** `onBytes` is called for each piece that arrives, comments included. */
export async function* readEvents(
  body: ByteStream,
  onBytes: () => void = () => undefined,
): AsyncGenerator<StreamedEvent, void, void> {
  const decoder = new TextDecoder();
  const parser = new EventParser();
  for await (const chunk of chunksOf(body)) {
    onBytes();
    yield* parser.push(decoder.decode(chunk, { stream: true }));
  }
}

class EventParser {
  /** The line that has not ended yet. */
  #rest = '';
  /** The last line ended with CR: an LF that follows belongs to it. */
  #endedByReturn = false;
  #fields: { event?: string; id?: string; data: string[] } = { data: [] };
  #chars = 0;

  *push(text: string): Generator<StreamedEvent, void, void> {
    const from = this.#endedByReturn && text.startsWith('\n') ? 1 : 0;
    if (text.length > 0) this.#endedByReturn = text.endsWith('\r');
    const lines = (this.#rest + text.slice(from)).split(/\r\n|\r|\n/);
    this.#rest = lines.pop()!;
    for (const line of lines) {
      const event = this.#line(line);
      if (event !== undefined) yield event;
    }
    if (this.#chars + this.#rest.length > EVENT_BYTES_MAX) throw tooLong();
  }

  /** Returns the event that an empty line completes. */
  #line(line: string): StreamedEvent | undefined {
    if (line === '') return this.#complete();
    this.#chars += line.length;
    if (this.#chars > EVENT_BYTES_MAX) throw tooLong();
    const [name, value = ''] = line.split(/:(.*)/s);
    const text = value.startsWith(' ') ? value.slice(1) : value;
    if (name === 'data') this.#fields.data.push(text);
    if (name === 'event') this.#fields.event = text;
    if (name === 'id') this.#fields.id = text;
    return undefined;
  }

  #complete(): StreamedEvent | undefined {
    const { event = 'message', id, data } = this.#fields;
    this.#fields = { data: [] };
    this.#chars = 0;
    if (data.length === 0) return undefined;
    return { event, data: data.join('\n'), ...(id !== undefined && { id }) };
  }
}

const tooLong = (): RonError =>
  new RonError('integrity', `the server sent an event of more than ${EVENT_BYTES_MAX} bytes`);
