/**
 * The handler of `PUT /o/:addr` and `POST /o`: writes a body to the object store and answers with a receipt.
 *
 * Contract: the receipt is sent once the object is durable. Each step that waits for the disk has a deadline of its own; a
 * slow client does not use it up (the listener bounds the client). Bound: one piece of the body at a time.
 */
import type { FinishInit, ObjectStore, Written } from '@ron/cas';
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { NEVER, releaseBytes, sched, type Deadline } from '@ron/kernel';
import { formatDurability, type ObjectReceipt } from '@ron/proto';
import { receiptDurability, type DurabilityMeter } from '../objects/durability-meter.ts';
import type { Foreground } from '../objects/foreground.ts';
import { addressFrom, mediaTypeFrom } from '../objects/object-bytes.ts';
import { withStepDeadlines } from '../objects/step-deadlines.ts';

export interface PutInit {
  readonly store: ObjectStore;
  readonly meter: DurabilityMeter;
  /** A new deadline for one step of writing, within that of the request. */
  readonly putStep: (parent: Deadline) => Deadline;
  readonly foreground: Foreground;
}

type Context = Pick<RouteContext, 'stream' | 'body_bytes' | 'headers' | 'deadline' | 'actsOn'>;

/** `addr`: the address in the path; undefined when the client wants to learn it. */
export async function putObject(init: PutInit, context: Context, addr: string | undefined): Promise<RouteAnswer> {
  const expected = addr === undefined ? undefined : addressFrom(addr);
  const media_type = mediaTypeFrom(context.headers['content-type']);
  const onAddress = expected === undefined ? (address: string) => context.actsOn({ address }) : undefined;
  const written = await storeBody(init, context, { expected, media_type, onAddress });
  const { address, size, existed } = written;
  const durability = receiptDurability(init.meter, address);
  return json(existed ? 200 : 201, { address, size, durability } satisfies ObjectReceipt, {
    Location: `/o/${address}`,
    'Ron-Durability': formatDurability(durability),
  });
}

function storeBody(init: PutInit, { body_bytes, stream, deadline }: Context, finish: FinishInit): Promise<Written> {
  const step = (): Deadline => init.putStep(deadline);
  return body_bytes === undefined
    ? storeStream(init, stream, finish, step)
    : storeWhole(init, body_bytes, finish, step);
}

async function storeStream(
  { store, foreground }: PutInit,
  body: AsyncIterable<Uint8Array>,
  finish: FinishInit,
  step: () => Deadline,
): Promise<Written> {
  const writer = store.writer();
  const onWritten = foreground.putWrites();
  try {
    return await withStepDeadlines(body, step, async (pieces, signal) => {
      for await (const bytes of pieces) {
        const began_ms = sched.now_ms();
        await writer.write(bytes, signal);
        onWritten(bytes.length, sched.now_ms() - began_ms);
      }
      const ended_ms = sched.now_ms();
      const written = await writer.finish(finish, signal);
      foreground.putEnded(sched.now_ms() - ended_ms);
      return written;
    });
  } finally {
    writer.abort();
  }
}

/** Stores a body that is complete in memory, and releases that memory. */
async function storeWhole(
  { store, foreground }: PutInit,
  bytes: Uint8Array,
  finish: FinishInit,
  step: () => Deadline,
): Promise<Written> {
  using due = step();
  const began_ms = sched.now_ms();
  // Not cancelled with the deadline: a record that waits for its sync becomes durable, and the client can repeat the PUT.
  const written = await due.within(store.put(bytes, finish, NEVER));
  foreground.putEnded(sched.now_ms() - began_ms);
  if (store.volume.isDoneWithPayloads) releaseBytes(bytes);
  return written;
}
