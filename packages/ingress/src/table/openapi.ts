/**
 * The OpenAPI 3.1 document, generated from the route table and served at `/openapi.json`.
 *
 * Contract: the document describes the rows that are routed and validated, with the same schemas. HEAD comes with every
 * GET and is not listed. A row with a scope names it under the security scheme `capability`.
 * Bound: the size of the table.
 *
 *   openapiDocument({ title: 'storage', version: '1.0.0' }, rows).paths['/o/{addr}'].get.summary
 */
import { STATUS_CODES } from '@ron/kernel/http';
import type { JsonSchema } from './schema.ts';
import { routeName } from './routes.ts';
import type { Route } from './routes.ts';

export interface OpenapiInfo {
  readonly title: string;
  readonly version: string;
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: true; readonly content: Content };
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content?: Content }>>;
}

interface Parameter {
  readonly in: 'path' | 'query';
  readonly name: string;
  readonly required: boolean;
  readonly description?: string;
  readonly schema: object;
}

type Content = Readonly<Record<string, { readonly schema: JsonSchema }>>;

export interface OpenapiDocument {
  readonly openapi: '3.1.0';
  readonly info: OpenapiInfo;
  readonly components: object;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const COMPONENTS = {
  securitySchemes: {
    capability: { type: 'http', scheme: 'bearer', description: 'A capability (macaroon) with the named scope.' },
  },
};

export function openapiDocument(info: OpenapiInfo, rows: readonly Route[]): OpenapiDocument {
  const paths: Record<string, Record<string, Operation>> = {};
  for (const row of rows) {
    const path = row.path.replace(/:([A-Za-z0-9_]+)/g, '{$1}').replace(/\*$/, '{*}');
    (paths[path] ??= {})[row.method.toLowerCase()] = operation(row);
  }
  return { openapi: '3.1.0', info, components: COMPONENTS, paths };
}

function operation(row: Route): Operation {
  const { params, query, body, response } = row.schema ?? {};
  const parameters = [...pathParameters(row.path, params), ...parametersOf('query', query)];
  return {
    operationId: routeName(row),
    summary: row.summary,
    ...(row.tags === undefined ? {} : { tags: row.tags }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: { required: true, content: contentOf(body, row.body_types) } }),
    ...(row.scope === null ? {} : { security: [{ capability: [row.scope] }] }),
    responses: responses(response, row),
  };
}

interface ObjectSchema {
  readonly properties?: Readonly<Record<string, { readonly description?: string }>>;
  readonly required?: readonly string[];
}

function parametersOf(place: Parameter['in'], schema: JsonSchema | undefined): Parameter[] {
  const { properties = {}, required = [] } = (schema ?? {}) as ObjectSchema;
  return Object.entries(properties).map(([name, { description, ...property }]) => ({
    in: place,
    name,
    required: place === 'path' || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema: property,
  }));
}

/** Every parameter of the path is listed, in the order of the path, even if the schema leaves it out. */
function pathParameters(path: string, schema: JsonSchema | undefined): Parameter[] {
  const declared = new Map(parametersOf('path', schema).map((parameter) => [parameter.name, parameter]));
  const names = [...path.matchAll(/:([A-Za-z0-9_]+)|\*$/g)].map(([whole, name]) => name ?? whole);
  return names.map((name) => declared.get(name) ?? { in: 'path', name, required: true, schema: { type: 'string' } });
}

function responses(
  response: Readonly<Record<number, JsonSchema>> | undefined,
  { statuses = response === undefined ? [200] : [], answer_types }: Route,
): Operation['responses'] {
  const plain = statuses.map((status) => [status, { description: STATUS_CODES[status] ?? 'Answer' }]);
  const described = Object.entries(response ?? {}).map(([status, schema]) => [
    status,
    {
      description: STATUS_CODES[status] ?? 'Answer',
      content: contentOf(schema, Number(status) < 300 ? answer_types : undefined),
    },
  ]);
  return Object.fromEntries([...plain, ...described]) as Operation['responses'];
}

/** JSON, and further media types whose content no schema describes. */
function contentOf(schema: JsonSchema, others: readonly string[] = []): Content {
  const entries = others.map((type) => [type, { schema: { type: 'string', format: 'binary' } }] as const);
  return { 'application/json': { schema }, ...Object.fromEntries(entries) };
}
