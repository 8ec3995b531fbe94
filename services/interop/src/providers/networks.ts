/**
 * The source networks of a provider, compiled.
 *
 * Contract: a descriptor is compiled once, when its provider is loaded; later calls return the same list. `requireDescriptor`
 * accepts valid networks only; an invalid text would admit no address.
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
