/** Domain events of kms and their log levels. */
import type { EventLevel } from '@ron/service';
import type { AuditEventOut } from './audit/audit.ts';
import type { KeyEvent } from './keys/key-service.ts';

export type KmsEvent = KeyEvent | AuditEventOut | { readonly kind: 'backend'; readonly problem: string | undefined };

export function eventLevel(event: KmsEvent): EventLevel {
  return event.kind === 'key' || (event.kind === 'backend' && event.problem === undefined) ? 'info' : 'error';
}
