/** The HTTP surface of the example service. */
import { orAborted, RonError, sleep } from '@ron/kernel';
import { bytes, empty, events, json, route } from '@ron/ingress';
import type { Route, ServerSentEvent } from '@ron/ingress';
import { Type } from '@ron/ingress';
import type { NotesConfig } from './config.ts';
import type { Shelf } from './shelf.ts';

const Name = Type.Object({ name: Type.String({ pattern: '^[a-z0-9-]{1,64}$' }) }, { additionalProperties: false });
const Stored = Type.Object({ name: Type.String(), etag: Type.String(), size: Type.Integer() });
const Order = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 64 }),
    tags: Type.Optional(Type.Array(Type.String({ maxLength: 16 }), { maxItems: 4 })),
  },
  { additionalProperties: false },
);

/** Greets, then stays quiet until the client leaves. */
async function* greetings(signal: AbortSignal): AsyncGenerator<ServerSentEvent, void, void> {
  yield { event: 'greeting', data: 'hello' };
  await orAborted(new Promise<never>(() => undefined), signal).catch(() => undefined);
}

export interface RouteInit {
  readonly shelf: Shelf;
  readonly config: () => NotesConfig;
  readonly crash: () => void;
}

export function routes(init: RouteInit): Route[] {
  return [...noteRoutes(init), ...bodyRoutes(), ...waitingRoutes(), ...stateRoutes(init)];
}

function noteRoutes({ shelf }: RouteInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/notes/:name',
      summary: 'A note, or a part of it.',
      schema: { params: Name },
      scope: null,
      lane: 'get',
      body: 'none',
      deadline: 'get',
      handler: ({ params }) => bytes(shelf.open(params.name)),
    }),
    route({
      method: 'PUT',
      path: '/notes/:name',
      summary: 'Stores a note, streamed.',
      schema: { params: Name, response: { 200: Stored, 201: Stored } },
      scope: 'storage:put',
      facts: ({ params }) => ({ name: params['name'] }),
      lane: 'put',
      body: 'stream',
      handler: async ({ params, stream, headers }) => {
        const chunks: Uint8Array[] = [];
        for await (const chunk of stream) chunks.push(chunk);
        const whole = Buffer.concat(chunks);
        const { created, etag } = shelf.put(params.name, whole, headers['content-type'] ?? 'application/octet-stream');
        return json(created ? 201 : 200, { name: params.name, etag, size: whole.byteLength });
      },
    }),
  ];
}

function bodyRoutes(): Route[] {
  return [
    route({
      method: 'POST',
      path: '/orders',
      summary: 'A small JSON order.',
      schema: { body: Order, response: { 200: Type.Object({ name: Type.String(), tags: Type.Integer() }) } },
      scope: null,
      lane: 'inline',
      body: 'buffered',
      handler: ({ body }) => json(200, { name: body.name, tags: body.tags?.length ?? 0 }),
    }),
    route({
      method: 'POST',
      path: '/raw',
      summary: 'Tells how long a buffered body of any kind is.',
      scope: null,
      lane: 'inline',
      body: 'buffered',
      handler: ({ body_bytes }) => json(200, { bytes: body_bytes?.byteLength ?? 0 }),
    }),
  ];
}

function waitingRoutes(): Route[] {
  return [
    route({
      method: 'GET',
      path: '/slow/:ms',
      summary: 'Answers after a while, from a worker.',
      schema: { params: Type.Object({ ms: Type.String({ pattern: '^[0-9]{1,5}$' }) }) },
      scope: null,
      lane: 'slow',
      body: 'none',
      deadline: 'slow',
      handler: async ({ params, deadline }) => {
        await sleep(Number(params.ms), deadline.signal, 'slow');
        return json(200, { waited_ms: Number(params.ms) });
      },
    }),
    route({
      method: 'GET',
      path: '/inline/:ms',
      summary: 'Answers after a while, in no queue: holds an in-flight permit.',
      schema: { params: Type.Object({ ms: Type.String({ pattern: '^[0-9]{1,5}$' }) }) },
      scope: null,
      lane: 'inline',
      body: 'none',
      handler: async ({ params, deadline }) => {
        await sleep(Number(params.ms), deadline.signal, 'inline');
        return json(200, { waited_ms: Number(params.ms) });
      },
    }),
    route({
      method: 'GET',
      path: '/events',
      summary: 'Greets and stays open.',
      scope: null,
      lane: 'inline',
      body: 'none',
      handler: ({ gone }) => events(greetings(gone)),
    }),
  ];
}

function stateRoutes({ config, crash }: RouteInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/greeting',
      summary: 'Shows the configuration in force.',
      schema: { response: { 200: Type.Object({ greeting: Type.String() }) } },
      scope: null,
      lane: 'inline',
      body: 'none',
      handler: () => json(200, { greeting: config().notes.greeting }),
    }),
    route({
      method: 'GET',
      path: '/defect',
      summary: 'Fails with an error that is not ours.',
      scope: null,
      lane: 'inline',
      body: 'none',
      handler: () => {
        throw new TypeError('a secret in a stack trace');
      },
    }),
    route({
      method: 'POST',
      path: '/admin/crash',
      summary: 'Crashes the ticker.',
      scope: 'storage:admin',
      lane: 'inline',
      body: 'none',
      handler: () => {
        crash();
        return empty(204);
      },
    }),
    route({
      method: 'GET',
      path: '/admin/refuse',
      summary: 'Always forbidden.',
      scope: 'storage:admin',
      lane: 'inline',
      body: 'none',
      handler: () => {
        throw new RonError('forbidden', 'not even you');
      },
    }),
  ];
}
