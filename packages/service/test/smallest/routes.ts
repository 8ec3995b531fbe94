/** The HTTP surface of the smallest service. */
import { json, route, type Route } from '@ron/ingress';

export interface RoutesInit {
  readonly greeting: () => string;
  readonly onGreeted: () => void;
}

export function routes({ greeting, onGreeted }: RoutesInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/greeting',
      summary: 'The configured greeting.',
      scope: null,
      lane: 'get',
      body: 'none',
      deadline: 'get',
      handler: () => {
        onGreeted();
        return json(200, { greeting: greeting() });
      },
    }),
    route({
      method: 'GET',
      path: '/secret',
      summary: 'A greeting for holders of a capability.',
      scope: 'index:name',
      lane: 'get',
      body: 'none',
      deadline: 'get',
      handler: () => json(200, { greeting: greeting() }),
    }),
  ];
}
