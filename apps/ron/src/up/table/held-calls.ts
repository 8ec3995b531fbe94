/** The calls for which the caller holds a capability, and the file of each. */
import type { Service } from '@ron/proto';
import type { Home } from '../../home.ts';
import type { Call, ServiceEntry } from './service-entry.ts';

export interface HeldCall {
  readonly caller: Service;
  readonly call: Call;
  readonly path: string;
}

/** Those between the given services, in the order of the table. */
export function heldCalls(home: Home, services: readonly Pick<ServiceEntry, 'name' | 'calls'>[]): HeldCall[] {
  const names = services.map(({ name }) => name);
  return services.flatMap(({ name, calls }) =>
    calls
      .filter(({ to, scopes }) => scopes.length > 0 && names.includes(to))
      .map((call) => ({ caller: name, call, path: home.of(name).capabilityFor(call.to, call.purpose) })),
  );
}
