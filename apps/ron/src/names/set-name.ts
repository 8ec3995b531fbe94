/** Points a name at an address. */
import type { VerifiedName } from '@ron/client';
import type { Address } from '@ron/proto';
import { NAME_LIFE_S } from '@ron/proto/names';
import type { Io } from '../io.ts';
import { keyFor } from './name-keys.ts';
import type { NodeServices } from './node-services.ts';
import { isOver, publish } from './publish.ts';

export { nameJson } from './show-name.ts';

export interface SetNameInit {
  readonly label: string;
  readonly address: Address;
  /** A kid or public key. Default: the trusted one, or the only one; the first use creates it. */
  readonly key?: string | undefined;
  /** Default one year. */
  readonly life_s?: number;
  readonly ttl_s?: number | undefined;
}

/** Publishes nothing if the name has this address already. */
export async function setName(init: SetNameInit, services: NodeServices, io: Io): Promise<VerifiedName> {
  const { label, address, life_s = NAME_LIFE_S, ttl_s } = init;
  const key = await keyFor(label, init.key, services, io);
  const next = (current: VerifiedName | undefined): { value: Address } | undefined => {
    if (current?.rival !== undefined) io.note(`${label} is forked; this record ends the conflict`);
    const isSet = current?.record.value === address && current.rival === undefined && !isOver(current);
    return isSet ? undefined : { value: address };
  };
  return await publish({ label, key, next, onConflict: 'retry', life_s, ttl_s }, services, io);
}
