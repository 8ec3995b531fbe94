/** Reads the keys that a request names into memory before its handler runs, so that no handler waits for the disk. */
import type { Route } from '@ron/ingress';
import type { KeyRegistry } from '../keys/key-registry.ts';

export function withKeysInMemory(registry: Pick<KeyRegistry, 'ready'>, route: Route): Route {
  const { handler } = route;
  const load: Route['handler'] = (context) => {
    const loading = registry.ready(kidsIn(context.params, context.body), context.deadline);
    return loading === undefined ? handler(context) : loading.then(() => handler(context));
  };
  return { ...route, handler: load };
}

interface Named {
  readonly kid?: unknown;
  readonly kid_set?: unknown;
  readonly items?: unknown;
}

/** The kids in a validated request. */
function kidsIn(params: unknown, body: unknown): string[] {
  const { items } = (body ?? {}) as Named;
  const all = [params, body, ...(Array.isArray(items) ? items : [])] as (Named | undefined)[];
  const kids = all.flatMap((named): unknown[] => {
    const { kid, kid_set } = named ?? {};
    return Array.isArray(kid_set) ? [kid, ...(kid_set as unknown[])] : [kid];
  });
  return kids.filter((kid) => typeof kid === 'string');
}
