/** The DHT of a node that has not joined yet: no peer is known. */
import type { Dht } from '../dht/dht.ts';

export const UNJOINED: Pick<Dht, 'findProviders' | 'findName'> = {
  findProviders: async () => ({ providers: [], complete: false, empty: 'no_route' }),
  findName: async () => ({ values: [], answers: 0, complete: false, empty: 'no_route' }),
};
