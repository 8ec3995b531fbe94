/** The routes of lookups on a real listener, for tests. */
import { createIngress, route, type IngressConfig } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { READ_NAME, readName, type NameRoutesInit } from '../../routes/names.ts';
import { providers, PROVIDERS } from '../../routes/providers.ts';
import { resolve, RESOLVE } from '../../routes/resolve.ts';
import { routing, ROUTING } from '../../routes/routing.ts';
import { KEY, openResolving, type OpenedInit } from './open-resolving.ts';

/** Long enough for a busy machine; tests of deadlines shorten it by `Request-Timeout`. */
export const BUDGET_MS = 30_000;

const ROW = {
  method: 'GET',
  scope: null,
  lane: 'inline',
  body: 'none',
  summary: 'For a test.',
  deadline_ms: BUDGET_MS,
} as const;

export async function listen(
  init: OpenedInit & { readonly config?: Partial<IngressConfig>; readonly isFast?: boolean } = {},
) {
  const { config = {}, isFast = true, ...rest } = init;
  const opened = openResolving({ ...rest, settings: { budget_ms: BUDGET_MS, ...rest.settings } });
  const { resolving } = opened;
  const hits = { deadline: 0 };
  const names = { keyFor: () => KEY } as Partial<NameRoutesInit['names']> as NameRoutesInit['names'];
  const store = opened.store as Partial<NameRoutesInit['store']> as NameRoutesInit['store'];
  const routeInit = { resolving, onDeadlineHit: () => void (hits.deadline += 1) };
  const ingress = await createIngress({
    service: 'index',
    version: '0',
    metrics: new Metrics('index'),
    config,
    routes: [
      route({ ...ROW, path: '/resolve/*', schema: RESOLVE, handler: (context) => resolve(routeInit, context) }),
      route({
        ...ROW,
        path: '/names/*',
        schema: READ_NAME,
        handler: (context) => readName({ ...routeInit, names, store }, context),
      }),
      route({
        ...ROW,
        path: '/providers/:address',
        schema: PROVIDERS,
        handler: (context) => providers(routeInit, context),
      }),
      route({
        ...ROW,
        path: '/routing/v1/providers/:cid',
        schema: ROUTING,
        handler: (context) => routing(routeInit, context),
      }),
    ],
    ...(isFast && { fast: resolving.fast }),
  });
  const url = await ingress.listen();
  return {
    ...opened,
    url,
    hits,
    async [Symbol.asyncDispose](): Promise<void> {
      await ingress[Symbol.asyncDispose]();
      await opened[Symbol.asyncDispose]();
    },
  };
}
