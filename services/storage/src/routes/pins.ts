/** Handlers for pins. */
import type { ObjectStore } from '@ron/cas';
import { empty, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { addressFrom } from '../objects/object-bytes.ts';

type Context = Pick<RouteContext, 'deadline'> & { readonly params: { readonly addr: string } };

export async function pin(store: ObjectStore, { params, deadline }: Context): Promise<RouteAnswer> {
  await store.pin(addressFrom(params.addr), deadline.signal);
  return empty(204);
}

export async function unpin(store: ObjectStore, { params, deadline }: Context): Promise<RouteAnswer> {
  await store.unpin(addressFrom(params.addr), deadline.signal);
  return empty(204);
}
