/**
 * The source networks of a provider, compiled.
 *
 * Contract: a descriptor is compiled once, when its provider is loaded; later calls return the same list without work. The
 * texts of an accepted descriptor are all valid; a text that is not would be in no network, so it would admit nothing.
 * Bound: one list for each descriptor in use.
 */
import { parseNetwork, type Network } from '@ron/auth';
import type { Descriptor } from '@ron/proto';

const compiled = new WeakMap<Descriptor, readonly Network[]>();

export function networksOf(descriptor: Descriptor): readonly Network[] {
  let networks = compiled.get(descriptor);
  if (networks === undefined) {
    networks = descriptor.networks.map((text) => parseNetwork(text)).filter((network) => network !== undefined);
    compiled.set(descriptor, networks);
  }
  return networks;
}
