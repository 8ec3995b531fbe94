/** Handlers that read: an object whole, in ranges or with a proof, and its manifest. */
import type { ObjectStore, StoredObject } from '@ron/cas';
import { bytes, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError, sched } from '@ron/kernel';
import type { DurabilityMeter } from '../objects/durability-meter.ts';
import type { Foreground } from '../objects/foreground.ts';
import { manifestSource } from '../objects/manifest-document.ts';
import { addressFrom, byteSource, openObject, proofSource } from '../objects/object-bytes.ts';

export interface GetInit {
  readonly store: ObjectStore;
  readonly meter: DurabilityMeter;
  readonly foreground: Foreground;
  /** Called for each object that a request opened, so that the next request is answered from memory. */
  readonly onOpened: (object: StoredObject) => void;
}

interface Query {
  readonly proof?: 'bao';
  readonly offset?: string;
  readonly length?: string;
}

type Context = Pick<RouteContext, 'deadline'> & { readonly params: { readonly addr: string } };

export async function getObject(
  { store, foreground, onOpened }: GetInit,
  { params, query, deadline }: Context & { readonly query: Query },
): Promise<RouteAnswer> {
  const address = addressFrom(params.addr);
  requireProofForRange(query);
  const began_ms = sched.now_ms();
  const isPlain = query.proof === undefined;
  const object = await openObject(store, address, deadline.signal, isPlain ? onOpened : undefined);
  const source = isPlain
    ? byteSource(object)
    : proofSource(object, Number(query.offset ?? 0), Number(query.length ?? object.size));
  return bytes(foreground.watchRead(source, sched.now_ms() - began_ms));
}

export async function getManifest({ store, meter }: GetInit, { params, deadline }: Context): Promise<RouteAnswer> {
  const object = await openObject(store, addressFrom(params.addr), deadline.signal);
  return bytes(manifestSource(object, meter));
}

function requireProofForRange({ proof, offset, length }: Query): void {
  if (proof === undefined && (offset !== undefined || length !== undefined)) {
    throw new RonError('bad_request', 'offset and length belong to proof=bao; for plain bytes use the Range header');
  }
}
