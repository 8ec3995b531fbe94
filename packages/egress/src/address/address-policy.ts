/**
 * Decides which addresses may be dialled.
 *
 * Contract: public addresses, and those in the networks that the operator opened. An opened network opens exactly its
 * own addresses: `127.0.0.0/8` does not open `::ffff:127.0.0.1`. A metadata address is opened only by an entry for that
 * single address, so that `169.254.0.0/16` does not expose credentials.
 * Bound: `NETWORKS_MAX` entries.
 *
 *   const policy = new AddressPolicy(['10.20.0.0/16']);
 *   policy.refusal('10.20.1.1'); // undefined: may be dialled
 *   policy.refusal('10.21.1.1'); // 'private'
 */
import { contains, parseAddress, parseNetwork, type Address, type Network } from '@ron/http/networks';
import { RonError } from '@ron/kernel/core';
import { classify, type AddressKind } from './classify.ts';

const NETWORKS_MAX = 256;

/** Why an address is refused. */
export type Refusal = Exclude<AddressKind, 'public'> | 'not_an_address';

export class AddressPolicy {
  readonly #opened: readonly Network[];

  /** Throws `validation` for an entry that is not a network. */
  constructor(networks: readonly string[]) {
    if (networks.length > NETWORKS_MAX) throw new RonError('validation', `at most ${NETWORKS_MAX} networks`);
    this.#opened = networks.map((text) => {
      const network = parseNetwork(text);
      if (network !== undefined) return network;
      throw new RonError('validation', `${JSON.stringify(text)} is not a network such as 10.0.0.0/8`);
    });
  }

  /** Undefined when the address may be dialled. */
  refusal(text: string): Refusal | undefined {
    const address = parseAddress(text);
    if (address === undefined) return 'not_an_address';
    const kind = classify(address);
    return kind === 'public' || this.#opens(address, kind) ? undefined : kind;
  }

  /** Whether the operator opened a network with this address: the condition for plain HTTP. */
  isOpened(text: string): boolean {
    const address = parseAddress(text);
    return address !== undefined && this.#opens(address, classify(address));
  }

  #opens(address: Address, kind: AddressKind): boolean {
    return this.#opened.some(
      (network) => contains(network, address) && (kind !== 'metadata' || network.bits === address.length * 8),
    );
  }
}
