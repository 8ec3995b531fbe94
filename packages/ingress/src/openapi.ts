/**
 * The OpenAPI 3.1 document, generated from the route table and served at `/openapi.json`.
 *
 * Promise: what is served is what is routed and validated: both come from the same rows.
 */
import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';

export interface OpenapiInfo {
  readonly title: string;
  readonly version: string;
  readonly description?: string;
}

export async function registerOpenapi(app: FastifyInstance, info: OpenapiInfo): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: info.title,
        version: info.version,
        ...(info.description === undefined ? {} : { description: info.description }),
      },
      components: {
        securitySchemes: {
          capability: { type: 'http', scheme: 'bearer', description: 'A capability (macaroon) with the named scope.' },
        },
      },
    },
  });
}
