/** The HTTP surface of kms. */
import type { Route } from '@ron/ingress';
import { auditRoutes, type AuditRoutesInit } from './routes/audit.ts';
import { keyRoutes, type KeyRoutesInit } from './routes/keys.ts';
import { secretRoutes, type SecretRoutesInit } from './routes/secrets.ts';
import { signRoutes, type SignRoutesInit } from './routes/sign.ts';

export type KmsRoutesInit = KeyRoutesInit & SignRoutesInit & SecretRoutesInit & AuditRoutesInit;

export function routes(init: KmsRoutesInit): Route[] {
  return [...keyRoutes(init), ...signRoutes(init), ...secretRoutes(init), ...auditRoutes(init)];
}
